// Polliwog's helpers for plugins in JavaScript: requests, failures, dependencies. The contract is in wit/.

import { fetch, fetchAll, forgetSecret, hasSecret } from "polliwog:poller/http@0.1.0";
import * as cache from "polliwog:poller/cache@0.1.0";
import { write } from "polliwog:poller/log@0.1.0";

/** Writes a line to the host's log, at most 100 lines per poll. */
export const log = {
  debug: (text) => write("debug", text),
  info: (text) => write("info", text),
  warn: (text) => write("warn", text),
  error: (text) => write("error", text),
};

/** A failure that another try may fix. Throw it. */
export const transient = (code, message, retryAfterMs) => ({ tag: "transient", val: { code, message, retryAfterMs } });
/** A failure that stays until an operator changes something. Throw it. */
export const permanent = (code, message, retryAfterMs) => ({ tag: "permanent", val: { code, message, retryAfterMs } });

const ADVICE = {
  401: ["unauthorized", "check the target's secret"],
  403: ["forbidden", "the target's secret lacks the required rights, is wrong or is missing"],
  404: ["not_found", "check the path in the target's URL"],
  408: ["request_timeout", "the server took too long to read the request"],
  429: ["too_many_requests", "the server requires fewer requests"],
};

function retryAfterMs(response) {
  const seconds = Number(header(response, "retry-after"));
  return Number.isFinite(seconds) && seconds > 0 ? Math.min(seconds * 1000, 4294967295) : undefined;
}

function statusFailure(response) {
  const { status, reason } = response;
  const [code, advice] = ADVICE[status] ??
    (status >= 500 ? ["server_error", "check the server's log"] :
      status >= 300 && status < 400 ?
        ["redirect", `set the redirect's destination as the target's URL (${header(response, "location") ?? "no location"})`] :
        ["unexpected_status", "check the target's URL"]);
  const message = `the server answered ${status}${reason ? ` ${reason}` : ""}: ${advice}`;
  const again = status >= 500 || [408, 425, 429].includes(status);
  return (again ? transient : permanent)(code, message, retryAfterMs(response));
}

/** The value of the first header with this name, in any case; undefined if it is missing. */
export const header = (response, name) =>
  response.headers.find((header) => header.name.toLowerCase() === name.toLowerCase())?.value;

/** The body as text. */
export const text = (response) => new TextDecoder().decode(response.body);

/** The body as JSON. Any other body is a transient failure, because proxies answer 200 with their own pages. */
export function json(response) {
  try {
    return JSON.parse(text(response));
  } catch (error) {
    throw transient("not_json", `the body is not JSON (${error.message}): check that the URL is correct`);
  }
}

/** Stores a part of a 2xx answer as "${secret.NAME}". The plugin sees asterisks instead. */
export const capture = {
  json: (name, pointer, ttlMs) => ({ name, source: { tag: "json-pointer", val: pointer }, ttlMs }),
  header: (name, header, ttlMs) => ({ name, source: { tag: "header", val: header }, ttlMs }),
  cookie: (name, cookie, ttlMs) => ({ name, source: { tag: "cookie", val: cookie }, ttlMs }),
};

const request = (path, { method = "get", headers = {}, body, bodyEncoding = "raw", timeoutMs, captures = [] } = {}) => ({
  method, path, bodyEncoding, timeoutMs, captures,
  headers: Object.entries(headers).map(([name, value]) => ({ name, value })),
  body: typeof body === "string" ? new TextEncoder().encode(body) : body,
});

const httpFailure = ({ code, message, retryable }) => (retryable ? transient : permanent)(code, message);

export const http = {
  hasSecret,
  forgetSecret,
  /** Sends a request. Any status is a response. The host fills in "${secret.NAME}" in headers and body. */
  send(path, options) {
    try {
      return fetch(request(path, options));
    } catch (error) {
      throw error?.payload ? httpFailure(error.payload) : error;
    }
  },
  /** Sends a GET request. Fails if the status is not 2xx. */
  get(path, options) {
    const response = http.send(path, options);
    if (response.status < 200 || response.status > 299) throw statusFailure(response);
    return response;
  },
  /** Sends all requests at once. Returns [{ response } or { failure }], in the order of the paths. */
  getAll(paths, options) {
    return fetchAll(paths.map((path) => request(path, options))).map((result) => {
      if (result.tag === "err") return { failure: httpFailure(result.val) };
      const { status } = result.val;
      return status < 200 || status > 299 ? { failure: statusFailure(result.val) } : { response: result.val };
    });
  },
};

export { cache };

// In the contract, these are strings of JSON.
const TEXTS = ["error", "contact", "checkDetails"];
const dependency = (status) => (name, errorMessage, more = {}) => {
  const made = { name, status, skipped: false, errorMessage, ...more };
  for (const key of TEXTS) if (made[key] && typeof made[key] === "object") made[key] = JSON.stringify(made[key]);
  return made;
};
/** Dependencies: a name, an error message unless ok, and optional fields (kind, code, latencyMs, parent, ...). */
export const ok = (name, more = {}) => dependency("ok")(name, undefined, more);
export const warning = dependency("warning");
export const critical = dependency("critical");
export const unknown = dependency("unknown");

/** A number for the host's metrics. */
export const gauge = (name, value, labels = {}) =>
  ({ name, kind: "gauge", value, labels: Object.entries(labels).map(([name, value]) => ({ name, value: String(value) })) });

/** A transient failure for a body with an unexpected shape. Throw it. */
export const unexpectedShape = (value, expected) =>
  transient("unexpected_shape", `the body has ${String(JSON.stringify(value)).slice(0, 80)} where ${expected} was expected`);
/** Returns a finite number from a number or text. Any other value fails the poll. */
export function number(value) {
  const found = typeof value === "number" ? value : typeof value === "string" && value.trim() ? Number(value) : NaN;
  if (!Number.isFinite(found)) throw unexpectedShape(value, "a number");
  return found;
}
/** The entries of a JSON object. Any other value fails the poll. */
export function entries(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw unexpectedShape(value, "an object");
  return Object.entries(value);
}
/** Whether a flag is set: true for true, 1, "1", "true", "yes" and "on". */
export const flag = (value) => value === true || value === 1 || /^(1|true|yes|on)$/i.test(String(value));

/** Describes an exception with the author's files and lines. */
function describe(error) {
  const lines = globalThis.polliwogLines ?? [];
  const stack = String(error?.stack ?? "").replace(/\S*?bundle\.js:(\d+)(:\d+)?/g, (place, line) => lines[line - 2] || place);
  const own = stack.trim().split("\n").filter((frame) => frame && !/^polliwog\.js:|initializer\.js/.test(frame)).slice(0, 4);
  // JavaScript can throw any value.
  const message = error instanceof Error ? `${error.name}: ${error.message}` : typeof error === "string" ? error : JSON.stringify(error);
  return `${message}${own.length ? ` (${own.join(", called by ")})` : ""}`;
}

/** Checks a report. Throws an explanation for values that the contract would refuse without a reason. */
function checked(report) {
  const wrong = (what) => { throw new TypeError(`poll returned ${what}`); };
  if (typeof report?.then === "function") wrong("a promise: a poll must not be async; http calls return their result directly");
  if (!Array.isArray(report?.dependencies)) wrong("no list of dependencies: { dependencies: [ok(\"name\")] }");
  for (const { name, status } of report.dependencies) {
    if (typeof name !== "string") wrong(`a dependency whose name is ${JSON.stringify(name)}`);
    if (!["ok", "warning", "critical", "unknown"].includes(status)) wrong(`the dependency ${name} with the status ${status}`);
  }
  return { kept: [], samples: [], warnings: [], ...report };
}

/** Creates the contract's `poller` from a plugin: { kind, title, version, summary, settings, secrets, check, poll, setup, members }. */
export function plugin(definition) {
  const settings = definition.settings ?? {};
  const schema = {
    type: "object", additionalProperties: false, properties: settings,
    required: definition.required ?? [],
  };
  const withDefaults = (given) => {
    const defaults = Object.entries(settings).map(([name, { default: value }]) => [name, value]);
    return { ...Object.fromEntries(defaults), ...given };
  };
  return {
    describe: () => ({
      kind: definition.kind, title: definition.title, version: definition.version, summary: definition.summary,
      settingsSchema: JSON.stringify(schema), secrets: definition.secrets ?? [],
      defaultIntervalMs: definition.intervalMs ?? 30000, defaultTimeoutMs: definition.timeoutMs ?? 10000,
      setup: definition.setup && { commands: [], hasMembers: false, ...definition.setup, settings: JSON.stringify(definition.setup.settings ?? {}) },
    }),
    members: (target) => definition.members?.(target, withDefaults(JSON.parse(target.settings))) ?? [],
    checkSettings: (given) => definition.check?.(withDefaults(JSON.parse(given))) ?? [],
    poll(target) {
      try {
        return checked(definition.poll(target, withDefaults(JSON.parse(target.settings))));
      } catch (error) {
        if (error?.tag) throw error;
        // A fault of the plugin. The host's message contains the end of this output.
        console.error(describe(error));
        throw error;
      }
    },
  };
}
