// Types of polliwog.js, for editors and for a plugin in TypeScript (plugin.ts).

export type Status = "ok" | "warning" | "critical" | "unknown";
/** A failure. Throw it to end the poll without a report. */
export interface CallError {
  tag: "transient" | "permanent" | "misconfigured"; val: { code: string; message: string; retryAfterMs?: number };
  /** The number of the exchange that failed, for `http.tlsOf`. */
  exchange?: number;
}
/** A target or a channel. */
export interface Target {
  id: string; name: string; url: string; also: string[]; labels: { name: string; value: string }[];
  settings: string; secrets: string[]; timeoutMs: number;
}
/** Optional fields of a dependency. */
export interface More {
  title?: string; kind?: string; skipped?: boolean; code?: number; latencyMs?: number; description?: string; impact?: string;
  checkedAt?: Date | number | bigint; error?: string | object; contact?: string | object; checkDetails?: string | object;
  /** How long after `checkedAt` the status is current. */
  validForMs?: number;
  /** The address of the object in its own user interface. */
  link?: string;
  /** What it runs on, by name: its alert is held back while that fails, unless it is `independent`. */
  runsOn?: string | string[]; independent?: boolean;
}
export interface Dependency extends More { name: string; status: Status; errorMessage?: string }
/** The description of a metric, its base unit, and the dependency of the report that the value is about. */
export interface About { help?: string; unit?: string; dependency?: string }
export interface Sample extends About { name: string; kind: "gauge" | "counter" | "untyped"; labels: { name: string; value: string }[]; value: number }
export interface Report {
  dependencies: Dependency[];
  /** Names, or prefixes that end in /, of what this poll did not check, and of what was removed on purpose. */
  kept?: string[]; gone?: string[];
  samples?: Sample[]; warnings?: string[];
  /** When the next poll is useful. The host keeps to its intervals. */
  nextPollMs?: number;
  /** The error of the poll, unless the report has a dependency that is known of the target. */
  errorUnlessKnown?: CallError;
}
export interface Header { name: string; value: string }
export interface Response {
  /** The number of the exchange, for `http.tlsOf`. */
  exchange: number;
  status: number; reason: string; headers: Header[]; body: Uint8Array;
  /** False if `read` ended the reading before the end of the body. */
  bodyComplete: boolean;
  timing: { dnsMs: number; connectMs: number; tlsMs: number; firstByteMs: number; totalMs: number };
}
export interface Certificate {
  fingerprint: string; subject: string; issuer: string; serial: string; notBefore: bigint; notAfter: bigint; names: string[];
  key: string; signatureAlgorithm: string; isAuthority: boolean;
}
export interface TlsSession {
  protocol?: string; cipher?: string; alpn?: string; serverName: string; chain: Certificate[];
  /** Why the chain is not accepted. */
  problem?: string;
}
export interface Capture { name: string; source: { tag: string; val: string }; ttlMs: number; optional: boolean; durable: boolean }
export type SecretEncoding = "utf8" | "utf16le" | "base64" | "base32" | "hex";
/** A part of a signature's key or input. */
export type Part = string | Uint8Array | { tag: "body" } | { tag: "secret"; val: { name: string; encoding: SecretEncoding } } | { tag: "signature"; val: string };
export interface Signature { name: string; algorithm: string }
export interface Authentication { tag: "basic" | "digest" | "bearer"; val: { user: string; password: string } | string }
export interface RequestOptions {
  /** "GET" where absent; any method of 1 to 16 letters. */
  method?: string;
  /** Values can contain the results of `secret`, `basic` and `signature`. */
  headers?: Record<string, string>;
  body?: string | Uint8Array; bodyEncoding?: "raw" | "form" | "json"; timeoutMs?: number; captures?: Capture[];
  signatures?: Signature[]; authentication?: Authentication;
  /** How much of the response's body to read: all of it unless this says otherwise. */
  read?: "all" | "none" | { first: number } | { until: (string | Uint8Array)[] };
}
export interface SecretSpec { name: string; description: string; required?: boolean; privateKey?: boolean; pattern?: string; hint?: string; example?: string }
/** How a service becomes a target, for `polliwog setup`. In commands, settings and examples, "${account}" is the account's name. */
export interface Setup {
  port?: number;
  /** A path that answers without credentials, and a JSON pointer to a value that its answer always contains. */
  publicPath: string; publicPointer?: string;
  fingerprintCommand?: string; commands?: string[]; account?: string; settings?: object; hasMembers?: boolean;
}
/** A problem of a setting: a JSON pointer, and one sentence. */
export interface Problem { setting?: string; message: string }
export interface Member { name: string; address?: string; fingerprint?: string }
export interface Definition<Settings> {
  kind: string; title: string; version: string; summary: string;
  /** The plugin's page, its licence (SPDX), and the schemes of the URLs that it accepts: http and https unless it names one. */
  homepage?: string; license?: string; schemes?: string[];
  /** Properties of a JSON Schema. */
  settings?: Record<string, object>;
  required?: string[]; secrets?: SecretSpec[]; intervalMs?: number; timeoutMs?: number;
  /** The version of the shape of the settings, 1 unless it says otherwise. */
  settingsVersion?: number;
  /** Converts settings of an earlier version. Throws the result of `problem` if they have no equivalent. */
  migrate?(version: number, settings: Record<string, unknown>): Settings;
  /** Returns the problems of settings that are valid by the schema. */
  check?(settings: Settings): (string | Problem)[];
  poll(target: Target, settings: Settings): Report;
  setup?: Setup;
  /** Returns the other members of the service, for `polliwog setup`. */
  members?(target: Target, settings: Settings): Member[];
  /** Ends the session that polls opened, for example logs out. */
  close?(target: Target, settings: Settings): void;
}

/** The time of the call, in milliseconds since 1970. */
export const now: () => number;
/** The operator's time zone: its offset from UTC in minutes, and its IANA name. */
export const utcOffsetMinutes: (at?: number | Date) => number;
export const timeZone: () => string;
/** The rest of the call's time, in milliseconds. */
export const remainingMs: () => number;
/** Which alerts of a notification were sent: later attempts contain only the others. */
export const progress: { sent(alert: Alert): void; refused(alert: Alert, failure: CallError): void };
export const log: Record<"debug" | "info" | "warn" | "error", (text: string) => void>;
export const transient: (code: string, message: string, retryAfterMs?: number) => CallError;
export const misconfigured: (code: string, message: string, retryAfterMs?: number) => CallError;
export const permanent: (code: string, message: string, retryAfterMs?: number) => CallError;
/** The failure for a status that is not 2xx, as `http.get` throws it: for responses of `http.send`. */
export function statusFailure(response: Response, path?: string): CallError;
export const header: (response: Response, name: string) => string | undefined;
export const text: (response: Response) => string;
export function json(response: Response): unknown;
/** References to secrets, which the host replaces when it sends a request. */
export const secret: (name: string) => string;
export const basic: (name: string) => string;
/** A reference to the result of a signature of the same request. */
export const signature: (name: string) => string;
/** A text in which references are the same in each call, to compare it. */
export const stable: (text: string) => string;
export const capture: Record<
  "json" | "header" | "cookie" | "pattern",
  (name: string, place: string, ttlMs: number, options?: { statuses?: [number, number][]; optional?: boolean; durable?: boolean }) => Capture
>;
export const part: { body: Part; secret(name: string, encoding?: SecretEncoding): Part; signature(name: string): Part };
export const sign: (
  name: string, algorithm: string,
  options?: { key?: Part[]; input?: Part[]; encoding?: "raw" | "hex" | "base64" | "base64url"; iterations?: number },
) => Signature;
export const auth: {
  basic(user: string, password: string): Authentication; digest(user: string, password: string): Authentication;
  bearer(token: string): Authentication;
};
export const http: {
  hasSecret(name: string): boolean;
  forgetSecret(name: string): void;
  /** The TLS session of a response or of a failure; undefined without TLS. `chain[0]` is the server's certificate. */
  tlsOf(of: Response | CallError): TlsSession | undefined;
  /** Any status is a response. */
  send(path: string, options?: RequestOptions): Response;
  /** Statuses other than 2xx fail. */
  get(path: string, options?: RequestOptions): Response;
  postJson(path: string, body: unknown, options?: RequestOptions): Response;
  /** Sends a GET request whose answer is kept for ttlMs, at most a week, and requested again only if it changed (ETag, date). */
  getCached(path: string, ttlMs: number, options?: RequestOptions): Response;
  getAll(paths: string[], options?: RequestOptions): ({ response: Response; failure?: undefined } | { failure: CallError; response?: undefined })[];
};
export const cache: {
  get(key: string): Uint8Array | undefined;
  set(key: string, value: Uint8Array, ttlMs: number): void;
  remove(key: string): void;
};
/** Values that last over restarts and versions: at most 64 KiB and 64 keys. */
export const store: { get(key: string): string | undefined; set(key: string, text: string): void; remove(key: string): void; keys(): string[] };
export const ok: (name: string, more?: More) => Dependency;
export const warning: (name: string, why: string, more?: More) => Dependency;
export const critical: (name: string, why: string, more?: More) => Dependency;
export const unknown: (name: string, why: string, more?: More) => Dependency;
export const gauge: (name: string, value: number, labels?: Record<string, string>, about?: About) => Sample;
export const counter: (name: string, value: number, labels?: Record<string, string>, about?: About) => Sample;
export const problem: (setting: string, message: string) => Problem;
export const unexpectedShape: (value: unknown, expected: string) => CallError;
/** `what` says in the message of a failure which value it is. */
export function number(value: unknown, what?: string): number;
export function entries(value: unknown): [string, unknown][];
export const flag: (value: unknown) => boolean;
export function plugin<Settings = Record<string, any>>(definition: Definition<Settings>): { definition: object; poller: object; setup: object; session: object };
export interface Alert {
  fingerprint: string; 
  /** "firing", "resolved", "flapping", "repeated", "test", or what a later host has. */
  event: string; status: Status; class: string;
  targetId?: string; targetName: string; kind: string; dependency?: string; title: string; summary: string;
  since: bigint; resolvedAt?: bigint; labels: { name: string; value: string }[]; link?: string; suppresses: number;
  /** The address of the failing object in its own user interface. */
  objectLink?: string;
}
/** A message about at most 100 alerts, the worst first. `id` and `createdAt` are the same for each attempt. */
export interface Notification {
  id: string; createdAt: bigint; attempt: number; group: { name: string; value: string }[]; alerts: Alert[]; omitted: number; link?: string;
}
export interface NotifierDefinition<Settings> {
  kind: string; title: string; version: string; summary: string; homepage?: string; license?: string; schemes?: string[];
  settings?: Record<string, object>; required?: string[]; secrets?: SecretSpec[]; timeoutMs?: number; needsEveryAlert?: boolean;
  /** As of a poller. */
  settingsVersion?: number; migrate?(version: number, settings: Record<string, unknown>): Settings;
  /** Ends the session that notifications opened, for example logs out. */
  close?(channel: Target, settings: Settings): void;
  check?(settings: Settings): (string | Problem)[];
  send(channel: Target, settings: Settings, notification: Notification): void;
}
export function notifier<Settings = Record<string, any>>(definition: NotifierDefinition<Settings>): { definition: object; notifier: object; session: object };
