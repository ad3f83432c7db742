"""Runs Polliwog with two email channels and reads what a real Exim delivered."""

import email
import email.policy
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from service import Host, Service, read, until

STARTTLS, SMTPS = 17587, 17465
PASSWORD = "correct horse battery"


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


def channels(folder, password):
    (folder / "password").write_text(password)
    channel = lambda name, url: f"""
kind = "email"
url = "{url}"
tls = {{ ca_file = "{folder}/cert.pem" }}
secrets = {{ password = {{ file = "{folder}/password" }} }}
settings = {{ from = "Polliwog <polliwog@example.com>", to = ["{name}@example.com"], user = "polliwog" }}
"""
    addresses = {"starttls": f"smtp://localhost:{STARTTLS}", "smtps": f"smtps://localhost:{SMTPS}"}
    return {name: channel(name, url) for name, url in addresses.items()}


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="polliwog-mail-"))
    folder.chmod(0o755)
    service, host = Service(), Host(os.path.abspath(sys.argv[1]), folder)
    host.configure(channels(folder, "not the password"))
    mail = mail_server(folder)
    try:
        until("the mail server", lambda: "daemon started" in read(folder / "exim-main.log"))
        host.start()
        refused = host.command("channel", "test", "starttls")
        assert refused.returncode == 1 and "refuses the user" in refused.stderr, refused
        # The corrected password is read without a restart.
        host.configure(channels(folder, PASSWORD))
        for name in ["starttls", "smtps"]:
            until(f"{name} takes a test", lambda: host.command("channel", "test", name).returncode == 0)
        service.healthy = False
        for name in ["starttls", "smtps"]:
            firing = until("the alert", lambda: messages(folder).get(("Critical: db (shop)", f"{name}@example.com")))
        text = firing.get_body(("plain",)).get_content()
        page = firing.get_body(("html",)).get_content()
        assert "What    connection <refused>" in text and "https://polliwog.example.com/" in text, text
        assert "connection &lt;refused&gt;" in page, page
        service.healthy = True
        over = until("its end", lambda: messages(folder).get(("Resolved: db (shop)", "smtps@example.com")))
        assert over["References"] == firing["References"] and over["Message-ID"] != firing["Message-ID"]
        assert over["From"] == "Polliwog <polliwog@example.com>"
        for message in [firing, over]:
            print(f"From: {message['From']}\nTo: {message['To']}\nSubject: {message['Subject']}\n"
                  f"References: {message['References']}\n\n{message.get_body(('plain',)).get_content()}")
        assert PASSWORD not in read(folder / "host.log")
        print("email: 1 passed, 0 failed")
    except BaseException:
        for log in ["host.log", "exim.log", "exim-main.log", "exim-panic.log"]:
            print(f"== {log}\n{read(folder / log)[-4000:]}", file=sys.stderr)
        raise
    finally:
        host.stop()
        mail.terminate()
        mail.wait()
        service.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


main()
