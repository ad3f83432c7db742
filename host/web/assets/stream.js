// One stream of events for all tabs: what happened is told to each of them.
"use strict";

const ports = new Set();
let events = null;

function listen(names) {
  if (events) return;
  events = new EventSource("/api/v1/events");
  const tell = () => ports.forEach((port) => port.postMessage("changed"));
  events.onopen = tell;
  // The browser connects again by itself, but for an answer that is no stream.
  events.onerror = () => {
    tell();
    if (events.readyState !== EventSource.CLOSED) return;
    events = null;
    setTimeout(() => listen(names), 5000);
  };
  for (const name of names) events.addEventListener(name, tell);
}

onconnect = ({ ports: [port] }) => {
  ports.add(port);
  port.onmessage = ({ data }) => (data === "bye" ? ports.delete(port) : listen(data));
};
