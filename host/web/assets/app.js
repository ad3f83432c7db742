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
// The last HTML that the host sent, by the id of the part.
const sent = new Map([...list.children].filter((part) => part.id).map((part) => [part.id, part.outerHTML]));

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
      if (answer.status === 401) return location.search.includes("key=") ? location.reload() : location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
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
    const place = focusable(held).indexOf(active);
    const opened = held.querySelector("details")?.open;
    held.innerHTML = part.innerHTML;
    if (opened) held.querySelector("details")?.setAttribute("open", "");
    Object.assign(held.dataset, part.dataset);
    if (place >= 0) again(focusable(held), active, place)?.focus({ preventScroll: true });
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

const focusable = (part) => [...part.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")];

// The element of a replaced part that has the focus next: the one with the same text, else the one in the same place.
// With another one, the Enter key would press a button that the reader did not choose.
const again = (fresh, old, place) => fresh.find((one) => one.textContent && one.textContent === old.textContent) ?? fresh[place];

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
  const { method, path, body, confirm: question } = click.target.dataset;
  // The submit event handles the buttons of forms.
  if (!path || click.target.form || (question && !confirm(question))) return;
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

// Sends a form as JSON, or the file that was chosen in it, and shows the answer below it.
list.addEventListener("submit", async (submit) => {
  const form = submit.target;
  if (!form.dataset.path) return;
  submit.preventDefault();
  const { path = form.dataset.path, method = "POST" } = submit.submitter?.dataset ?? {};
  const made = form.parentElement.querySelector(".made");
  const fail = (why) => { made.className = "made problem"; made.textContent = why; };
  try {
    const file = form.elements.file?.files[0];
    const body = file ?? JSON.stringify(entered(form));
    const type = file ? "application/wasm" : "application/json";
    made.className = "made";
    made.textContent = "…";
    const answer = await fetch(file ? path + encodeURIComponent(file.name) : path, { method, headers: { "X-CSRF-Token": csrf, "Content-Type": type }, body });
    const said = await answer.json();
    if (!answer.ok) return fail(said.error?.message ?? answer.status);
    made.replaceChildren(...shown(form, said));
    refresh();
  } catch (error) { fail(error.message); }
});

// The members that a form has, without empty fields. "settings.path" is the member path of settings.
function entered(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.value === "") continue;
    const [outer, inner] = field.name.split(/\.(.*)/);
    const lines = field.value.split("\n").filter(Boolean);
    const read = {
      json: () => JSON.parse(field.value),
      lines: () => lines,
      pairs: () => Object.fromEntries(lines.map((line) => line.split(/=(.*)/).slice(0, 2))),
      number: () => Number(field.value),
    }[field.dataset.type ?? field.type] ?? (() => field.value);
    let value;
    try { value = read(); } catch { throw new Error(`${field.name} is not JSON, such as {"name": "value"}`); }
    if (inner) (body[outer] ??= {})[inner] = value;
    else body[outer] = value;
  }
  return body;
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// The answer to a form: a plugin file, a setting, a token, the steps of a test, or a target.
function shown(form, said) {
  if (said.file) {
    form.reset();
    return [`${said.file} is in the plugin directory. Within seconds its kind is listed here, or the reason why it is refused.`];
  }
  if (said.key) return [`${said.key} is now ${said.value}.`];
  if (said.token) {
    const isWall = form.elements.scope.value === "wall";
    form.reset();
    const secret = isWall ? `${location.origin}/wall?key=${said.token}` : said.token;
    return [isWall ? "The link, shown only now: " : "The token, shown only now: ", element("code", { textContent: secret })];
  }
  if (!said.steps) return [`${said.id} is saved and polled: `, element("a", { href: `/targets/${said.id}`, textContent: "its page" })];
  const pin = form.elements["tls.fingerprint"];
  const rows = said.steps.map(({ name, code, subject, text, tookMs, certificate }) => {
    const verdict = element("span", { className: `tag ${code ? "critical" : "ok"}`, textContent: code ? `✗ ${code}` : "✓ ok" });
    const what = element("td", {}, text);
    if (certificate) {
      const { subject: owner, issuer, notAfter, fingerprint } = certificate;
      what.append(element("p", { className: "note" }, `${owner}, issued by ${issuer}, valid until ${notAfter.slice(0, 10)}`),
        element("code", { textContent: fingerprint }));
      if (pin && pin.value !== fingerprint) {
        const button = element("button", { type: "button", textContent: "Pin this certificate" });
        button.addEventListener("click", () => { pin.value = fingerprint; form.requestSubmit(); });
        what.append(" ", button);
      }
    }
    const took = tookMs === null ? "" : tookMs < 10 ? `${tookMs.toFixed(1)} ms` : `${Math.round(tookMs)} ms`;
    return element("tr", {}, element("td", {}, verdict), element("th", { scope: "row", textContent: name }),
      element("td", { textContent: subject }), what, element("td", { className: "number", textContent: took }));
  });
  const heads = ["Result", "Step", "For", "What", "Time"].map((textContent) => element("th", { scope: "col", textContent }));
  const failed = said.steps.filter(({ code }) => code).length;
  const verdict = !said.passed ? "The poll returned no report."
    : failed ? `The poll returned a report, and ${failed === 1 ? "1 step" : `${failed} steps`} failed.` : "The poll returned a report.";
  return [element("p", { className: said.passed && !failed ? "" : "problem" }, verdict),
    element("div", { className: "scroll", tabIndex: 0 }, element("table", { className: "numbers" },
      element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows)))];
}

// A definition as a [[target]] of the configuration file.
function toml({ settings = {}, secrets = {}, ...rest }) {
  const key = (name) => (/^[\w-]+$/.test(name) ? name : JSON.stringify(name));
  const text = (value) => Array.isArray(value) ? `[${value.map(text).join(", ")}]`
    : typeof value !== "object" ? JSON.stringify(value)
      : `{ ${Object.entries(value).map(([name, inner]) => `${key(name)} = ${text(inner)}`).join(", ")} }`;
  const lines = (table) => Object.entries(table).map(([name, value]) => `${key(name)} = ${text(value)}`);
  const sources = Object.fromEntries(Object.keys(secrets).map((name) => [name, { file: `/run/secrets/${name}` }]));
  const own = lines({ ...rest, ...(Object.keys(secrets).length && { secrets: sources }) });
  return ["[[target]]", ...own, ...(Object.keys(settings).length ? ["[target.settings]", ...lines(settings)] : [])].join("\n");
}

list.addEventListener("click", ({ target }) => {
  if (!("toml" in target.dataset)) return;
  const made = target.form.parentElement.querySelector(".made");
  try { made.replaceChildren(element("pre", { textContent: toml(entered(target.form)) })); }
  catch (error) { made.textContent = error.message; }
});

// The colours: those of the system, or the other ones. The choice stays in this browser.
const scheme = document.getElementById("scheme");
const chosen = () => localStorage.getItem("scheme") ?? "";
function colour() {
  document.documentElement.dataset.scheme = chosen();
  if (scheme) scheme.textContent = { "": "Colours: system", light: "Colours: light", dark: "Colours: dark" }[chosen()];
}
scheme?.addEventListener("click", () => {
  localStorage.setItem("scheme", { "": "dark", dark: "light", light: "" }[chosen()] ?? "");
  colour();
});
colour();

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
