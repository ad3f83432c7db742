"""Evaluates docs/monitoring with a real Prometheus that scrapes the running demo: each panel's queries answer, and each
alert fires when its fault is simulated.

python check.py PROGRAM
"""

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

PROGRAM = os.path.abspath(sys.argv[1])
MONITORING = Path(__file__).resolve().parent.parent.parent / "docs" / "monitoring"
PATIENCE = 300
PROMETHEUS = 17483
# The demo has no plugin that fails.
MAY_BE_EMPTY = {"Plugin faults"}
# Tested with simulated series in alerts_test.yml. A fleet needs a broker, which this test does not.
ELSEWHERE = {"PluginQuarantined", "FleetDeploymentFailed", "FleetDevicesNotHeard", "FleetBrokerDown", "FleetReportsWait",
             "FleetWithoutOperator", "FleetDevicesUnassigned", "FleetKubernetesDown", "FleetRecordsRefused"}


def until(what, read):
    deadline = time.monotonic() + PATIENCE
    last = None
    while True:
        try:
            last = read()
        except OSError as error:
            last = error
        else:
            if last:
                return last
        assert time.monotonic() < deadline, f"timeout waiting for: {what}; last: {last!r}"
        time.sleep(0.5)


def api(path, **query):
    with urlopen(f"http://127.0.0.1:{PROMETHEUS}/api/v1/{path}?{urlencode(query)}", timeout=10) as answer:
        body = json.load(answer)
    assert body["status"] == "success", body
    return body["data"]


def firing():
    return {alert["labels"]["alertname"] for alert in api("alerts")["alerts"] if alert["state"] == "firing"}


def expressions():
    """The queries of each panel, with the variables that Grafana fills in."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "30s").replace("$kind", ".*").replace("$target", ".*")
            assert "$" not in query, f"{panel['title']}: an unknown variable in {query}"
            yield panel["title"], query


def check_panels():
    found, titles = {}, set()
    for title, query in expressions():
        titles.add(title)
        found[title] = found.get(title, 0) + len(api("query", query=query)["result"])
    empty = {title for title in titles if not found[title]} - MAY_BE_EMPTY
    assert not empty, f"no query of these panels has a result: {empty}"
    return len(titles)


def silent_server():
    """A server that accepts connections and never answers."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    kept = []

    def accept():
        while True:
            try:
                kept.append(server.accept())
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    return server


def overdue(folder, port):
    """A configuration whose polls hang in all slots, so that others are late."""
    targets = "".join(
        f'[[target]]\nid = "hang{n}"\nkind = "http"\nurl = "http://127.0.0.1:{port}/{n}"\ninterval = "1s"\nmax_interval = "1s"\n'
        'timeout = "20s"\n' for n in range(12))
    (folder / "late.toml").write_text(
        '[server]\nlisten = "127.0.0.1:17484"\nmetrics_listen = "127.0.0.1:17485"\n'
        '[scheduler]\nmin_interval = "1s"\nbase_interval = "1s"\nmax_interval = "1s"\nmax_in_flight = 1\n' + targets)
    return ["run", "--config", str(folder / "late.toml"), "--data-dir", str(folder / "late")]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The same rules with shorter times, because a test that waits for minutes is not run.
        rules = (MONITORING / "alerts.yml").read_text()
        known = set(re.findall(r"- alert: (\w+)", rules))
        rules = re.sub(r"for: \w+", "for: 1s", rules).replace("> 900", "> 5").replace("[5m]", "[20s]")
        (folder / "alerts.yml").write_text(rules)
        (folder / "prometheus.yml").write_text(
            "global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [alerts.yml]\nscrape_configs:\n"
            "  - { job_name: polliwog, honor_labels: true, static_configs: [{ targets: ['127.0.0.1:17481', '127.0.0.1:17485'] }] }\n")
        settings = '[server]\nlisten = "127.0.0.1:17480"\nmetrics_listen = "127.0.0.1:17481"\n'
        config = folder / "demo.toml"
        config.write_text(settings)
        server = silent_server()
        processes = []

        def start(*command):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
            processes.append(process)
            return process

        try:
            demo = start(PROGRAM, "run", "--demo", "--demo-port", "17486", "--config", str(config), "--data-dir", "data")
            late = start(PROGRAM, *overdue(folder, server.getsockname()[1]))
            start("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb",
                  f"--web.listen-address=127.0.0.1:{PROMETHEUS}", "--log.level=error")
            until("Prometheus scrapes", lambda: api("query", query="polliwog_target_up"))
            fired = set()

            def have_fired(*wanted):
                fired.update(firing())
                return fired >= set(wanted)

            estate = ["TargetUnreachable", "DependencyCritical", "DependencyMissing", "BreakerOpen", "TargetStale", "DeadLetter",
                      "PolliwogPollsAreLate"]
            until(f"{estate} fire", lambda: have_fired(*estate))
            panels = check_panels()
            host = {"PolliwogDown", "PolliwogConfiguration", "PluginRefused", "PolliwogDatabaseFails"}
            # Before the first scrape, nothing was up.
            fired -= host
            assert not firing() & host, firing()
            config.write_text(settings + "[scheduler]\nunknown = 1\n")
            (folder / "data" / "plugins" / "broken.wasm").write_bytes(b"not a component")
            until("faults of the host fire", lambda: have_fired("PolliwogConfiguration", "PluginRefused"))
            lock = sqlite3.connect(folder / "data" / "polliwog.db", isolation_level=None)
            lock.execute("BEGIN IMMEDIATE")
            until("a database that takes nothing fires", lambda: have_fired("PolliwogDatabaseFails"))
            lock.execute("ROLLBACK")
            for process in (demo, late):
                process.terminate()
                process.wait()
            until("the end of the hosts fires", lambda: have_fired("PolliwogDown"))
            missing = known - fired - ELSEWHERE
            assert not missing, f"these alerts did not fire: {missing}"
            print(f"{panels} panels answer; {len(fired)} of {len(known)} alerts fired")
        finally:
            for process in processes:
                process.terminate()
                process.wait()
            server.close()


main()
