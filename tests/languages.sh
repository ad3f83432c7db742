#!/usr/bin/env bash
# For each language, creates, builds, tests and inspects a project and polls the demo with it. Needs node, npm and
# python3 with venv, and their registries. PROFILE=release measures the release build.
set -euo pipefail
. "$(dirname "$0")/demo.sh"
target="$root/target/languages"

say() { printf '\n%s$ %s\n' "$1" "$2"; }
run() { # where command...
    say "$1" "${*:2}"
    (cd "$1" && "${@:2}")
}

path() { # language component build...
    local language=$1 component=$2 name="queues-$1" began=$SECONDS
    run . polliwog plugin new "$name" --lang "$language"
    "build_$language" "$name"
    run "$name" polliwog plugin test
    run "$name" polliwog plugin inspect "$component" | head -8
    run "$name" polliwog poll --plugin "$component" --url http://127.0.0.1:7412/queues || [ $? -lt 3 ]
    run "$name" polliwog plugin bench . --polls 200
    # A report that differs from the golden report must fail.
    sed -i 's/"mail": 12/"mail": 13/; s/\\"mail\\":12/\\"mail\\":1300/' "$name/recordings/queues.json"
    if run "$name" polliwog plugin test; then
        echo "a report that differs from the golden report passed" >&2
        exit 1
    fi
    printf '\n%s: %s s from nothing to a plugin that polls\n' "$language" "$((SECONDS - began))"
}

build_rust() {
    # A previous run's target folder speeds up the build.
    CARGO_TARGET_DIR="$target" run "$1" cargo test --quiet
    CARGO_TARGET_DIR="$target" run "$1" cargo build --quiet --release --target wasm32-wasip2
    mkdir -p "$1/target/wasm32-wasip2/release"
    cp "$target/wasm32-wasip2/release/${1//-/_}.wasm" "$1/target/wasm32-wasip2/release/"
}
build_js() {
    run "$1" npm install --silent --no-audit --no-fund
    run "$1" npm run --silent build
}
build_python() {
    run "$1" python3 -m venv .venv
    run "$1" .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
    run "$1" sh build.sh
}

# An exception in the author's code must be reported as the plugin's fault, with its message, file and line, and without
# output of the language's runtime.
throws() { # component, expected message
    local output
    output=$(cd "$(dirname "$1")" && polliwog poll --plugin "$(basename "$1")" --url http://127.0.0.1:7412/queues || true)
    if [[ $output == *"panic (plugin)"*"$2"* && $output != *mozalloc* && $output != *initializer* ]]; then
        printf '%s: %s\n' "$1" "$2"
    else
        printf '%s: expected %s, got:\n%s\n' "$1" "$2" "$output" >&2
        return 1
    fi
}

path rust target/wasm32-wasip2/release/queues_rust.wasm
path js queues-js.wasm
path python queues-python.wasm

mkdir -p queues-js/lib
echo 'export const deep = (value) => value.missing.more;' >queues-js/lib/util.js
sed -i '1i import { deep } from "./lib/util.js";' queues-js/plugin.js
sed -i 's|const queues = entries.*|const queues = deep({});|' queues-js/plugin.js
run queues-js npm run --silent build
throws queues-js/queues-js.wasm "value.missing is undefined (lib/util.js:1, called by plugin.js:"
sed -i 's|queues = {name: number.*|queues = {}["missing"]|' queues-python/app.py
run queues-python sh build.sh
throws queues-python/queues-python.wasm "KeyError: 'missing' (app.py, line "
echo
echo "all three languages passed"
