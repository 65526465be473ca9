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

  function range(found) {
    const all = found.flatMap((curve) => curve.points.map((point) => point[0]));
    const low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b));
    return [low, high];
  }

  function show(svg, share) {
    const found = curves(svg);
    if (!found.length) return;
    const [low, high] = range(found);
    const span = Number(svg.dataset.high) - Number(svg.dataset.low);
    const wanted = Number(svg.dataset.low) + share * span;
    const at = Math.min(high, Math.max(low, wanted));
    const texts = [];
    let step = null;
    for (const { label, points } of found) {
      const near = points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
      if (step === null) step = near[0];
      texts.push(`${label}: ${near[1]}`);
    }
    const place = BEGIN + ((step - Number(svg.dataset.low)) / span) * (END - BEGIN);
    const cursor = svg.querySelector(".cursor");
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    svg.dataset.share = share;
    const output = svg.parentElement.querySelector(".values");
    output.textContent = `${step.toLocaleString("en")} steps: ${texts.join("; ")}`;
  }

  function clear(svg) {
    const cursor = svg.querySelector(".cursor");
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
    delete svg.dataset.share;
    svg.parentElement.querySelector(".values").textContent = "";
  }

  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest?.(".chart");
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDE;
    show(svg, Math.min(1, Math.max(0, (x - BEGIN) / (END - BEGIN))));
  });

  document.addEventListener("pointerout", (event) => {
    const svg = event.target.closest?.(".chart");
    if (svg && !svg.contains(event.relatedTarget)) clear(svg);
  });

  document.addEventListener("keydown", (event) => {
    const svg = event.target.closest?.(".chart");
    const moves = { ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1 };
    if (!svg) return;
    if (event.key === "Escape") clear(svg);
    if (!(event.key in moves)) return;
    event.preventDefault();
    const share = svg.dataset.share === undefined ? 1 : Number(svg.dataset.share);
    show(svg, Math.min(1, Math.max(0, share + moves[event.key])));
  });
})();
