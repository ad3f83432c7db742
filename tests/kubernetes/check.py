"""Deployments as resources of a real API server: an operator and an agent of a fleet follow kubectl, and kubectl shows
what they count. Every process listens on loopback and ends with the test."""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PROGRAM, APISERVER = (os.path.abspath(path) for path in sys.argv[1:3])
PATIENCE = 90
ETCD, PEER, API, NATS = 21379, 21380, 21443, 21422
TOKEN = "kubernetes-test-token"
CRD = "deployments.polliwog.dev"


def until(what, read):
    deadline = time.monotonic() + PATIENCE
    last = None
    while time.monotonic() < deadline:
        try:
            last = read()
        except (OSError, subprocess.CalledProcessError) as error:
            last = error
        else:
            if last:
                return last
        time.sleep(0.2)
    raise SystemExit(f"timeout waiting for: {what}; last seen: {last}")


class Service(http.server.BaseHTTPRequestHandler):
    """The polled service: healthy unless it is broken."""

    broken = False

    def do_GET(self):
        body = json.dumps([{"name": "db", "healthy": not Service.broken}]).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = []

        def start(title, *command, **more):
            log = open(folder / f"{title}.log", "w")
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, **more)
            processes.append(process)
            return process

        def kubectl(*arguments, text=None):
            """Runs kubectl with the server of the test."""
            command = ["kubectl", f"--server=https://127.0.0.1:{API}", f"--token={TOKEN}",
                       f"--certificate-authority={folder}/certs/apiserver.crt", *arguments]
            return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

        def resource(name):
            return json.loads(kubectl("get", CRD, name, "-o", "json"))

        def host(title, text):
            (folder / f"{title}.toml").write_text(text)
            return start(title, PROGRAM, "run", "--config", f"{title}.toml", "--data-dir", title)

        try:
            start("etcd", "etcd", "--data-dir", "etcd", "--listen-client-urls", f"http://127.0.0.1:{ETCD}",
                  "--advertise-client-urls", f"http://127.0.0.1:{ETCD}", "--listen-peer-urls", f"http://127.0.0.1:{PEER}",
                  "--initial-advertise-peer-urls", f"http://127.0.0.1:{PEER}", "--initial-cluster",
                  f"default=http://127.0.0.1:{PEER}")
            subprocess.run(["openssl", "genrsa", "-out", "account.key", "2048"], cwd=folder, check=True, capture_output=True)
            (folder / "tokens.csv").write_text(f"{TOKEN},operator,1,system:masters\n")
            (folder / "token").write_text(TOKEN + "\n")
            start("apiserver", APISERVER, f"--etcd-servers=http://127.0.0.1:{ETCD}", f"--secure-port={API}",
                  "--bind-address=127.0.0.1", "--cert-dir=certs", "--token-auth-file=tokens.csv",
                  "--service-account-issuer=https://127.0.0.1", "--service-account-key-file=account.key",
                  "--service-account-signing-key-file=account.key", "--authorization-mode=RBAC")
            until("the API server is ready", lambda: kubectl("get", "--raw", "/readyz") == "ok")
            until("it has the namespace", lambda: kubectl("get", "namespace", "default"))
            service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
            threading.Thread(target=service.serve_forever, daemon=True).start()
            (folder / "nats.conf").write_text(f'listen: "127.0.0.1:{NATS}"\njetstream {{ store_dir: "js"; max_file_store: 10GB }}\n')
            start("nats", "nats-server", "-c", "nats.conf")

            fleet = f'[fleet]\nurl = "nats://127.0.0.1:{NATS}"\n'
            server = '[server]\nlisten = "127.0.0.1:{}"\nmetrics_listen = "127.0.0.1:{}"\n'
            cluster = (f'kubernetes = {{ url = "https://127.0.0.1:{API}", ca_file = "certs/apiserver.crt", '
                       'token_file = "token" }\n')
            operator = server.format(21481, 21482) + fleet + 'role = "operator"\n' + cluster
            running = host("operator", operator)
            host("agent", server.format(21483, 21484) + '[egress]\napi_target_cidrs = ["127.0.0.0/8"]\n' + fleet +
                 'role = "agent"\ndevice = "host-1"\nlabels = { site = "a" }\n')
            metric = lambda: subprocess.run(["curl", "-s", "http://127.0.0.1:21482/metrics"], capture_output=True,
                                            text=True).stdout
            until("the missing resource is shown", lambda: "polliwog_fleet_kubernetes_up 0" in metric())
            crd = subprocess.run([PROGRAM, "fleet", "crd"], capture_output=True, text=True, check=True).stdout
            print(kubectl("apply", "-f", "-", text=crd).strip())
            until("the operator follows it", lambda: "polliwog_fleet_kubernetes_up 1" in metric())

            def apply(interval):
                target = {"id": "web", "kind": "proactive-deps", "url": f"http://127.0.0.1:{service.server_port}/",
                          "interval": interval}
                spec = {"selector": {"matchLabels": {"site": "a"}}, "targets": [target]}
                about = {"name": "web", "namespace": "default"}
                body = {"apiVersion": "polliwog.dev/v1alpha1", "kind": "Deployment", "metadata": about, "spec": spec}
                return kubectl("apply", "-f", "-", text=json.dumps(body))

            apply("5s")
            phase = lambda wanted: lambda: resource("web").get("status", {}).get("phase") == wanted
            until("the agent polls it", phase("succeeded"))
            Service.broken = True
            until("the failure is in the status", phase("failed"))
            status = resource("web")["status"]
            assert status["aggregate"]["failed"] == 1 and status["aggregate"]["lastError"]["device"] == "host-1", status
            print(kubectl("get", CRD).rstrip())
            # An equal status is not written, and what another manager wrote stays.
            Service.broken = False
            until("it recovers", phase("succeeded"))
            kubectl("annotate", CRD, "web", "note=by-hand")
            time.sleep(3)
            version = resource("web")["metadata"]["resourceVersion"]
            time.sleep(5)
            found = resource("web")
            assert found["metadata"]["resourceVersion"] == version, "a status without news was written"
            assert found["metadata"]["annotations"]["note"] == "by-hand", found["metadata"]
            assert found["metadata"]["generation"] == 1, found["metadata"]
            apply("6s")
            until("the change is observed", lambda: resource("web")["status"]["observedGeneration"] == 2)
            # What the schema refuses never arrives; what only the operator can refuse has its reason in the status.
            try:
                kubectl("patch", CRD, "web", "--type=merge", "-p", '{"spec":{"targets":[]}}')
                raise SystemExit("the schema takes a deployment without targets")
            except subprocess.CalledProcessError as error:
                assert "targets" in error.stderr, error.stderr
            both = {"spec": {"once": True, "quorum": 2}}
            kubectl("patch", CRD, "web", "--type=merge", "-p", json.dumps(both))
            why = until("the reason is shown", lambda: resource("web")["status"].get("problem"))
            assert "once and quorum" in why, why
            # Deleted while the operator is away: the finalizer keeps it until the operator is back.
            running.kill()
            running.wait()
            kubectl("delete", CRD, "web", "--wait=false")
            assert resource("web")["metadata"]["deletionTimestamp"]
            host("operator", operator)
            until("the resource is gone", lambda: "web" not in kubectl("get", CRD, "-o", "name"))
            print("the deployments follow the cluster, and the cluster shows what is counted")
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            for process in reversed(processes):
                process.kill()
            for process in processes:
                process.wait()


main()
