"""The page in a real browser: it logs in by the link, shows every look, keeps itself up to date, and loads nothing foreign."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from selenium import webdriver
from selenium.common.exceptions import JavascriptException, NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By

PATIENCE = 150
PROGRAM = sys.argv[1]
LOOKS = ["ok", "warning", "critical", "unknown", "stale", "missing", "skipped"]


# What a look says of a document that is still on its way, or that the page changed while it was looked at.
NOT_YET = (NoSuchElementException, StaleElementReferenceException, JavascriptException)


def until(what, look):
    """Looks until what it sees is true; a click only begins to load the next document, so each look after one goes through here."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            seen = look()
        except NOT_YET as error:
            seen = None
            last = error.msg
        else:
            last = seen
        if seen:
            return seen
        assert time.monotonic() < deadline, f"never: {what}; last seen: {last!r}"
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


def check(page, link, pause):
    address = link.split("/login")[0]
    page.get(address + "/")
    assert page.current_url.endswith("/login"), "without a token there is only the log-in page"
    page.find_element(By.NAME, "token").send_keys("wrong")
    page.find_element(By.TAG_NAME, "button").click()
    until("a wrong token is refused", lambda: "token is wrong" in page.find_element(By.CLASS_NAME, "problem").text)
    page.get(link)
    until("the link logs in", lambda: page.current_url == address + "/")
    assert "token=" not in page.current_url
    until("the stream is live", lambda: page.find_element(By.ID, "connection").text == "live")
    until("every target is there", lambda: len(page.find_elements(By.CSS_SELECTOR, "section.target")) == 13)

    # Nothing is loaded again: a mark that only this document carries is there at the end.
    page.execute_script("window.mark = 'same document'")
    colours, seen = {}, set()

    def looks():
        for look in LOOKS:
            for item in page.find_elements(By.CSS_SELECTOR, f"li.dependency.{look}")[:1]:
                style = page.execute_script(
                    "const s = getComputedStyle(arguments[0]); return [s.borderTopColor, s.borderTopStyle, s.fontStyle,"
                    " s.backgroundColor, arguments[0].querySelector('.sign').textContent, s.borderTopWidth].join('|')", item)
                colours[look] = style
                seen.add(look)
        return seen >= set(LOOKS)

    until("every look is seen", looks)
    assert len(set(colours.values())) == len(LOOKS), f"two looks are alike: {colours}"
    assert page.execute_script("return window.mark") == "same document"

    # What cannot be polled is as loud as what is critical, and the tab says it too.
    vault = page.find_element(By.CSS_SELECTOR, "#t-vault h2 .tag")
    assert "unreachable" in vault.text, vault.text
    until("the tab counts it", lambda: re.match(r"\([1-9]\d*\) Polliwog", page.title))
    assert page.find_element(By.ID, "icon").get_attribute("href").endswith("/assets/icon-bad.svg")

    # Focus and selection stay while the rest is kept up to date.
    page.execute_script("document.querySelector('[data-poll=vault]').focus()")
    failures = "return +document.querySelector('#t-vault .state').textContent.match(/(\\d+) failure/)?.[1]"
    before = page.execute_script(failures)
    page.execute_script("document.querySelector('[data-poll=vault]').click()")
    until("a poll by hand fails again and is counted", lambda: page.execute_script(failures) > before)
    assert page.execute_script("return document.activeElement.dataset.poll") == "vault", "the focus is lost"
    page.execute_script("getSelection().selectAllChildren(document.querySelector('#t-website h2'))")
    text = page.execute_script("return getSelection().toString()")
    sign = "return document.querySelector('#t-flaky').innerHTML"
    old = page.execute_script(sign)
    until("something else is refreshed", lambda: page.execute_script(sign) != old)
    assert text and page.execute_script("return getSelection().toString()") == text, "the selection is lost"

    # A browser allows six connections to a host; more tabs than that are live all the same.
    first = page.current_window_handle
    for _ in range(7):
        page.switch_to.new_window("tab")
        page.get(address + "/")
        until("one more tab is live", lambda: page.find_element(By.ID, "connection").text == "live")
        old = page.execute_script(sign)
        until("one more tab is refreshed", lambda: page.execute_script(sign) != old)
    page.switch_to.window(first)

    # A host that hangs is told of, loudly.
    pause(True)
    until("silence is told", lambda: "does not answer" in page.find_element(By.ID, "connection").text)
    assert "lost" in page.find_element(By.TAG_NAME, "body").get_attribute("class")
    ages = "return [...document.querySelectorAll('time[data-at]')].map((part) => part.textContent).join()"
    old = page.execute_script(ages)
    until("ages go on without the host", lambda: page.execute_script(ages) != old)
    pause(False)
    until("it is live again", lambda: page.find_element(By.ID, "connection").text == "live")

    page.find_element(By.LINK_TEXT, "Settings").click()
    until("the settings are there", lambda: page.current_url == address + "/settings")
    cadence = "tr[data-source='default'] td:first-child"
    until("a default is shown as one",
          lambda: "scheduler.cadence" in [cell.text for cell in page.find_elements(By.CSS_SELECTOR, cadence)])
    wrong = [entry["message"] for entry in page.get_log("browser")
             if entry["level"] == "SEVERE" and "401" not in entry["message"] and "favicon" not in entry["message"]]
    assert not wrong, wrong


def main():
    folder = tempfile.mkdtemp(prefix="polliwog-browser-")
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "POLLIWOG_SERVER_LISTEN": "127.0.0.1:17411",
                   "POLLIWOG_SERVER_METRICS_LISTEN": "127.0.0.1:19091"}
    host = subprocess.Popen([PROGRAM, "run", "--demo", "--demo-port", "17412"], cwd=folder, env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    page = None
    try:
        link = next(filter(None, (re.search(r"http://\S+/login\?token=\w+", line) for line in host.stdout))).group()
        page = browser(os.path.join(folder, "profile"))
        check(page, link, lambda on: host.send_signal(signal.SIGSTOP if on else signal.SIGCONT))
        print("the page: 1 passed, 0 failed")
    finally:
        if page:
            page.quit()
        host.send_signal(signal.SIGCONT)
        host.terminate()
        host.wait()
        shutil.rmtree(folder, ignore_errors=True)


main()
