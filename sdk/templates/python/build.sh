#!/bin/sh
# Makes {{kind}}.wasm of app.py and what it imports.
set -e
cd "$(dirname "$0")"
# The one that requirements.txt names, where it is installed here.
if [ -x .venv/bin/componentize-py ]; then tool=.venv/bin/componentize-py; else tool=componentize-py; fi
# Types of the contract, for editors.
rm -rf types
"$tool" -d wit -w plugin bindings types
"$tool" -d wit -w plugin componentize app -o {{kind}}.wasm
