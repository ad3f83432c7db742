"""Makes the pictures of docs/pages.md: every page of the demo with a simulated past, in light, dark and phone width.

python screens.py PROGRAM FOLDER [NAME...]
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

from PIL import Image
from selenium import webdriver

PROGRAM, FOLDER, WANTED = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
PAGES = {
    "overview": "/", "grouped": "/?group=site", "target": "/targets/shop", "target-year": "/targets/pve-lab?range=400d",
    "dependency": "/dependencies/PostgreSQL%20main", "graph": "/graph", "events": "/events", "alerts": "/alerts", "channels": "/channels", "scheduler": "/scheduler",
    "plugins": "/plugins", "settings": "/settings", "new-target": "/targets/new?kind=http", "wall": "/wall",
    "replay": "/scheduler/replay?range=24h", "status": "/status/public",
    "fleet": "/fleet?label=site", "fleet-deployment": "/fleet/deployments/provider", "fleet-device": "/fleet/devices/basel-1",
}
# Width and height in CSS pixels, and the preferred colours.
MODES = {"light": (1280, 900, "light"), "dark": (1280, 900, "dark"), "phone": (390, 844, "light")}
# The demo's timetable has shown something of everything after this time.
SETTLED = 75
TALLEST = 2400


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/demo.toml", "w") as file:
            file.write('[server]\nlisten = "127.0.0.1:17471"\nmetrics_listen = "127.0.0.1:17472"\n'
                       '[[status_page]]\nname = "public"\ntitle = "Our services"\ntargets = ["shop", "website", "flaky", "phoenix"]\n')
        token = "pictures-" + os.urandom(16).hex()
        host = subprocess.Popen(
            [PROGRAM, "run", "--demo", "--demo-port", "17473", "--history", "400d", "--fleet", "--config", f"{folder}/demo.toml",
             "--data-dir", f"{folder}/data"],
            env={**os.environ, "POLLIWOG_ADMIN_TOKEN": token}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            for line in host.stderr:
                if "pages and API at" in line:
                    break
            time.sleep(SETTLED)
            shoot(token, f"{folder}/profile")
        finally:
            host.terminate()
            host.wait()


def wait_for_cut(token):
    """Waits until the demo cuts off a site, which it does for one minute in three: from the beginning of that minute."""
    request = urllib.request.Request("http://127.0.0.1:17471/api/v1/fleet/deployments/uplink", headers={"Authorization": f"Bearer {token}"})
    for is_cut in [False, True]:
        for _ in range(200):
            with urllib.request.urlopen(request) as answer:
                if (json.load(answer)["failed"] > 0) == is_cut:
                    break
            time.sleep(1)
        else:
            raise SystemExit("the line of a site was not cut within 200 s")


def shoot(token, profile):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync", "--hide-scrollbars",
                 "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    page = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=shutil.which("chromedriver")))
    try:
        page.get(f"http://127.0.0.1:17471/login?token={token}")
        time.sleep(2)
        os.makedirs(FOLDER, exist_ok=True)
        for name, path in PAGES.items():
            if WANTED and name not in WANTED:
                continue
            if name == "fleet":
                wait_for_cut(token)
            for mode, (width, height, colours) in MODES.items():
                page.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                     {"features": [{"name": "prefers-color-scheme", "value": colours}]})
                metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
                page.get(f"http://127.0.0.1:17471{path}")
                time.sleep(1.5)
                wide = page.execute_script("return document.documentElement.scrollWidth")
                assert wide <= width, f"{path} is {wide} wide at a width of {width}"
                tall = page.execute_script("return document.documentElement.scrollHeight")
                metrics["height"] = max(height, min(tall, TALLEST))
                page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
                picture = Image.open(io.BytesIO(page.get_screenshot_as_png()))
                picture.save(f"{FOLDER}/{name}-{mode}.webp", quality=60, method=6)
                if WANTED:
                    picture.save(f"/var/tmp/{name}-{mode}.png")
    finally:
        page.quit()


main()
