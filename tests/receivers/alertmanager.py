"""Runs Polliwog with a channel to a real Alertmanager, and reads the alerts that it has."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request

from service import Host, Service, read, until

PORT = 17493
ADDRESS = f"http://127.0.0.1:{PORT}"


def alerts():
    with urllib.request.urlopen(f"{ADDRESS}/api/v2/alerts?active=true", timeout=10) as answer:
        return json.load(answer)


def is_ready():
    try:
        return urllib.request.urlopen(f"{ADDRESS}/-/ready", timeout=10).status == 200
    except OSError:
        return False


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="polliwog-alertmanager-"))
    (folder / "alertmanager.yml").write_text("route: { receiver: none }\nreceivers: [{ name: none }]\n")
    service, host = Service(), Host(os.path.abspath(sys.argv[1]), folder)
    host.configure({"alertmanager": f'kind = "alertmanager"\nurl = "{ADDRESS}"\n'})
    alertmanager = subprocess.Popen(["prometheus-alertmanager", f"--config.file={folder}/alertmanager.yml",
                                     f"--storage.path={folder}/data", f"--web.listen-address=127.0.0.1:{PORT}",
                                     "--cluster.listen-address="], stdout=open(folder / "alertmanager.log", "w"),
                                    stderr=subprocess.STDOUT)
    try:
        until("Alertmanager", is_ready)
        host.start()
        assert alerts() == []
        service.healthy = False
        [alert] = until("the alert", alerts)
        labels = {name: text for name, text in alert["labels"].items() if name != "polliwog"}
        assert labels == {"alertname": "dependency", "target": "shop", "target_kind": "proactive-deps",
                          "dependency": "db", "site": "zurich"}, alert
        assert alert["annotations"] == {"title": "db", "summary": "connection <refused>", "status": "critical"}, alert
        assert alert["generatorURL"] == "https://polliwog.example.com/targets/shop", alert
        print(json.dumps(alert, indent=2))
        # After a kill and a restart, the alert keeps its identity, is not duplicated, and ends.
        host.process.kill()
        host.process.wait()
        host.start()
        assert host.command("channel", "test", "alertmanager").returncode == 0
        fingerprints = lambda: {held["fingerprint"] for held in alerts()}
        [tested] = until("the test", lambda: fingerprints() - {alert["fingerprint"]})
        assert fingerprints() == {alert["fingerprint"], tested}, alerts()
        service.healthy = True
        until("its end", lambda: fingerprints() <= {tested})
        print("alertmanager: 1 passed, 0 failed")
    except BaseException:
        for log in ["host.log", "alertmanager.log"]:
            print(f"== {log}\n{read(folder / log)[-4000:]}", file=sys.stderr)
        raise
    finally:
        host.stop()
        alertmanager.terminate()
        alertmanager.wait()
        service.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


main()
