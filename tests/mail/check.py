"""Runs Polliwog with two email channels and reads what a real Exim delivered."""

import email
import email.policy
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = os.path.abspath(sys.argv[1])
STARTTLS, SMTPS, API, TARGET = 17587, 17465, 17421, 17422
PASSWORD = "correct horse battery"
healthy = True


class Target(http.server.BaseHTTPRequestHandler):
    """A service with one dependency."""

    def do_GET(self):
        db = {"name": "db", "healthy": healthy, **({} if healthy else {"errorMessage": "connection <refused>"})}
        body = json.dumps([db]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def until(what, found):
    deadline = time.monotonic() + 60
    while True:
        if value := found():
            return value
        assert time.monotonic() < deadline, f"timeout waiting for: {what}"
        time.sleep(0.1)


def read(file):
    return file.read_text() if file.exists() else ""


def messages(folder):
    """The delivered messages by their subject."""
    files = (folder / "mail" / "new").glob("*")
    parsed = [email.message_from_bytes(file.read_bytes(), policy=email.policy.default) for file in files]
    return {(message["Subject"], message["To"]): message for message in parsed}


def mail_server(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                    "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"], check=True, capture_output=True)
    (folder / "exim.conf").write_text(f"""
primary_hostname = localhost
spool_directory = {folder}/spool
log_file_path = {folder}/exim-%s.log
local_interfaces = 127.0.0.1
daemon_smtp_ports = {STARTTLS} : {SMTPS}
tls_on_connect_ports = {SMTPS}
tls_advertise_hosts = *
tls_certificate = {folder}/cert.pem
tls_privatekey = {folder}/key.pem
auth_advertise_hosts = ${{if eq{{$tls_in_cipher}}{{}}{{}}{{*}}}}
deliver_drop_privilege = true
acl_smtp_rcpt = recipients
begin acl
recipients:
  accept authenticated = *
  deny message = log in first
begin routers
all:
  driver = accept
  transport = keep
begin transports
keep:
  driver = appendfile
  directory = {folder}/mail
  maildir_format
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_condition = ${{if and{{{{eq{{$auth2}}{{polliwog}}}}{{eq{{$auth3}}{{{PASSWORD}}}}}}}}}
  server_set_id = $auth2
""")
    for path in [folder, folder / "cert.pem", folder / "key.pem"]:
        shutil.chown(path, "Debian-exim", "Debian-exim")
    (folder / "exim.conf").chmod(0o644)
    return subprocess.Popen(["exim4", "-C", f"{folder}/exim.conf", "-bdf", "-q1m"], stdout=open(folder / "exim.log", "w"),
                            stderr=subprocess.STDOUT)


def configuration(folder, password):
    (folder / "password").write_text(password)
    channel = lambda name, url: f"""
[[channel]]
name = "{name}"
kind = "email"
url = "{url}"
tls = {{ ca_file = "{folder}/cert.pem" }}
secrets = {{ password = {{ file = "{folder}/password" }} }}
settings = {{ from = "Polliwog <polliwog@example.com>", to = ["{name}@example.com"], user = "polliwog" }}
"""
    (folder / "polliwog.toml").write_text(f"""
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
{channel("starttls", f"smtp://localhost:{STARTTLS}")}
{channel("smtps", f"smtps://localhost:{SMTPS}")}
[[route]]
channels = ["starttls", "smtps"]
group_wait = "0s"
group_interval = "0s"
""")


def main():
    global healthy
    folder = pathlib.Path(tempfile.mkdtemp(prefix="polliwog-mail-"))
    folder.chmod(0o755)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", TARGET), Target)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    mail = mail_server(folder)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "POLLIWOG_ADMIN_TOKEN": "ab" * 32,
                   "POLLIWOG_TOKEN": "ab" * 32, "POLLIWOG_URL": f"http://127.0.0.1:{API}"}
    command = lambda *words: subprocess.run([PROGRAM, *words], cwd=folder, env=environment, capture_output=True, text=True)
    configuration(folder, "not the password")
    host = subprocess.Popen([PROGRAM, "run"], cwd=folder, env=environment, stdout=open(folder / "host.log", "w"),
                            stderr=subprocess.STDOUT)
    try:
        until("the mail server", lambda: "daemon started" in read(folder / "exim-main.log"))
        until("the host", lambda: command("status").returncode == 0)
        refused = command("channel", "test", "starttls")
        assert refused.returncode == 1 and "refuses the user" in refused.stderr, refused
        # The corrected password is read without a restart.
        configuration(folder, PASSWORD)
        for name in ["starttls", "smtps"]:
            until(f"{name} takes a test", lambda: command("channel", "test", name).returncode == 0)
        healthy = False
        for name in ["starttls", "smtps"]:
            firing = until("the alert", lambda: messages(folder).get(("Critical: db (shop)", f"{name}@example.com")))
        text = firing.get_body(("plain",)).get_content()
        page = firing.get_body(("html",)).get_content()
        assert "What    connection <refused>" in text and "https://polliwog.example.com/" in text, text
        assert "connection &lt;refused&gt;" in page, page
        healthy = True
        over = until("its end", lambda: messages(folder).get(("Resolved: db (shop)", "smtps@example.com")))
        assert over["References"] == firing["References"] and over["Message-ID"] != firing["Message-ID"]
        assert over["From"] == "Polliwog <polliwog@example.com>"
        print(f"From: {firing['From']}\nTo: {firing['To']}\nSubject: {firing['Subject']}\n\n{text}")
        assert PASSWORD not in (folder / "host.log").read_text()
        print("email: 1 passed, 0 failed")
    except BaseException:
        for log in ["host.log", "exim.log", "exim-main.log", "exim-panic.log"]:
            print(f"== {log}\n{read(folder / log)[-4000:]}", file=sys.stderr)
        raise
    finally:
        host.terminate()
        host.wait()
        mail.terminate()
        mail.wait()
        server.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


main()
