"""Sends one alert that fires, and its end, through each built-in channel. A recording server prints the requests.

The requests must be those of requests.json. With UPDATE=1, that file is written: compare it with the documentation of
each service before you commit it.
"""

import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

PROGRAM = os.path.abspath(sys.argv[1])
PORT = 17461
ADDRESS = f"http://127.0.0.1:{PORT}"
EXPECTED = pathlib.Path(__file__).parent / "requests.json"
SECRET = "t0ken-0123456789abcdef"
BOT = "123456:ABC-DEFabcdefghijklmnopqrstuvwxyz"
# The path of the address, the settings and the secrets of each channel.
CHANNELS = {
    "webhook": ("/hook", {}, {}),
    "alertmanager": ("", {}, {}),
    "ntfy": ("", {"topic": "alerts"}, {"token": SECRET}),
    "slack": ("/services/${secret.path}", {}, {"path": SECRET}),
    "discord": ("/api/webhooks/${secret.path}", {}, {"path": SECRET}),
    "telegram": ("", {"chat": "-100"}, {"token": BOT}),
    "matrix": ("", {"room": "!r:example.org"}, {"token": SECRET}),
    "teams": ("/workflows/ID?sig=${secret.sig}", {}, {"sig": SECRET}),
    "gotify": ("", {}, {"token": SECRET}),
    "pushover": ("", {}, {"token": SECRET, "user": "u5er-0123456789abcdef"}),
    "pagerduty": ("", {}, {"routing_key": SECRET}),
}
# The answers of the services. Some report a failure in the body of an answer with status 200.
ANSWERS = {"/services/": b"ok"}
ANSWER = b'{"ok": true, "status": 1, "event_id": "$1"}'
OF_THE_TRANSPORT = {"host", "content-length", "user-agent", "accept"}
seen = []


class Recorder(http.server.BaseHTTPRequestHandler):
    def record(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): text for name, text in self.headers.items() if name.lower() not in OF_THE_TRANSPORT}
        seen.append({"request": f"{self.command} {self.path}", "headers": headers, "body": json.loads(body)})
        answer = next((text for path, text in ANSWERS.items() if self.path.startswith(path)), ANSWER)
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_PUT = record

    def log_message(self, *_):
        pass


def send(kind, event):
    path, settings, secrets = CHANNELS[kind]
    command = [PROGRAM, "plugin", "send", kind, "--event", event, "--url", ADDRESS + path, "--settings", json.dumps(settings)]
    environment = dict(os.environ)
    for name, value in secrets.items():
        environment[f"SECRET_{name}"] = value
        command += ["--secret", f"{name}=env:SECRET_{name}"]
    seen.clear()
    sent = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert sent.returncode == 0, sent
    for value in secrets.values():
        assert value not in sent.stdout + sent.stderr, f"{kind} shows its secret"
    [request] = seen
    # Times differ in each run.
    fixed = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", json.dumps(request, ensure_ascii=False))
    return json.loads(re.sub(r'-\d{13}', "-<time>", re.sub(r": \d{13}\b", ': "<time>"', fixed)))


def main():
    documented = {page.stem for page in pathlib.Path("docs/channels").glob("*.md")} - {"email"}
    assert set(CHANNELS) == documented, f"add these channels here: {documented ^ set(CHANNELS)}"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = {kind: {event: send(kind, event) for event in ["firing", "resolved"]} for kind in CHANNELS}
    server.shutdown()
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    print(text)
    if os.environ.get("UPDATE"):
        EXPECTED.write_text(text)
    expected = json.loads(EXPECTED.read_text())
    wrong = [kind for kind in CHANNELS if found[kind] != expected.get(kind)]
    assert not wrong, f"the requests of {wrong} differ from {EXPECTED.name}: compare them, then run with UPDATE=1"
    print(f"requests of channels: {len(CHANNELS)} passed, 0 failed")


main()
