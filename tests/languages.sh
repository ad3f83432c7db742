#!/usr/bin/env bash
# A newcomer's path in each language: a project is made, built, tested, inspected and polls the demo. Needs node, npm and
# python3 with venv, and their registries. PROFILE=release measures what users see.
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
    # What differs from the golden report is shown, and is a failure.
    sed -i 's/"mail": 12/"mail": 13/; s/\\"mail\\":12/\\"mail\\":1300/' "$name/recordings/queues.json"
    if run "$name" polliwog plugin test; then
        echo "a report that is different passed" >&2
        exit 1
    fi
    printf '\n%s: %s s from nothing to a plugin that polls\n' "$language" "$((SECONDS - began))"
}

build_rust() {
    # Built before in part, where the folder is still there.
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

# An exception in a file of the author's own reaches him with its message, file and line, is the plugin's fault, and nothing
# that the language's runtime says is added to it.
throws() { # component what is to be read
    local said
    said=$(cd "$(dirname "$1")" && polliwog poll --plugin "$(basename "$1")" --url http://127.0.0.1:7412/queues || true)
    if [[ $said == *"panic (plugin)"*"$2"* && $said != *mozalloc* && $said != *initializer* ]]; then
        printf '%s: %s\n' "$1" "$2"
    else
        printf '%s should say %s, and says:\n%s\n' "$1" "$2" "$said" >&2
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
echo "all three languages"
