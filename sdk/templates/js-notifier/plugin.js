// Channels of kind `{{kind}}`: posts each notification as JSON. Change the body to what your receiver takes.

import { http, notifier as register, secret } from "./polliwog.js";

export const { definition, notifier } = register({
  kind: "{{kind}}",
  title: "{{title}}",
  version: "0.1.0",
  summary: "Notifications for {{title}}",
  // The settings under [channel.settings], as properties of a JSON Schema.
  settings: { room: { type: "string", default: "", description: "The room that the messages are for." } },
  // The host inserts the value; this code never sees it.
  secrets: [{ name: "token", description: "the token of the receiver, if it needs one" }],
  send(channel, settings, { alerts, omitted, link }) {
    const lines = alerts.map(({ event, title, summary }) => `${event}: ${title}: ${summary}`);
    if (omitted > 0) lines.push(`and ${omitted} more`);
    const headers = http.hasSecret("token") ? { authorization: `Bearer ${secret("token")}` } : {};
    // A status other than 2xx is a failure, which the host tries again or gives up.
    http.postJson("", { room: settings.room, title: alerts[0].title, text: lines.join("\n"), link }, { headers });
  },
});
