// Types of polliwog.js, for editors and for a plugin in TypeScript (plugin.ts).

export type Status = "ok" | "warning" | "critical" | "unknown";
/** A failure. Throw it to end the poll without a report. */
export interface PollError { tag: "transient" | "permanent"; val: { code: string; message: string; retryAfterMs?: number } }
export interface Target {
  id: string; name: string; url: string; also: string[]; labels: { name: string; value: string }[];
  settings: string; secrets: string[];
  /** The time of the poll, in milliseconds since 1970. Date.now() returns the same time during the poll. */
  now: bigint;
  timeoutMs: number;
}
/** Optional fields of a dependency. */
export interface More {
  title?: string; kind?: string; skipped?: boolean; code?: number; latencyMs?: number; description?: string; impact?: string;
  checkedAt?: bigint; error?: string | object; contact?: string | object; checkDetails?: string | object; parent?: string;
}
export interface Dependency extends More { name: string; status: Status; errorMessage?: string }
export interface Sample { name: string; kind: "gauge" | "counter" | "untyped"; labels: { name: string; value: string }[]; value: number }
export interface Report { dependencies: Dependency[]; kept?: string[]; samples?: Sample[]; warnings?: string[] }
export interface Header { name: string; value: string }
export interface Response {
  status: number; reason: string; headers: Header[]; body: Uint8Array;
  timing: { dnsMs: number; connectMs: number; tlsMs: number; firstByteMs: number; totalMs: number };
  tls?: { fingerprint: string; subject: string; issuer: string; notBefore: bigint; notAfter: bigint };
}
export interface Capture { name: string; source: { tag: "json-pointer" | "header" | "cookie"; val: string }; ttlMs: number }
export interface RequestOptions {
  method?: "get" | "head" | "post" | "put" | "patch" | "delete" | "options";
  /** The host fills in "${secret.NAME}" and "${basic.NAME}" in values. */
  headers?: Record<string, string>;
  body?: string | Uint8Array; bodyEncoding?: "raw" | "form" | "json"; timeoutMs?: number; captures?: Capture[];
}
export interface SecretSpec { name: string; description: string; required: boolean; pattern?: string; hint?: string; example?: string }
/** How a service becomes a target, for `polliwog setup`. In commands, settings and examples, "${account}" is the account's name. */
export interface Setup {
  port?: number;
  /** A path that answers without credentials, and a JSON pointer to a value that its answer always contains. */
  publicPath: string; publicPointer?: string;
  fingerprintCommand?: string; commands?: string[]; account?: string; settings?: object; hasMembers?: boolean;
}
export interface Member { name: string; address?: string; fingerprint?: string }
export interface Definition<Settings> {
  kind: string; title: string; version: string; summary: string;
  /** Properties of a JSON Schema. */
  settings?: Record<string, object>;
  required?: string[]; secrets?: SecretSpec[]; intervalMs?: number; timeoutMs?: number;
  /** Returns the problems of settings that are valid by the schema. */
  check?(settings: Settings): string[];
  poll(target: Target, settings: Settings): Report;
  setup?: Setup;
  /** Returns the other members of the service, for `polliwog setup`. */
  members?(target: Target, settings: Settings): Member[];
}

export const log: Record<"debug" | "info" | "warn" | "error", (text: string) => void>;
export const transient: (code: string, message: string, retryAfterMs?: number) => PollError;
export const permanent: (code: string, message: string, retryAfterMs?: number) => PollError;
export const header: (response: Response, name: string) => string | undefined;
export const text: (response: Response) => string;
export function json(response: Response): unknown;
export const capture: Record<"json" | "header" | "cookie", (name: string, place: string, ttlMs: number) => Capture>;
export const http: {
  hasSecret(name: string): boolean;
  forgetSecret(name: string): void;
  /** Any status is a response. */
  send(path: string, options?: RequestOptions): Response;
  /** Statuses other than 2xx fail. */
  get(path: string, options?: RequestOptions): Response;
  postJson(path: string, body: unknown, options?: RequestOptions): Response;
  /** Sends a GET request whose answer is kept for ttlMs, at most a week, and requested again only if it changed (ETag, date). */
  getCached(path: string, ttlMs: number, options?: RequestOptions): Response;
  getAll(paths: string[], options?: RequestOptions): ({ response: Response; failure?: undefined } | { failure: PollError; response?: undefined })[];
};
export const cache: {
  get(key: string): Uint8Array | undefined;
  set(key: string, value: Uint8Array, ttlMs: number): void;
  remove(key: string): void;
};
export const ok: (name: string, more?: More) => Dependency;
export const warning: (name: string, why: string, more?: More) => Dependency;
export const critical: (name: string, why: string, more?: More) => Dependency;
export const unknown: (name: string, why: string, more?: More) => Dependency;
export const gauge: (name: string, value: number, labels?: Record<string, string>) => Sample;
export const unexpectedShape: (value: unknown, expected: string) => PollError;
export function number(value: unknown): number;
export function entries(value: unknown): [string, unknown][];
export const flag: (value: unknown) => boolean;
export function plugin<Settings = Record<string, any>>(definition: Definition<Settings>): object;
export interface Channel { name: string; url: string; settings: string; secrets: string[]; now: bigint; timeoutMs: number }
export interface Alert {
  fingerprint: string; event: "firing" | "resolved" | "flapping" | "repeated" | "test"; status: Status; class: string;
  targetId?: string; targetName: string; kind: string; dependency?: string; title: string; summary: string;
  since: bigint; resolvedAt?: bigint; labels: { name: string; value: string }[]; link?: string; suppresses: number;
}
/** A message about at most 100 alerts, the worst first. `id` is the same for each attempt. */
export interface Notification {
  id: string; group: { name: string; value: string }[]; alerts: Alert[]; omitted: number; link?: string;
}
export interface NotifierDefinition<Settings> {
  kind: string; title: string; version: string; summary: string; settings?: Record<string, object>; required?: string[];
  secrets?: SecretSpec[]; needsEveryAlert?: boolean;
  check?(settings: Settings): string[];
  send(channel: Channel, settings: Settings, notification: Notification): void;
}
export function notifier<Settings = Record<string, any>>(definition: NotifierDefinition<Settings>): object;
