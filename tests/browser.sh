#!/bin/sh
# The tests that need a browser: Debian's chromium and chromium-driver, and python3, and npm for axe-core.
set -eu
cd "$(dirname "$0")/.."
cargo build --locked --workspace --bin polliwog
venv=target/browser-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
tests/again.sh "$venv/bin/pip" install --quiet --disable-pip-version-check 'selenium==4.35.0'
axe=target/axe/node_modules/axe-core/axe.min.js
[ -f "$axe" ] || tests/again.sh npm install --loglevel error --no-audit --no-fund --prefix target/axe axe-core@4.14.1
exec "$venv/bin/python" tests/browser/page.py "$PWD/target/debug/polliwog" "$axe"
