// Shows the values of curves under a pointer, or by arrow keys. Everything else of the page works
// without it. Listeners are on the document, so that pictures may be replaced while it is live.
"use strict";
(() => {
  const BEGIN = 56, END = 428, WIDE = 440; // as in chart.py

  function curves(svg) {
    return [...svg.querySelectorAll("[data-values]")].map((curve) => ({
      label: curve.dataset.label,
      points: curve.dataset.values.split(" ").map((pair) => pair.split(",").map(Number)),
    }));
  }

  // The point of a curve that is nearest to a number of steps.
  function nearest(points, step) {
    return points.reduce((a, b) => (Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a));
  }

  function show(svg, wanted) {
    const found = curves(svg);
    if (!found.length) return;
    const low = Number(svg.dataset.low), high = Number(svg.dataset.high);
    const step = nearest(found.flatMap((curve) => curve.points), wanted)[0];
    const place = BEGIN + ((step - low) / (high - low)) * (END - BEGIN);
    const cursor = svg.querySelector(".cursor");
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    svg.dataset.step = step;
    const texts = found.map(({ label, points }) => `${label}: ${nearest(points, step)[1]}`);
    const output = svg.parentElement.querySelector(".values");
    output.textContent = `${step.toLocaleString("en")} steps: ${texts.join("; ")}`;
  }

  // The step that a key leads to, from the one that is shown.
  function reached(svg, key) {
    const steps = curves(svg).flatMap((curve) => curve.points.map((point) => point[0]));
    steps.sort((a, b) => a - b);
    const now = svg.dataset.step === undefined ? Infinity : Number(svg.dataset.step);
    if (key === "Home") return steps[0];
    if (key === "End") return steps.at(-1);
    if (key === "ArrowLeft") return steps.findLast((step) => step < now) ?? steps[0];
    return steps.find((step) => step > now) ?? steps.at(-1);
  }

  function clear(svg) {
    const cursor = svg.querySelector(".cursor");
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
    delete svg.dataset.step;
    svg.parentElement.querySelector(".values").textContent = "";
  }

  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest?.(".chart");
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDE;
    const low = Number(svg.dataset.low), high = Number(svg.dataset.high);
    show(svg, low + ((x - BEGIN) / (END - BEGIN)) * (high - low));
  });

  document.addEventListener("pointerout", (event) => {
    const svg = event.target.closest?.(".chart");
    if (svg && !svg.contains(event.relatedTarget)) clear(svg);
  });

  document.addEventListener("keydown", (event) => {
    const svg = event.target.closest?.(".chart");
    if (!svg) return;
    if (event.key === "Escape") clear(svg);
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    show(svg, reached(svg, event.key));
  });
})();
