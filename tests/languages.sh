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
# output of the language's runtime. Before it, the plugin sends a request that the host signs and authenticates.
throws() { # component, expected message
    local output
    : >accepted
    output=$(cd "$(dirname "$1")" && KEY=s3cr3t-key polliwog poll --plugin "$(basename "$1")" --secret key=env:KEY \
        --url "http://127.0.0.1:$(cat "$work/port")/queues" || true)
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
        signature = hmac.new(b"s3cr3t-key", b"1." + body, hashlib.sha256).hexdigest()
        login = "Basic " + base64.b64encode(b"me:s3cr3t-key").decode()
        is_signed = self.headers["x-signature"] == f"v1={signature}" and self.headers["authorization"] == login
        with open("accepted", "a") as file:
            file.write("signed\n" if is_signed else f"refused {self.headers}\n")
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

mkdir -p queues-js/lib
cat >queues-js/lib/util.js <<'EOF'
import { auth, http, part, sign, signature } from "../polliwog.js";
export function deep(value) {
  const signatures = [sign("v1", "hmac-sha256", { key: [part.secret("key")], input: ["1.", part.body] })];
  const headers = { "x-signature": `v1=${signature("v1")}` };
  http.send("/hook", { method: "POST", body: "text", headers, signatures, authentication: auth.basic("me", "key") });
  return value.missing.more;
}
EOF
sed -i '1i import { deep } from "./lib/util.js";' queues-js/plugin.js
sed -i 's|const queues = entries.*|const queues = deep({});|' queues-js/plugin.js
run queues-js npm run --silent build
throws queues-js/queues-js.wasm "value.missing is undefined (lib/util.js:6, called by plugin.js:"
cat >queues-python/hook.py <<'EOF'
from polliwog import basic_auth, body_part, secret_part, send, sign, signature


def post() -> None:
    signatures = [sign("v1", "hmac-sha256", key=[secret_part("key")], input=["1.", body_part()])]
    headers = {"x-signature": "v1=" + signature("v1")}
    send("/hook", method="POST", body=b"text", headers=headers, signatures=signatures, authentication=basic_auth("me", "key"))
EOF
sed -i 's|^from polliwog import|import hook\nfrom polliwog import|; s|queues = {name: number.*|hook.post(); queues = {}["missing"]|' \
    queues-python/app.py
run queues-python sh build.sh
throws queues-python/queues-python.wasm "KeyError: 'missing' (app.py, line "
echo
echo "all three languages passed"
