// One event stream for all tabs: sends each tab the target of every event, or null for an event about no target.
"use strict";

const ports = new Set();
let events = null;

function listen(names) {
  if (events) return;
  events = new EventSource("/api/v1/events");
  const notify = ({ data }) => {
    const target = (data && JSON.parse(data).serviceId) ?? null;
    ports.forEach((port) => port.postMessage(target));
  };
  events.onopen = notify;
  // The browser reconnects automatically, except after a response that is not a stream.
  events.onerror = (error) => {
    notify(error);
    if (events.readyState !== EventSource.CLOSED) return;
    events = null;
    setTimeout(() => listen(names), 5000);
  };
  for (const name of names) events.addEventListener(name, notify);
}

onconnect = ({ ports: [port] }) => {
  ports.add(port);
  port.onmessage = ({ data }) => (data === "bye" ? ports.delete(port) : listen(data));
};
