#!/bin/sh
# Makes {{kind}}.wasm of app.py and what it imports.
set -e
cd "$(dirname "$0")"
if command -v componentize-py >/dev/null; then tool=componentize-py; else tool=.venv/bin/componentize-py; fi
"$tool" -d wit -w plugin componentize --stub-wasi app -o {{kind}}.wasm
