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
fetch() { # where command...
    say "$1" "${*:2}"
    (cd "$1" && "$root/tests/again.sh" "${@:2}")
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
    fetch "$1" npm install --prefer-offline --loglevel error --no-audit --no-fund
    run "$1" npm run --silent build
}
build_python() {
    run "$1" python3 -m venv .venv
    fetch "$1" .venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
    run "$1" sh build.sh
}

# An exception in the author's code must be reported as the plugin's fault, with its message, file and line, and without
# output of the language's runtime. Before it, the plugin sends a request that the host signs and authenticates.
throws() { # component, expected message
    local output settings='{"limit": 1}'
    : >accepted
    output=$(cd "$(dirname "$1")" && KEY=s3cr3t-key polliwog poll --plugin "$(basename "$1")" --secret key=env:KEY \
        --url "http://127.0.0.1:$(cat "$work/port")/queues" --settings "$settings" || true)
    if [[ $output == *"panic (plugin)"*"$2"* && $output != *mozalloc* && $output != *initializer* ]]; then
        printf '%s: %s\n' "$1" "$2"
    else
        printf '%s: expected %s, got:\n%s\n' "$1" "$2" "$output" >&2
        return 1
    fi
    grep -qx signed accepted || { echo "$1: the server did not accept the signed request" >&2 && return 1; }
}

# Serves queues, and notes signed requests.
cat >server.py <<'EOF'
import base64, hashlib, hmac, http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"mail": 12}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/page":
            return self.answer("page")
        if self.path == "/login":
            self.send_response(200)
            self.end_headers()
            return self.wfile.write(b'{"refresh": "a-refresh-token"}')
        if self.path == "/logout":
            return self.answer("logout " + self.headers["x-refresh"])
        signature = hmac.new(b"s3cr3t-key", b"1." + body, hashlib.sha256).hexdigest()
        login = "Basic " + base64.b64encode(b"me:s3cr3t-key").decode()
        is_signed = self.headers["x-signature"] == f"v1={signature}" and self.headers["authorization"] == login
        self.answer("signed" if is_signed else f"refused {self.headers}")

    def answer(self, what):
        with open("accepted", "a") as file:
            file.write(what + "\n")
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open("port.new", "w") as file:
    file.write(str(server.server_port))
os.rename("port.new", "port")
server.serve_forever()
EOF
python3 server.py &
server=$!
trap 'kill "$server" "$demo" 2>/dev/null && wait "$demo" || true; rm -rf "$work"' EXIT
until [ -e port ]; do
    kill -0 "$server" || { echo "the server of the test did not start" >&2 && exit 1; }
    sleep 0.1
done

path rust target/wasm32-wasip2/release/queues_rust.wasm
path js queues-js.wasm
path python queues-python.wasm

# A plugin that uses every interface of the contract: both languages must report the same, poll after poll.
everything() { # component
    local component=$1 settings='{"old": 7}'
    : >accepted
    (cd "$(dirname "$component")" && KEY=s3cr3t-key polliwog poll --plugin "$(basename "$component")" \
        --secret key=env:KEY --url "http://127.0.0.1:$(cat "$work/port")/queues" --settings "$settings" --polls 2 --json) \
        >everything.json || [ $? -lt 3 ]
    python3 everything.py "$component" <everything.json
    [ "$(grep -cx signed accepted)" = 2 ] || { echo "$component: the server did not accept signed requests" >&2 && return 1; }
    grep -qx "logout a-refresh-token" accepted || { echo "$component: it did not log out" >&2 && return 1; }
}
cat >everything.py <<'EOF'
import json, sys

polls = json.load(sys.stdin)
keys = ("name", "status", "errorMessage", "runsOn", "skipped", "independent", "link")
found = [[{key: one[key] for key in keys if one.get(key)} for one in poll["dependencies"]] for poll in polls]
rack = {"name": "rack", "status": "ok", "link": "http://rack.example/"}
expected = [
    [{"name": "vm", "status": "warning", "errorMessage": f"poll {number} of limit 7", "runsOn": ["rack"], "independent": True},
     rack, {"name": "old", "status": "ok", "skipped": True}]
    for number in (1, 2)
]
assert found == expected, f"{sys.argv[1]}: {json.dumps(found)}, expected {json.dumps(expected)}"
print(f"{sys.argv[1]}: both polls are as expected")
EOF

sed -i 's|// include polliwog:plugin/with-session|include polliwog:plugin/with-session|' queues-js/wit/plugin.wit queues-python/wit/plugin.wit
# The example of the project, with a mistake in another file.
mkdir -p queues-js/lib
cat >queues-js/lib/util.js <<'JS'
export const deep = (value) => value.missing.more;
JS
{
    echo 'import { deep } from "./lib/util.js";'
    sed 's|    signed();|    signed();\n    if (settings.limit === 1) deep({});|' queues-js/examples/features.js
} >queues-js/plugin.js
run queues-js npm run --silent build
everything queues-js/queues-js.wasm
throws queues-js/queues-js.wasm "value.missing is undefined (lib/util.js:1, called by plugin.js:"
sed 's|^    signed()$|    signed()\n    if settings["limit"] == 1:\n        {}["missing"]|' queues-python/examples/features.py >queues-python/app.py
run queues-python sh build.sh
everything queues-python/queues-python.wasm
throws queues-python/queues-python.wasm "KeyError: 'missing' (app.py, line "

# A notifier that records the progress of each alert.
notifies() { # language component
    run . polliwog plugin new "pages-$1" --lang "$1" --notifier
    "build_$1" "pages-$1"
    : >accepted
    run "pages-$1" polliwog plugin send "$2" --url "http://127.0.0.1:$(cat "$work/port")/page"
    grep -qx page accepted || { echo "pages-$1: the server received no notification" >&2 && return 1; }
}
notifies rust target/wasm32-wasip2/release/pages_rust.wasm
notifies js pages-js.wasm
notifies python pages-python.wasm
echo
echo "all three languages passed"
