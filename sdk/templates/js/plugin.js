// Kind `{{kind}}`: how many messages wait in each queue, from a JSON object of names and numbers.

import { critical, entries, gauge, http, json, log, number, ok, plugin, problem, warning } from "./polliwog.js";

export const { definition, poller } = plugin({
  kind: "{{kind}}",
  title: "{{title}}",
  version: "0.1.0",
  summary: "How many messages wait in each queue",
  // The settings under [target.settings], as properties of a JSON Schema.
  settings: {
    warning: { type: "number", default: 100, description: "More messages than this are a warning." },
    critical: { type: "number", default: 1000, description: "More messages than this are critical." },
  },
  check: ({ warning, critical }) => (warning > critical ? [problem("/warning", "it is above critical: swap them")] : []),
  poll(target, settings) {
    // Request the target's URL. Errors and statuses other than 2xx become failures.
    const queues = entries(json(http.get("")));
    log.debug(`${queues.length} queues`);
    return {
      dependencies: queues.map(([name, value]) => {
        const waiting = number(value);
        const message = `${waiting} messages wait`;
        if (waiting > settings.critical) return critical(name, message, { kind: "queue" });
        if (waiting > settings.warning) return warning(name, message, { kind: "queue" });
        return ok(name, { kind: "queue" });
      }),
      samples: queues.map(([name, value]) => gauge("queue_messages", number(value), { queue: name }, { dependency: name })),
    };
  },
});
