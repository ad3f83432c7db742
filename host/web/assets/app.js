// Keeps the list of targets up to date: the server says that something happened, and renders what it looks like now.
"use strict";

const list = document.getElementById("targets");
const connection = document.getElementById("connection");
const csrf = document.querySelector('meta[name="csrf-token"]').content;
const PAUSE_MS = 1000; // at most one refresh in this time, however much happens
let wanted = false;
let busy = false;

async function refresh() {
  wanted = true;
  if (busy) return;
  busy = true;
  while (wanted) {
    wanted = false;
    try {
      const answer = await fetch("/fragments/targets");
      if (answer.status === 401) return location.assign("/login");
      if (answer.ok && !list.contains(document.activeElement)) list.innerHTML = await answer.text();
    } catch { /* the stream says that the host is away */ }
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
  busy = false;
}

list.addEventListener("click", async (click) => {
  const target = click.target.dataset.poll;
  if (!target) return;
  click.target.blur();
  await fetch(`/api/v1/targets/${target}/poll`, { method: "POST", headers: { "X-CSRF-Token": csrf } });
});

document.getElementById("logout").addEventListener("click", async () => {
  await fetch("/logout", { method: "POST", headers: { "X-CSRF-Token": csrf } });
  location.assign("/login");
});

const events = new EventSource("/api/v1/events");
events.onopen = () => { connection.textContent = "live"; refresh(); };
events.onerror = () => { connection.textContent = "the host does not answer; what you see may be old"; };
for (const name of ["status:change", "poll:complete", "poll:error", "circuit:open", "circuit:close", "target:dead-letter",
  "target:revived", "service:started", "service:stopped", "resync"]) {
  events.addEventListener(name, refresh);
}
