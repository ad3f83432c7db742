#!/bin/sh
# Builds {{kind}}.wasm from app.py and its imports.
set -e
cd "$(dirname "$0")"
# Use the version from requirements.txt if it is installed in .venv.
if [ -x .venv/bin/componentize-py ]; then tool=.venv/bin/componentize-py; else tool=componentize-py; fi
# Types of the contract, for editors.
rm -rf types
"$tool" -d wit -w plugin bindings types
"$tool" -d wit -w plugin componentize app -o {{kind}}.wasm
