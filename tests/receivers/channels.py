"""Sends one alert that fires, and its end, through each built-in channel. A recording server prints the requests.
Then it gives each channel answers of its service that do and do not mean that the message was taken.

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
# The documented answers of the services to a message that they took.
TAKEN = {
    "webhook": [(200, ""), (204, ""), (202, "thank you"), (200, '{"anything": 1}')],
    "alertmanager": [(200, "")],
    "ntfy": [(200, '{"id": "x1", "event": "message"}')],
    "slack": [(200, "ok"), (200, '{"ok": true}'), (200, '{"success": true}')],
    "discord": [(204, ""), (200, '{"id": "7"}')],
    "telegram": [(200, '{"ok": true, "result": {}}')],
    "matrix": [(200, '{"event_id": "$1"}')],
    "teams": [(202, ""), (200, "1"), (202, '{"runId": "8"}')],
    "gotify": [(200, '{"id": 5, "appid": 1}')],
    "pushover": [(200, '{"status": 1, "request": "r"}')],
    "pagerduty": [(202, '{"status": "success", "dedup_key": "k"}'), (202, '{"message": "Event processed"}'), (202, "")],
}
PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head></html>"
# Answers to a message that was not taken, and whether another attempt can succeed (transient), an operator must correct
# something (misconfigured), or exactly this message is refused (permanent).
NOT_TAKEN = {
    "webhook": [
        (410, "", "misconfigured"),
        (500, "", "transient"),
        (400, "no", "permanent"),
        (200, '{"ok": false}', "misconfigured"),
        (200, '{"success": false}', "misconfigured"),
        (200, "\n\n <!-- portal --> <HTML><body>", "misconfigured"),
        (200, '<p>Sign in</p><form action="/login">', "misconfigured"),
    ],
    "alertmanager": [
        (200, '{"status": "error"}', "misconfigured"),
        (202, "", "misconfigured"),
        (405, "", "misconfigured"),
        (400, "bad", "permanent"),
    ],
    "ntfy": [(200, "{}", "misconfigured"), (200, '{"id": "x", "event": "open"}', "misconfigured"), (400, '{"code": 40009, "error": "invalid request: topic invalid"}', "misconfigured"), (429, "", "transient"), (413, "", "permanent")],
    "slack": [
        (200, "", "misconfigured"),
        (200, "no", "misconfigured"),
        (400, "invalid_token", "misconfigured"),
        (400, "invalid_payload", "permanent"),
        (404, "no_service", "misconfigured"),
        (410, "channel_is_archived", "misconfigured"),
        (200, '{"ok": false, "error": "ratelimited"}', "transient"),
        (400, '{"id": "web.incoming_webhook.channel.app_error", "message": "Couldn\'t find the channel"}', "misconfigured"),
        (200, '{"success": false, "error": "channel archived"}', "misconfigured"),
        (404, '{"success": false, "error": "Invalid integration id or token provided."}', "misconfigured"),
        (401, '{"success": false, "error": "unauthorized"}', "misconfigured"),
        (400, '{"message": "Can not post to deleted channel."}', "misconfigured"),
        (400, '{"success": false, "error": "body is too long"}', "permanent"),
    ],
    "discord": [(200, "{}", "misconfigured"), (200, "", "misconfigured"), (400, '{"code": 160005}', "misconfigured"), (400, '{"webhook_id": ["Value is not snowflake."]}', "misconfigured"), (400, '{"code": 220001}', "misconfigured"), (404, '{"code": 10015}', "misconfigured"), (400, "{}", "permanent")],
    "telegram": [
        (200, "{}", "misconfigured"),
        (400, '{"ok": false, "error_code": 400, "description": "Bad Request: chat not found"}', "misconfigured"),
        (400, '{"ok": false, "error_code": 400, "description": "Bad Request: group chat was upgraded to a supergroup chat", '
              '"parameters": {"migrate_to_chat_id": -1007}}', "misconfigured"),
        (400, '{"ok": false, "error_code": 400, "description": "Bad Request: can\'t parse entities"}', "permanent"),
        (400, '{"ok": false, "error_code": 400, "description": "Bad Request: TOPIC_CLOSED"}', "misconfigured"),
        (429, '{"ok": false, "error_code": 429, "parameters": {"retry_after": 3}}', "transient"),
        (502, '{"ok": false}', "transient"),
        (401, '{"ok": false}', "misconfigured"),
        (400, '{"ok": false, "error_code": 400, "description": "Bad Request: CHANNEL_PRIVATE"}', "misconfigured"),
    ],
    "matrix": [(200, "{}", "misconfigured"), (200, '{"event_id": ""}', "misconfigured"), (403, '{"errcode": "M_FORBIDDEN"}', "misconfigured"), (400, '{"errcode": "M_INVALID_PARAM", "error": "!r is not legal room ID"}', "misconfigured"), (400, '{"errcode": "M_LIMIT_EXCEEDED"}', "transient"), (400, '{"errcode": "M_TOO_LARGE"}', "permanent"), (502, PAGE, "transient")],
    "teams": [
        (400, '{"error": {"code": "WorkflowTriggerIsNotEnabled"}}', "misconfigured"),
        (400, '{"error": {"code": "InvalidCard"}}', "permanent"),
        (400, "Invalid webhook URL", "misconfigured"),
        (202, '{"error": {"code": "WorkflowRunFailed"}}', "misconfigured"),
        (202, "Microsoft Teams endpoint returned HTTP error 429", "transient"),
        (200, "", "misconfigured"),
        (200, "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429 with ContextId x", "transient"),
        (200, "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 413 with ContextId x", "permanent"),
        (200, "Summary or Text is required.", "misconfigured"),
    ],
    "gotify": [(200, '{"id": "x"}', "misconfigured"), (401, '{"error": "Unauthorized"}', "misconfigured"), (400, '{"error": "Bad Request", "errorCode": 401}', "misconfigured"), (400, '{"error": "Bad Request", "errorCode": 400}', "permanent")],
    "pushover": [
        (200, '{"status": 0}', "misconfigured"),
        (400, '{"token": "invalid", "errors": ["application token is invalid"], "status": 0}', "misconfigured"),
        (400, '{"device": "invalid for this user", "errors": ["device name is not valid for user"], "status": 0}', "misconfigured"),
        (400, '{"errors": ["application token is invalid"], "status": 0}', "misconfigured"),
        (400, '{"message": "cannot be blank", "errors": ["message cannot be blank"], "status": 0}', "permanent"),
        (429, '{"status": 0}', "transient"),
    ],
    "pagerduty": [
        (200, "{}", "misconfigured"),
        (202, PAGE, "misconfigured"),
        (202, '{"status": "invalid event"}', "misconfigured"),
        (202, '{"status": "throttle event"}', "misconfigured"),
        (202, "garbage", "misconfigured"),
        (400, '{"message": "Invalid integration key"}', "misconfigured"),
        (400, '{"status": "invalid event", "errors": ["Invalid routing key"]}', "misconfigured"),
        (429, "", "transient"),
    ],
}
# The answer of the server now.
answer = None
OF_THE_TRANSPORT = {"host", "content-length", "user-agent", "accept"}
seen = []


class Recorder(http.server.BaseHTTPRequestHandler):
    def record(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): text for name, text in self.headers.items() if name.lower() not in OF_THE_TRANSPORT}
        seen.append({"request": f"{self.command} {self.path}", "headers": headers, "body": json.loads(body)})
        status, text = answer
        self.send_response(status)
        if status != 204:
            self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_POST = do_PUT = record

    def log_message(self, *_):
        pass


def run(kind, event, answered):
    """Sends an alert. Returns the end of the command, whose output has no secret."""
    global answer
    answer = answered
    path, settings, secrets = CHANNELS[kind]
    command = [PROGRAM, "plugin", "send", kind, "--event", event, "--url", ADDRESS + path, "--settings", json.dumps(settings)]
    environment = dict(os.environ)
    for name, value in secrets.items():
        environment[f"SECRET_{name}"] = value
        command += ["--secret", f"{name}=env:SECRET_{name}"]
    seen.clear()
    sent = subprocess.run(command, env=environment, capture_output=True, text=True)
    for value in secrets.values():
        assert value not in sent.stdout + sent.stderr, f"{kind} shows its secret"
    return sent


def send(kind, event):
    sent = run(kind, event, TAKEN[kind][0])
    assert sent.returncode == 0, sent
    [request] = seen
    # Times differ in each run.
    fixed = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", json.dumps(request, ensure_ascii=False))
    return json.loads(re.sub(r'-\d{13}', "-<time>", re.sub(r": \d{13}\b", ': "<time>"', fixed)))


def check_answers(kind):
    """Returns the number of answers that were checked."""
    for answered in TAKEN[kind]:
        sent = run(kind, "firing", answered)
        assert sent.returncode == 0, f"{kind} did not understand {answered}: {sent.stderr}"
    not_taken = [(200, PAGE, "misconfigured"), *NOT_TAKEN[kind]]
    for status, text, category in not_taken:
        sent = run(kind, "firing", (status, text))
        # A kind that sends each alert in a separate request says only which alert is refused.
        refused = kind == "pagerduty" and category == "permanent"
        said = "refuses the alert" if refused else f", {category}"
        assert sent.returncode == 1 and said in sent.stderr, f"{kind}, {status} {text}: not {category}: {sent}"
    return len(TAKEN[kind]) + len(not_taken)


def main():
    documented = {page.stem for page in pathlib.Path("docs/channels").glob("*.md")} - {"email"}
    assert set(CHANNELS) == documented, f"add these channels here: {documented ^ set(CHANNELS)}"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = {kind: {event: send(kind, event) for event in ["firing", "resolved"]} for kind in CHANNELS}
    answers = sum(check_answers(kind) for kind in CHANNELS)
    server.shutdown()
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    print(text)
    if os.environ.get("UPDATE"):
        EXPECTED.write_text(text)
    expected = json.loads(EXPECTED.read_text())
    wrong = [kind for kind in CHANNELS if found[kind] != expected.get(kind)]
    assert not wrong, f"the requests of {wrong} differ from {EXPECTED.name}: compare them, then run with UPDATE=1"
    print(f"requests of channels: {len(CHANNELS)} passed, 0 failed; {answers} answers understood")


main()
