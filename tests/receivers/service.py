"""A service whose database breaks, and the host that watches it."""

import http.server
import json
import os
import subprocess
import threading
import time

API, TARGET = 17421, 17422
TOKEN = "ab" * 32


class Service(http.server.ThreadingHTTPServer):
    """Reports one dependency, the database."""

    healthy = True

    def __init__(self):
        super().__init__(("127.0.0.1", TARGET), Report)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Report(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        error = {} if self.server.healthy else {"errorMessage": "connection <refused>"}
        body = json.dumps([{"name": "db", "healthy": self.server.healthy, **error}]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Host:
    """Polliwog in a folder, with the service as its target and the given channels."""

    def __init__(self, program, folder):
        self.program, self.folder, self.process = program, folder, None
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "POLLIWOG_ADMIN_TOKEN": TOKEN,
                            "POLLIWOG_TOKEN": TOKEN, "POLLIWOG_URL": f"http://127.0.0.1:{API}"}

    def configure(self, channels):
        names = json.dumps(list(channels))
        (self.folder / "polliwog.toml").write_text(f"""
[server]
listen = "127.0.0.1:{API}"
metrics_listen = "127.0.0.1:{API + 2}"
[scheduler]
min_interval = "300ms"
base_interval = "300ms"
[alerts]
address = "https://polliwog.example.com"
[[target]]
id = "shop"
kind = "proactive-deps"
url = "http://127.0.0.1:{TARGET}/"
labels = {{ site = "zurich" }}
[[route]]
channels = {names}
group_wait = "0s"
group_interval = "0s"
""" + "".join(f'[[channel]]\nname = "{name}"\n{rest}' for name, rest in channels.items()))

    def start(self):
        self.process = subprocess.Popen([self.program, "run"], cwd=self.folder, env=self.environment,
                                        stdout=open(self.folder / "host.log", "a"), stderr=subprocess.STDOUT)
        until("the host", lambda: self.command("status").returncode == 0)

    def command(self, *words):
        return subprocess.run([self.program, *words], cwd=self.folder, env=self.environment, capture_output=True, text=True)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


def until(what, found):
    deadline = time.monotonic() + 60
    while True:
        if value := found():
            return value
        assert time.monotonic() < deadline, f"timeout waiting for: {what}, found {value!r}"
        time.sleep(0.1)


def read(file):
    return file.read_text() if file.exists() else ""
