// Most of what a plugin can do, to copy from. To try it, copy it over plugin.js, and include with-session in wit/plugin.wit.

import {
  auth, cache, capture, gauge, http, json, now, ok, part, plugin, remainingMs, secret, sign, signature, store, timeZone, utcOffsetMinutes, warning,
} from "./polliwog.js";

const DAY = 24 * 60 * 60 * 1000;

/** The host signs the body, and logs in. The plugin never sees the key. */
function signed() {
  const signatures = [sign("v1", "hmac-sha256", { key: [part.secret("key")], input: ["1.", part.body] })];
  const headers = { "x-signature": `v1=${signature("v1")}` };
  http.send("/hook", { method: "POST", body: "text", headers, signatures, authentication: auth.basic("me", "key") });
}

/** A log-in whose token the host keeps over restarts, encrypted. The plugin sees asterisks instead. */
function logIn() {
  if (!http.hasSecret("refresh")) {
    const captures = [capture.json("refresh", "/refresh", DAY, { durable: true })];
    http.send("/login", { method: "POST", captures });
  }
  return http.hasSecret("refresh");
}

/** Answers that are not read to their end: the head, the first bytes, and to a text. */
function parts() {
  const answers = ["none", { first: 3 }, { until: ["mail"] }].map((read) => http.send("", { read }));
  const isSecure = answers.some((answer) => http.tlsOf(answer)?.chain.length > 0);
  return { texts: answers.map((answer) => new TextDecoder().decode(answer.body)), isSecure };
}

/** A counter that lasts over restarts and versions. */
function counted() {
  const polls = Number(store.get("polls") ?? "0") + 1;
  store.set("polls", String(polls));
  return polls;
}

export const { definition, poller, session } = plugin({
  kind: "{{kind}}",
  title: "{{title}}",
  version: "0.2.0",
  summary: "Most features in one plugin",
  settings: { limit: { type: "number", default: 5, description: "The limit." } },
  // Version 1 had the limit under another name.
  settingsVersion: 2,
  migrate: (_, { old }) => ({ limit: old }),
  secrets: [{ name: "key", description: "the key of signatures" }],
  poll(target, settings) {
    signed();
    // Asked again only if it changed.
    const { mail } = json(http.getCached("", DAY));
    cache.set("mail", new Uint8Array([mail]), DAY);
    const { texts, isSecure } = parts();
    const clock = [now() > 1e12, remainingMs() <= target.timeoutMs, timeZone() !== "", utcOffsetMinutes() % 15 === 0];
    const sees = [logIn(), ...clock, !isSecure, texts.join() === ',{"m,{"mail', cache.get("mail")[0] === mail].every(Boolean);
    return {
      dependencies: [
        warning("vm", sees ? `poll ${counted()} of limit ${settings.limit}` : "a value is missing", {
          runsOn: "rack", independent: true, validForMs: DAY,
        }),
        ok("rack", { link: "http://rack.example/" }),
        ok("old", { skipped: true }),
      ],
      // Removed on purpose: its alert ends.
      gone: ["vm/"],
      samples: [gauge("queue_messages", mail, {}, { help: "Messages.", unit: "messages", dependency: "vm" })],
      nextPollMs: 5000,
    };
  },
  // The end of the session. A durable value is not among the secrets when only the host ends.
  close: () => http.send("/logout", { method: "POST", headers: { "x-refresh": http.hasSecret("refresh") ? secret("refresh") : "no refresh" } }),
});
