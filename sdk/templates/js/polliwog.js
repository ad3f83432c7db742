// What a plugin in JavaScript needs of polliwog: requests, failures, dependencies. The contract itself is in wit/.

import { fetch, fetchAll, hasSecret } from "polliwog:poller/http@0.1.0";
import * as cache from "polliwog:poller/cache@0.1.0";
import { write } from "polliwog:poller/log@0.1.0";

/** Writes a line to the host's log; 100 lines a poll. */
export const log = {
  debug: (text) => write("debug", text),
  info: (text) => write("info", text),
  warn: (text) => write("warn", text),
  error: (text) => write("error", text),
};

/** A failure that may be gone at the next try. */
export const transient = (code, message, retryAfterMs) => ({ tag: "transient", val: { code, message, retryAfterMs } });
/** A failure that stays until somebody changes something. */
export const permanent = (code, message, retryAfterMs) => ({ tag: "permanent", val: { code, message, retryAfterMs } });

const ADVICE = {
  401: ["unauthorized", "check the target's secret"],
  403: ["forbidden", "the secret is right, and its rights are not enough"],
  404: ["not_found", "check the path in the target's URL"],
  408: ["request_timeout", "the server took too long to read the request"],
  429: ["too_many_requests", "the server asks for fewer requests"],
};

function retryAfterMs(response) {
  const seconds = Number(header(response, "retry-after"));
  return Number.isFinite(seconds) && seconds > 0 ? Math.min(seconds * 1000, 4294967295) : undefined;
}

function statusFailure(response) {
  const { status, reason } = response;
  const [code, advice] = ADVICE[status] ??
    (status >= 500 ? ["server_error", "look at the server's log"] :
      status >= 300 && status < 400 ? ["redirect", "write the final address as the target's URL"] :
        ["unexpected_status", "check the target's URL"]);
  const message = `the server answered ${status}${reason ? ` ${reason}` : ""}: ${advice}`;
  const again = status >= 500 || [408, 425, 429].includes(status);
  return (again ? transient : permanent)(code, message, retryAfterMs(response));
}

/** The first header of this name, in any case. */
export const header = (response, name) =>
  response.headers.find((header) => header.name.toLowerCase() === name.toLowerCase())?.value;

/** The body as text. */
export const text = (response) => new TextDecoder().decode(response.body);

/** The body as JSON; a body that is none is a transient failure, because proxies answer 200 with pages of their own. */
export function json(response) {
  try {
    return JSON.parse(text(response));
  } catch (error) {
    throw transient("not_json", `the body is no JSON (${error.message}): check that the URL is the right one`);
  }
}

const request = (path, { method = "get", headers = {}, body, bodyEncoding = "raw", timeoutMs } = {}) => ({
  method, path, bodyEncoding, timeoutMs, captures: [],
  headers: Object.entries(headers).map(([name, value]) => ({ name, value })),
  body: typeof body === "string" ? new TextEncoder().encode(body) : body,
});

const httpFailure = ({ code, message, retryable }) => (retryable ? transient : permanent)(code, message);

export const http = {
  hasSecret,
  /** Sends a request; any status is an answer. "${secret.NAME}" in headers and body is filled in by the host. */
  send(path, options) {
    try {
      return fetch(request(path, options));
    } catch (error) {
      throw error?.payload ? httpFailure(error.payload) : error;
    }
  },
  /** The same, and statuses other than 2xx fail. */
  get(path, options) {
    const response = http.send(path, options);
    if (response.status < 200 || response.status > 299) throw statusFailure(response);
    return response;
  },
  /** Sends all at once: [{ response } or { failure }], in the order of the paths. */
  getAll(paths, options) {
    return fetchAll(paths.map((path) => request(path, options))).map((result) => {
      if (result.tag === "err") return { failure: httpFailure(result.val) };
      const { status } = result.val;
      return status < 200 || status > 299 ? { failure: statusFailure(result.val) } : { response: result.val };
    });
  },
};

export { cache };

const dependency = (status) => (name, errorMessage, more = {}) =>
  ({ name, status, skipped: false, errorMessage, ...more });
/** Dependencies: a name, why it is not well, and whatever else the source says (kind, code, latencyMs, parent, ...). */
export const ok = (name, more = {}) => dependency("ok")(name, undefined, more);
export const warning = dependency("warning");
export const critical = dependency("critical");
export const unknown = dependency("unknown");

/** A number for the host's metrics. */
export const gauge = (name, value, labels = {}) =>
  ({ name, kind: "gauge", value, labels: Object.entries(labels).map(([name, value]) => ({ name, value: String(value) })) });

/** A number, whether it came as one or as text; NaN where it is none. */
export const number = (value) => (value === null || value === "" ? NaN : Number(value));
/** Whether a flag is set, as true, 1, "1", "true", "yes" or "on". */
export const flag = (value) => value === true || value === 1 || /^(1|true|yes|on)$/i.test(String(value));

/** Makes the contract's `poller` of a plugin: { kind, title, version, summary, settings, secrets, check, poll }. */
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
    }),
    checkSettings: (given) => definition.check?.(withDefaults(JSON.parse(given))) ?? [],
    poll(target) {
      try {
        const report = definition.poll(target, withDefaults(JSON.parse(target.settings)));
        return { kept: [], samples: [], warnings: [], ...report };
      } catch (error) {
        if (error?.tag) throw error;
        // Uncaught, it would reach the host as a trap without a word.
        throw transient("exception", `the plugin failed: ${error?.message ?? error} ${error?.stack ?? ""}`.trim());
      }
    },
  };
}
