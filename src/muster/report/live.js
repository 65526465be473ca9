// Keeps the page new while its run goes on, and asks the run to stop. What the server sends was
// escaped there, and the policy of the page lets no script of it run.
"use strict";
(() => {
  const token = new URLSearchParams(location.search).get("token");
  const live = document.getElementById("live");
  const status = document.getElementById("status");
  const stop = document.getElementById("stop");
  let asked = false, sure = 0;

  function put(html) {
    const open = [...live.querySelectorAll("details[open]")].map((each) => each.id);
    const focusable = "[tabindex], summary, video";
    const focused = [...live.querySelectorAll(focusable)].indexOf(document.activeElement);
    live.innerHTML = html;
    for (const id of open) if (document.getElementById(id)) document.getElementById(id).open = true;
    if (focused >= 0) live.querySelectorAll(focusable)[focused]?.focus({ preventScroll: true });
  }

  const events = new EventSource(`events?token=${encodeURIComponent(token)}`);
  events.onmessage = (message) => {
    const told = JSON.parse(message.data);
    if (told.html !== undefined) put(told.html);
    status.textContent = told.status;
    stop.disabled = asked || !told.running;
  };
  events.onerror = () => { status.textContent = "muster watch has ended"; stop.disabled = true; };
  events.onopen = () => { status.textContent = "connected"; };

  stop.addEventListener("click", async () => {
    if (!sure) {
      stop.textContent = "Save and stop: press again if you are sure";
      sure = setTimeout(() => { sure = 0; stop.textContent = "Save and stop"; }, 5000);
      return;
    }
    clearTimeout(sure);
    asked = stop.disabled = true;
    const answer = await fetch("stop", { method: "POST", headers: { "X-Muster-Token": token } });
    stop.textContent = await answer.text();
  });
})();
