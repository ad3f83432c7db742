"""Tests the page in a real browser: log-in by link, every condition's style, live updates, and no foreign resources."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from selenium import webdriver
from selenium.common.exceptions import JavascriptException, NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PATIENCE = 150
PROGRAM, AXE = sys.argv[1:3]
PAGES = ["/", "/?group=estate", "/targets/shop", "/dependencies/redis", "/alerts", "/channels", "/graph", "/events", "/scheduler", "/plugins", "/settings", "/wall",
         "/targets/new", "/targets/new?kind=http", "/targets/new?kind=pve", "/scheduler/replay?range=1h", "/fleet", "/fleet?label=site&state=failed", "/status/public", "/status/nowhere",
         "/targets/nowhere"]
CONDITIONS = ["ok", "warning", "critical", "unknown", "stale", "missing", "skipped"]


# Errors while a document is loading or the page changes during a check.
NOT_YET = (NoSuchElementException, StaleElementReferenceException, JavascriptException)


def until(what, read):
    """Calls `read` until it returns a true value, and returns that. Needed after each click, which only starts loading."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            seen = read()
        except NOT_YET as error:
            seen = None
            last = error.msg
        else:
            last = seen
        if seen:
            return seen
        assert time.monotonic() < deadline, f"timeout waiting for: {what}; last seen: {last!r}"
        time.sleep(0.2)


def browser(profile):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
                 "--disable-background-networking", "--disable-component-update", "--window-size=1200,1500",
                 f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


def check(page, link, pause, restart):
    def follow(text):
        """Clicks a link, which may be replaced by a refresh between finding and clicking."""
        until(f"a link {text}", lambda: page.find_element(By.LINK_TEXT, text).click() or True)

    address = link.split("/login")[0]
    page.get(address + "/")
    assert page.current_url.endswith("/login"), "without a token there is only the log-in page"
    page.get(address + "/graph?around=shop")
    assert page.current_url.endswith("/login?next=%2Fgraph%3Faround%3Dshop"), page.current_url
    page.find_element(By.NAME, "token").send_keys("wrong")
    page.find_element(By.TAG_NAME, "button").click()
    until("a wrong token is refused", lambda: "token is wrong" in page.find_element(By.CLASS_NAME, "problem").text)
    page.find_element(By.NAME, "token").send_keys(link.split("token=")[1], Keys.ENTER)
    until("the log-in returns to the page", lambda: page.current_url == address + "/graph?around=shop")
    page.get(link)
    until("the link logs in", lambda: page.current_url == address + "/")
    colour = "return getComputedStyle(document.body).backgroundColor"
    system = page.execute_script(colour)
    for differs in [True, False, False]:
        page.execute_script("document.getElementById('scheme').click()")
        assert (page.execute_script(colour) != system) == differs, "the colours follow the switch"
    assert "token=" not in page.current_url
    until("the stream is live", lambda: page.find_element(By.ID, "connection").text == "live")
    until("every target is shown", lambda: len(page.find_elements(By.CSS_SELECTOR, "article.row")) == 13)

    # Mark this document, to check at the end that the page was not loaded again.
    page.execute_script("window.mark = 'same document'")
    colours, seen = {}, set()

    def all_conditions():
        for condition in CONDITIONS:
            for item in page.find_elements(By.CSS_SELECTOR, f"#conditions .tag.{condition}")[:1]:
                style = page.execute_script(
                    "const s = getComputedStyle(arguments[0]); return [s.borderTopColor, s.borderTopStyle, s.fontStyle,"
                    " s.backgroundColor, arguments[0].textContent.trim()[0], s.borderTopWidth].join('|')", item)
                colours[condition] = style
                seen.add(condition)
        return seen >= set(CONDITIONS)

    until("every condition is counted", all_conditions)
    assert len(set(colours.values())) == len(CONDITIONS), f"two conditions have the same style: {colours}"
    assert page.execute_script("return window.mark") == "same document"

    # What is wrong comes first, with its reason, and the tab's title counts it.
    wrong = page.find_element(By.ID, "wrong").text
    assert "401 Unauthorized (token required): check the target's secret" in wrong, wrong
    vault = page.find_element(By.CSS_SELECTOR, "#t-vault .tag")
    assert "unreachable" in vault.text, vault.text
    until("the tab counts it", lambda: re.match(r"\([1-9]\d*\) Targets", page.title))
    assert page.find_element(By.ID, "icon").get_attribute("href").endswith("/assets/icon-bad.svg")

    # The filter is in the URL, and works with the keyboard alone.
    ActionChains(page).send_keys("/").perform()
    until("the search has the focus", lambda: page.execute_script("return document.activeElement.name") == "text")
    ActionChains(page).send_keys("payroll", Keys.ENTER).perform()
    until("the search is in the URL", lambda: "text=payroll" in page.current_url)
    rows = lambda: page.execute_script("return [...document.querySelectorAll('article.row')].map((row) => row.id)")
    assert rows() == ["t-aspnet"], rows()
    page.get(address + "/?status=unreachable")
    until("the stream is live", lambda: page.find_element(By.ID, "connection").text == "live")
    assert "t-vault" in rows() and "t-website" not in rows(), rows()
    follow("Reset")
    until("all targets are shown", lambda: len(rows()) == 13)
    page.execute_script("window.mark = 'same document'")

    # Focus and selection stay while the rest is updated.
    page.execute_script("document.querySelector('#t-vault button').focus()")
    failures = "return +document.querySelector('#t-vault .state').textContent.match(/(\\d+) failure/)?.[1]"
    before = page.execute_script(failures)
    page.execute_script("document.querySelector('#t-vault button').click()")
    until("a poll by button fails and is counted", lambda: page.execute_script(failures) > before)
    assert page.execute_script("return document.activeElement.dataset.path").startswith("/api/v1/targets/vault"), "the focus is lost"
    page.execute_script("getSelection().selectAllChildren(document.querySelector('#t-website h3'))")
    text = page.execute_script("return getSelection().toString()")
    sign = "return document.querySelector('#t-flaky').innerHTML"
    old = page.execute_script(sign)
    until("something else is refreshed", lambda: page.execute_script(sign) != old)
    assert text and page.execute_script("return getSelection().toString()") == text, "the selection is lost"

    # A browser allows six connections to a host; more tabs than that must be live.
    first = page.current_window_handle
    for _ in range(7):
        page.switch_to.new_window("tab")
        page.get(address + "/")
        until("one more tab is live", lambda: page.find_element(By.ID, "connection").text == "live")
        old = page.execute_script(sign)
        until("one more tab is refreshed", lambda: page.execute_script(sign) != old)
    page.switch_to.window(first)

    # The page reports a host that hangs.
    pause(True)
    until("the silence is reported", lambda: "does not answer" in page.find_element(By.ID, "connection").text)
    assert "lost" in page.find_element(By.TAG_NAME, "body").get_attribute("class")
    ages = "return [...document.querySelectorAll('time[data-at]')].map((part) => part.textContent).join()"
    old = page.execute_script(ages)
    until("ages continue without the host", lambda: page.execute_script(ages) != old)
    pause(False)
    until("it is live again", lambda: page.find_element(By.ID, "connection").text == "live")

    # The page of one target: its state and why, its past and its commands, updated while it is open.
    page.execute_script("document.querySelector('#t-flaky h3 a').click()")
    until("the target's page is shown", lambda: page.current_url == address + "/targets/flaky")
    until("it is live", lambda: page.find_element(By.ID, "connection").text == "live")
    page.execute_script("window.mark = 'same target'")
    until("its changes are listed", lambda: len(page.find_elements(By.CSS_SELECTOR, "#timeline li")) >= 2)
    picture = "return document.querySelector('#past svg.strip').getAttribute('aria-label')"
    old = page.execute_script(picture)
    until("its strip is updated", lambda: page.execute_script(picture) != old)
    page.execute_script("document.querySelector('#schedule summary').click()")
    old = page.execute_script("return document.querySelector('#schedule p').textContent")
    until("its schedule is updated",
          lambda: page.execute_script("return document.querySelector('#schedule p').textContent") != old)
    assert page.execute_script("return document.querySelector('#schedule details').open"), "an opened part is closed"
    assert page.execute_script("return window.mark") == "same target"
    page.execute_script("document.querySelector('[data-method=PATCH]').click()")
    until("it is paused", lambda: "disabled" in page.find_element(By.CSS_SELECTOR, "#overview .headline").text)
    page.execute_script("document.querySelector('[data-method=PATCH]').click()")
    until("it is polled again", lambda: "disabled" not in page.find_element(By.CSS_SELECTOR, "#overview .headline").text)
    follow("1h")
    until("another time is shown", lambda: page.find_element(By.CSS_SELECTOR, ".ranges [aria-current]").text == "1h")
    follow("Targets")
    until("the list is shown", lambda: page.current_url == address + "/")

    # The graph, around what is critical; a node opens its page.
    follow("Graph")
    until("the graph is drawn", lambda: len(page.find_elements(By.CSS_SELECTOR, "#picture a.node")) > 20)
    page.get(address + "/graph?around=aspnet")
    until("the part around a node is drawn", lambda: 2 <= len(page.find_elements(By.CSS_SELECTOR, "#picture a.node")) < 20)
    assert page.find_element(By.CSS_SELECTOR, "#picture .centre text").text.endswith("Payroll (ASP.NET)")
    page.get(address + "/dependencies/redis")
    until("both targets see it", lambda: len(page.find_elements(By.CSS_SELECTOR, "#seen tbody tr")) == 2)

    # Events arrive while their page is open.
    follow("Events")
    newest = "return document.querySelector('#events li').id"
    old = until("events are listed", lambda: page.execute_script(newest))
    until("a new event is shown", lambda: page.execute_script(newest) != old)

    # The cadence is switched, and back.
    follow("Scheduler")
    until("the scheduler is shown", lambda: page.find_element(By.ID, "breakers"))
    in_use = "return document.querySelector('#cadence li:has(.tag)').textContent.split(':')[0].trim()"
    assert page.execute_script(in_use) == "adaptive"
    page.execute_script("""document.querySelector('[data-body*="fixed"]').click()""")
    until("the cadence is fixed", lambda: page.execute_script(in_use) == "fixed")
    page.execute_script("document.querySelector('#cadence [data-method=DELETE]').click()")
    until("the cadence is adaptive again", lambda: page.execute_script(in_use) == "adaptive")
    follow("Plugins")
    until("every kind is listed", lambda: len(page.find_elements(By.CSS_SELECTOR, "#served tbody tr")) == 17)
    uploads(page)
    by_keyboard(page, address)

    follow("Settings")
    until("the settings page is shown", lambda: page.current_url == address + "/settings")
    cadence = "tr[data-source='default'] td:first-child"
    until("a default is shown as a default",
          lambda: "scheduler.cadence" in [cell.text for cell in page.find_elements(By.CSS_SELECTOR, cadence)])

    # A target is tested, made, tested again, changed and deleted.
    page.get(address + "/")
    follow("Add a target")
    follow("HTTP")
    field = lambda name: until(f"the field {name}", lambda: page.find_element(By.NAME, name))
    field("id").send_keys("mine")
    field("url").send_keys("http://127.0.0.1:17412/shop/nothing")
    field("settings.headers").send_keys("no JSON")
    page.execute_script("document.querySelector('form.fields button').click()")
    result = lambda: page.find_element(By.CLASS_NAME, "made").text
    until("a wrong field is named", lambda: result().startswith("settings.headers is not JSON, such as"))
    field("settings.headers").clear()
    field("settings.headers").send_keys('{"x-from": "a test"}')
    page.execute_script("document.querySelector('form.fields button').click()")
    until("the steps are shown", lambda: "404 Not Found" in result() and "may be reached" in result())
    page.execute_script("document.querySelector('[data-toml]').click()")
    until("it is shown as TOML", lambda: 'headers = { x-from = "a test" }' in result())
    page.execute_script("document.querySelector('form.fields [data-method=POST]').click()")
    follow("its page")
    until("its page is live", lambda: page.find_element(By.ID, "connection").text == "live")
    page.execute_script("document.querySelector('#test button').click()")
    until("its test is shown", lambda: "404 Not Found" in page.find_element(By.CSS_SELECTOR, "#test .made").text)
    page.find_element(By.LINK_TEXT, "Change").click()
    assert field("settings.headers").get_attribute("value") == '{"x-from":"a test"}'
    page.execute_script("document.querySelector('form.fields [data-method=PUT]').click()")
    follow("its page")
    until("it can be deleted", lambda: page.find_element(By.CSS_SELECTOR, "[data-method=DELETE]"))
    page.execute_script("window.confirm = () => true; document.querySelector('[data-method=DELETE]').click()")
    until("its page says that it is gone", lambda: "there is no target" in page.find_element(By.ID, "content").text)
    follow("All targets")
    follow("Settings")

    # A link for a wall: made and shown once, updated without a log-in, revoked.
    page.find_element(By.CSS_SELECTOR, "#new-token [name=name]").send_keys("lobby", Keys.ENTER)
    wall = until("the link is shown", lambda: page.find_element(By.CSS_SELECTOR, ".made code").text)
    assert wall.startswith(address + "/wall?key="), wall
    settings = page.current_window_handle
    page.switch_to.new_window("tab")
    page.get(wall)
    until("the wall is live", lambda: page.find_element(By.ID, "connection").text == "live")
    assert not page.find_elements(By.CSS_SELECTOR, "nav, button, main a"), "the wall has controls"
    until("problems are counted", lambda: re.match(r"[1-9]\d* problems", page.find_element(By.ID, "headline").text))
    screen = page.current_window_handle
    page.switch_to.window(settings)
    until("the token is listed", lambda: "lobby" in page.find_element(By.ID, "tokens").text)
    page.execute_script("window.confirm = () => true; document.querySelector('#tokens [data-method=DELETE]').click()")
    until("it is revoked", lambda: "lobby" not in page.find_element(By.ID, "tokens").text)
    page.switch_to.window(screen)
    until("the screen says so", lambda: "no longer valid" in page.find_element(By.TAG_NAME, "h1").text)
    page.switch_to.window(settings)
    stays_open(page, address, restart)
    # A session that is over leads to the log-in, and from there back.
    page.delete_all_cookies()
    until("the log-in is shown", lambda: page.current_url == address + "/login?next=%2Ftargets%2Fshop")
    page.find_element(By.NAME, "token").send_keys(link.split("token=")[1], Keys.ENTER)
    until("the log-in returns", lambda: page.current_url == address + "/targets/shop")
    accessible(page, address)
    # A wrong token, a page that does not exist, a file that is no plugin, and the time in which the host started again.
    expected = ["401", "nowhere", "favicon", "ERR_CONNECTION_REFUSED", "b.wasm - Failed", "shop.interval - Failed"]
    wrong = [entry["message"] for entry in page.get_log("browser")
             if entry["level"] == "SEVERE" and not any(word in entry["message"] for word in expected)]
    assert not wrong, wrong


def uploads(page):
    """A file is added to the plugin directory, refused with the reason, and removed."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "a-b.wasm")
        file.write_bytes(b"a text")
        made = lambda: page.find_element(By.CSS_SELECTOR, "#add-plugin .made").text
        chosen = lambda: page.find_element(By.CSS_SELECTOR, "#add-plugin [name=file]")
        for content, answer in [(b"a text", "this is not a WebAssembly file"), (b"\0asm\x0d\0\x01\0", "is in the plugin directory")]:
            file.write_bytes(content)
            page.execute_script("document.querySelector('#add-plugin form').reset()")
            chosen().send_keys(str(file))
            page.execute_script("document.querySelector('#add-plugin button').click()")
            until(answer, lambda: answer in made())
    until("it is refused with its name", lambda: "a-b.wasm" in page.find_element(By.ID, "refused").text)
    assert page.find_element(By.CSS_SELECTOR, "#refused .problem").text, "the reason is shown"
    page.execute_script("window.confirm = () => true; document.querySelector('#refused [data-method=DELETE]').click()")
    until("it is removed", lambda: not page.find_elements(By.ID, "refused"))


def by_keyboard(page, address):
    """A target is found, polled and paused with the keyboard alone; the focus is always visible."""
    focused = """const at = document.activeElement, style = getComputedStyle(at);
        return [at.textContent.trim(), style.outlineStyle !== 'none' || style.boxShadow !== 'none', at.outerHTML.slice(0, 200)];"""

    def tab_to(text):
        for _ in range(200):
            ActionChains(page).send_keys(Keys.TAB).perform()
            label, visible, element = page.execute_script(focused)
            # After the last element, the focus leaves the page before it returns to the first.
            assert visible or element.startswith("<body"), f"the focus is not visible: {element}"
            if label == text:
                return
        raise AssertionError(f"the Tab key does not reach {text}")

    page.get(address + "/")
    until("the page is live", lambda: page.find_element(By.ID, "connection").text == "live")
    ActionChains(page).send_keys(Keys.TAB).perform()
    assert page.execute_script(focused)[0] == "Skip to the content"
    ActionChains(page).send_keys(Keys.ENTER).perform()
    assert page.execute_script("return document.activeElement.id") == "content"
    tab_to("Web shop")
    ActionChains(page).send_keys(Keys.ENTER).perform()
    until("the target's page is live", lambda: page.current_url == address + "/targets/shop"
          and page.find_element(By.ID, "connection").text == "live")
    # Its interval is set and unset.
    field = page.find_element(By.CSS_SELECTOR, "#change-settings [name=value]")
    page.execute_script("arguments[0].focus()", field)
    ActionChains(page).send_keys("1y", Keys.ENTER).perform()
    answer = lambda: page.find_element(By.CSS_SELECTOR, "#change-settings .made").text
    until("a wrong interval is refused", lambda: "interval" in answer() and "now" not in answer())
    page.execute_script("arguments[0].value = ''; arguments[0].focus()", field)
    ActionChains(page).send_keys("7s", Keys.ENTER).perform()
    until("the interval is set", lambda: answer().endswith("interval is now 7s."))
    interval = "//section[@id='settings']//tr[.//code[text()='interval']]"
    until("it is shown", lambda: "7s" in page.find_element(By.XPATH, interval).text)
    tab_to("Poll now")
    tab_to("Unset interval")
    ActionChains(page).send_keys(Keys.ENTER).perform()
    until("it is unset", lambda: "7s" not in page.find_element(By.XPATH, interval).text)
    # An update that arrives between two keys leaves the focus where it is.
    tab_to("Pause")
    page.execute_script("show(document.getElementById('content').innerHTML.replaceAll('Poll now', 'Poll at once'))")
    assert page.execute_script(focused)[0] == "Pause"
    page.execute_script("show(document.getElementById('content').innerHTML.replaceAll('Poll at once', 'Poll now'))")
    for label, done in [("Poll now", None), ("Pause", "Resume"), ("Resume", "Poll now")]:
        tab_to(label)
        ActionChains(page).send_keys(Keys.ENTER).perform()
        if done:
            shown = f"//button[normalize-space()='{done}']"
            until(f"{label} works", lambda: page.find_element(By.XPATH, shown))


def stays_open(page, address, restart):
    """A page whose target is removed, or whose host starts again, stays open and says what happened."""
    call = """const [method, path, body, done] = arguments;
        fetch(path, { method, body, headers: { 'X-CSRF-Token': document.querySelector('meta[name=csrf-token]').content } })
            .then((answer) => done(answer.status));"""
    made = '{"id": "passing", "kind": "http", "url": "http://127.0.0.1:17412/"}'
    page.get(address + "/")
    assert page.execute_async_script(call, "POST", "/api/v1/targets", made) == 201
    page.get(address + "/targets/passing")
    until("the new target is polled", lambda: "ok" in page.find_element(By.CSS_SELECTOR, "main .tag").text)
    page.execute_script("window.mark = 'same document'")
    assert page.execute_async_script(call, "DELETE", "/api/v1/targets/passing", None) == 200
    until("the page says that the target is gone",
          lambda: "there is no target" in page.find_element(By.CSS_SELECTOR, "main .problem").text)
    page.get(address + "/targets/shop")
    until("the page is live", lambda: page.find_element(By.ID, "connection").text == "live")
    page.execute_script("window.mark = 'same document'")
    before = page.find_element(By.ID, "polls").text
    restart()
    until("the page is live after a restart", lambda: page.find_element(By.ID, "connection").text == "live")
    until("the page shows polls of the new host", lambda: page.find_element(By.ID, "polls").text not in (before, ""))
    assert page.execute_script("return window.mark") == "same document"


def accessible(page, address):
    """Checks every page by axe's rules for WCAG 2.2 AA, in light and dark, at the width of a phone and of a desktop."""
    with open(AXE, encoding="utf-8") as file:
        rules = file.read()
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    for width, scheme in [(1200, "light"), (1200, "dark"), (390, "light")]:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                             {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
        for path in PAGES:
            page.get(address + path)
            page.execute_script(rules)
            found = page.execute_async_script(
                "const [tags, done] = arguments; axe.run({ runOnly: tags }).then(({ violations }) => done(violations"
                ".map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html + ' ' + n.failureSummary).join('; ')}`)))", tags)
            assert not found, f"{path} at {width} {scheme}: " + "\n".join(found)
            wide = page.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, f"{path} is {wide} wide on a screen of {width}"
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def main():
    folder = tempfile.mkdtemp(prefix="polliwog-browser-")
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "POLLIWOG_SERVER_LISTEN": "127.0.0.1:17411",
                   "POLLIWOG_SERVER_METRICS_LISTEN": "127.0.0.1:17410"}
    with open(os.path.join(folder, "polliwog.toml"), "w", encoding="utf-8") as file:
        file.write('[[status_page]]\nname = "public"\ntargets = ["shop", "website", "vault", "unknown"]\n'
                   '[fleet]\nrole = "both"\nurl = "nats://127.0.0.1:1"\ndevice = "this-host"\n')

    def start():
        return subprocess.Popen([PROGRAM, "run", "--demo", "--demo-port", "17412"], cwd=folder, env=environment,
                                stdout=subprocess.PIPE, stderr=log, text=True)

    def restart():
        nonlocal host
        host.terminate()
        host.wait()
        host = start()

    log = open(os.path.join(folder, "host.log"), "w+", encoding="utf-8")
    host, page = start(), None
    try:
        links = (re.search(r"http://\S+/login\?token=\w+", line) for line in host.stdout)
        link = next(filter(None, links), None)
        if not link:
            log.seek(0)
            raise SystemExit(f"the host ended before it listened: {log.read()}")
        link = link.group()
        page = browser(os.path.join(folder, "profile"))
        check(page, link, lambda on: host.send_signal(signal.SIGSTOP if on else signal.SIGCONT), restart)
        print("the page: 1 passed, 0 failed")
    finally:
        if page:
            page.quit()
        host.send_signal(signal.SIGCONT)
        host.terminate()
        host.wait()
        shutil.rmtree(folder, ignore_errors=True)


main()
