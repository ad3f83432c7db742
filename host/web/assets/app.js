// Keeps a page up to date: fetches its content again when the server announces an event.
"use strict";

const list = document.getElementById("content");
const title = document.title;
const connection = document.getElementById("connection");
const csrf = document.querySelector('meta[name="csrf-token"]').content;
const every = Number(list.dataset.every); // milliseconds between two refreshes of a page that does not wait for events
const PAUSE_MS = 1000; // shortest time between two refreshes
const SILENCE_MS = 15000; // refresh after this time without a refresh, even without an event
const PATIENCE_MS = 4000; // longest wait for the host's answer
let wanted = false;
let busy = false;
let refreshed = Date.now();
let pressed = false; // a click has begun: its element must not be replaced
let ahead = 0; // host's clock minus this browser's clock, in milliseconds
const sent = new Map(); // the last HTML that the host sent, by target

async function refresh() {
  if (!list.dataset.live) return;
  wanted = true;
  if (busy) return;
  busy = true;
  while (wanted) {
    wanted = false;
    try {
      const answer = await fetch(list.dataset.live, { signal: AbortSignal.timeout(PATIENCE_MS) });
      // A link with a key shows why it is not valid; other pages log in.
      if (answer.status === 401) return location.search.includes("key=") ? location.reload() : location.assign("/login");
      if (!answer.ok) throw new Error(answer.status);
      const html = await answer.text();
      if (pressed) wanted = true;
      else show(html);
      heard();
    } catch { lost(); }
    await new Promise((done) => setTimeout(done, PAUSE_MS));
  }
  busy = false;
}

// Replaces only the parts that changed, so that focus and selection stay.
function show(html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const parts = [...fresh.content.children];
  const named = new Map([...list.children].filter((part) => part.id).map((part) => [part.id, part]));
  const [active, selection] = [document.activeElement, getSelection()];
  const selected = (part) => !selection.isCollapsed && part.contains(selection.anchorNode);
  const ends = [selection.anchorNode, selection.anchorOffset, selection.focusNode, selection.focusOffset];
  const was = selection.toString();
  const kept = parts.map((part) => {
    const held = part.id && named.get(part.id);
    if (!held) return part;
    if (sent.get(part.id) === part.outerHTML || selected(held)) return held;
    // A form keeps what is being entered.
    if (held.tagName === "FORM" && held.contains(active)) return held;
    const focused = held.contains(active);
    const opened = held.querySelector("details")?.open;
    held.innerHTML = part.innerHTML;
    if (opened) held.querySelector("details")?.setAttribute("open", "");
    Object.assign(held.dataset, part.dataset);
    if (focused) held.querySelector("button")?.focus({ preventScroll: true });
    sent.set(part.id, part.outerHTML);
    return held;
  });
  const focus = document.activeElement;
  kept.forEach((part, place) => { if (list.children[place] !== part) list.insertBefore(part, list.children[place] || null); });
  while (list.children.length > kept.length) list.lastElementChild.remove();
  // Moving an element clears focus and selection: restore them.
  if (focus !== document.activeElement && focus.isConnected) focus.focus({ preventScroll: true });
  if (was && getSelection().toString() !== was && ends[0].isConnected) getSelection().setBaseAndExtent(...ends);
  ahead = Number(list.querySelector("[data-now]")?.dataset.now ?? Date.now()) - Date.now();
  headline();
  localise();
  tick();
}

// Updates the displayed ages.
function tick() {
  const selection = getSelection();
  for (const part of document.querySelectorAll("time[data-at]")) {
    if (!selection.isCollapsed && selection.containsNode(part, true)) continue;
    const seconds = Math.floor(Math.abs(Date.now() + ahead - Number(part.dataset.at)) / 1000);
    const [count, unit] = seconds < 60 ? [seconds, "s"] : seconds < 3600 ? [seconds / 60, "min"]
      : seconds < 172800 ? [seconds / 3600, "h"] : [seconds / 86400, "days"];
    const text = `${Math.floor(count)} ${unit}`;
    if (part.textContent === text) continue;
    part.title ||= part.textContent;
    part.textContent = text;
  }
}

// Shows times in the browser's time zone.
function localise() {
  for (const part of list.querySelectorAll("time[data-local]")) {
    if (part.title) continue;
    part.title = part.textContent;
    part.textContent = new Date(Number(part.dataset.local)).toLocaleString([], { dateStyle: "short", timeStyle: "medium" });
  }
}

// Shows the worst status in the tab's title and icon.
function headline() {
  const { worst = "ok", bad = "0" } = list.querySelector("[data-worst]")?.dataset ?? {};
  document.title = bad === "0" ? title : `(${bad}) ${title}`;
  const icon = bad !== "0" ? "bad" : ["warning", "unknown"].includes(worst) ? "attention" : "ok";
  document.getElementById("icon").href = `/assets/icon-${icon}.svg`;
}

function heard() {
  refreshed = Date.now();
  if (connection.textContent !== "live") connection.textContent = "live";
  document.body.classList.remove("lost");
}

function lost() {
  const seconds = Math.round((Date.now() - refreshed) / 1000);
  connection.textContent = `The host does not answer: this page is ${seconds} s old`;
  document.body.classList.add("lost");
  document.title = `(!) ${title}`;
}

addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => { pressed = false; });
setInterval(() => { if (Date.now() - refreshed > Math.max(SILENCE_MS, every * 2 || 0)) refresh(); }, 2000);
if (!list.dataset.live) connection.textContent = "";
setInterval(tick, 1000);
headline();
localise();
tick();

list.addEventListener("click", async (click) => {
  const { method, path, body } = click.target.dataset;
  if (!path) return;
  const headers = { "X-CSRF-Token": csrf, ...(body && { "Content-Type": "application/json" }) };
  const answer = await fetch(path, { method, headers, body });
  // Show the error on the button, for example that the target is disabled.
  if (!answer.ok) click.target.title = click.target.textContent = (await answer.json()).error?.message ?? answer.status;
  else refresh();
});

// Choosing from a list of the filter applies it.
list.addEventListener("change", ({ target }) => { if (target.matches("form.filter select")) target.form.requestSubmit(); });

// "/" moves to the search, as in other tools.
addEventListener("keydown", (key) => {
  const search = list.querySelector("input[type=search]");
  if (key.key !== "/" || !search || key.target.matches("input, select, textarea")) return;
  key.preventDefault();
  search.focus();
});

// Sends a form as JSON and shows the answer below it.
list.addEventListener("submit", async (submit) => {
  const form = submit.target;
  const { path } = form.dataset;
  if (!path) return;
  submit.preventDefault();
  const filled = [...form.elements].filter((field) => field.name && field.value !== "");
  const entered = filled.map((field) => [field.name, field.type === "number" ? Number(field.value) : field.value]);
  const body = JSON.stringify(Object.fromEntries(entered));
  const made = form.parentElement.querySelector(".made");
  const answer = await fetch(path, { method: "POST", headers: { "X-CSRF-Token": csrf, "Content-Type": "application/json" }, body });
  const said = await answer.json();
  made.classList.toggle("problem", !answer.ok);
  if (!answer.ok) return made.textContent = said.error?.message ?? answer.status;
  const isWall = form.elements.scope.value === "wall";
  const secret = document.createElement("code");
  secret.textContent = isWall ? `${location.origin}/wall?key=${said.token}` : said.token;
  made.replaceChildren(isWall ? "The link, shown only now: " : "The token, shown only now: ", secret);
  form.reset();
  refresh();
});

document.getElementById("logout")?.addEventListener("click", async () => {
  await fetch("/logout", { method: "POST", headers: { "X-CSRF-Token": csrf } });
  location.assign("/login");
});

const NAMES = document.querySelector('meta[name="events"]').content.split(" ").concat("resync");
// A browser allows six connections to a host, so a shared worker holds one stream for all tabs. Without shared workers,
// each tab polls.
if (every) {
  setInterval(refresh, every);
} else if (window.SharedWorker) {
  const worker = new SharedWorker("/assets/stream.js");
  // The page of a target ignores events about others.
  worker.port.onmessage = ({ data }) => { if (!data || !list.dataset.target || data === list.dataset.target) refresh(); };
  worker.port.postMessage(NAMES);
  addEventListener("pagehide", () => worker.port.postMessage("bye"));
  addEventListener("pageshow", (shown) => { if (shown.persisted) location.reload(); });
} else {
  setInterval(refresh, 5000);
}
refresh();
