#!/bin/sh
# The tests that need a browser: Debian's chromium and chromium-driver, and python3.
set -eu
cd "$(dirname "$0")/.."
cargo build --locked -p polliwog
venv=target/browser-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'selenium==4.35.0'
exec "$venv/bin/python" tests/browser/page.py "$PWD/target/debug/polliwog"
