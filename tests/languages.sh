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
    local output settings='{"fails": true, "limit": 1}'
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
    grep -qx "logout no refresh" accepted || { echo "$component: it did not log out" >&2 && return 1; }
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

mkdir -p queues-js/lib
cat >queues-js/lib/util.js <<'EOF'
import { auth, http, part, sign, signature } from "../polliwog.js";
export function post() {
  const signatures = [sign("v1", "hmac-sha256", { key: [part.secret("key")], input: ["1.", part.body] })];
  const headers = { "x-signature": `v1=${signature("v1")}` };
  http.send("/hook", { method: "POST", body: "text", headers, signatures, authentication: auth.basic("me", "key") });
}
export const deep = (value) => value.missing.more;
EOF
sed -i 's|// include polliwog:plugin/with-session|include polliwog:plugin/with-session|' queues-js/wit/plugin.wit queues-python/wit/plugin.wit
cat >queues-js/plugin.js <<'EOF'
import { cache, capture, gauge, http, json, now, ok, plugin, remainingMs, secret, store, timeZone, utcOffsetMinutes, warning } from "./polliwog.js";
import { deep, post } from "./lib/util.js";
// Of the answer {"mail": 12}: nothing, the first bytes, and up to a text.
function reads() {
  const answers = ["none", { first: 3 }, { until: ["mail"] }].map((read) => http.send("", { read }));
  const seen = answers.map((answer) => new TextDecoder().decode(answer.body));
  return seen.join() === ',{"m,{"mail' && !answers.some((answer) => answer.bodyComplete || http.tlsOf(answer));
}
function logIn() {
  if (!http.hasSecret("refresh")) {
    http.send("/login", { method: "POST", body: "", captures: [capture.json("refresh", "/refresh", 60_000, { durable: true })] });
  }
  return http.hasSecret("refresh");
}
export const { definition, poller, session } = plugin({
  kind: "queues-js", title: "Everything", version: "0.2.0", summary: "Every interface", settingsVersion: 2,
  settings: { limit: { type: "number", default: 5 }, fails: { type: "boolean", default: false } },
  secrets: [{ name: "key", description: "the key of signatures" }],
  migrate: (_, { old }) => ({ limit: old }),
  // A durable value is not among the secrets when the host ends.
  close: () => http.send("/logout", { method: "POST", body: "", headers: { "x-refresh": http.hasSecret("refresh") ? secret("refresh") : "no refresh" } }),
  poll(target, settings) {
    const { mail } = json(http.getCached("", 60_000));
    post();
    if (settings.fails) deep({});
    const polls = Number(store.get("polls") ?? "0") + 1;
    store.set("polls", String(polls));
    cache.set("mail", new Uint8Array([mail]), 60_000);
    const clock = [reads(), logIn(), now() > 1e12, remainingMs() <= target.timeoutMs, timeZone() !== "", utcOffsetMinutes() % 15 === 0];
    const sees = clock.every(Boolean) && cache.get("mail")[0] === 12 && store.keys().length === 1;
    const why = sees ? `poll ${polls} of limit ${settings.limit}` : "a value is missing";
    return {
      dependencies: [
        warning("vm", why, { runsOn: "rack", independent: true, validForMs: 60_000 }),
        ok("rack", { link: "http://rack.example/" }),
        ok("old", { skipped: true }),
      ],
      gone: ["vm/"],
      samples: [gauge("queue_messages", mail, {}, { help: "Messages.", unit: "messages", dependency: "vm" })],
      nextPollMs: 5000,
    };
  },
});
EOF
run queues-js npm run --silent build
everything queues-js/queues-js.wasm
throws queues-js/queues-js.wasm "value.missing is undefined (lib/util.js:7, called by plugin.js:"
cat >queues-python/hook.py <<'EOF'
from polliwog import basic_auth, body_part, secret_part, send, sign, signature


def post() -> None:
    signatures = [sign("v1", "hmac-sha256", key=[secret_part("key")], input=["1.", body_part()])]
    headers = {"x-signature": "v1=" + signature("v1")}
    send("/hook", method="POST", body=b"text", headers=headers, signatures=signatures, authentication=basic_auth("me", "key"))
EOF
cat >queues-python/app.py <<'EOF'
from wit_world import exports

import hook
from polliwog import (
    Plugin, cache, capture_json, gauge, get_cached, has_secret, json, now, ok, remaining_ms, report, secret, secret_spec, send, store,
    time_zone, tls_of, utc_offset_minutes, warning,
)


def reads() -> bool:
    # Of the answer {"mail": 12}: nothing, the first bytes, and up to a text.
    answers = [send("", read=read) for read in ("none", 3, ["mail"])]
    seen = [answer.body for answer in answers]
    return seen == [b"", b'{"m', b'{"mail'] and not any(answer.body_complete or tls_of(answer) for answer in answers)


def log_in() -> bool:
    if not has_secret("refresh"):
        send("/login", method="POST", body=b"", captures=[capture_json("refresh", "/refresh", 60_000, durable=True)])
    return has_secret("refresh")


def close(target, settings) -> None:
    # A durable value is not among the secrets when the host ends.
    send("/logout", method="POST", body=b"", headers={"x-refresh": secret("refresh") if has_secret("refresh") else "no refresh"})


def poll(target, settings):
    mail = json(get_cached("", 60_000))["mail"]
    hook.post()
    if settings["fails"]:
        {}["missing"]
    polls = int(store.get("polls") or b"0") + 1
    store.set("polls", str(polls).encode())
    cache.set("mail", bytes([mail]), 60_000)
    clock = [reads(), log_in(), now() > 1e12, remaining_ms() <= target.timeout_ms, time_zone() != "", utc_offset_minutes() % 15 == 0]
    sees = all(clock) and cache.get("mail") == b"\x0c" and len(store.keys()) == 1
    why = f"poll {polls} of limit {settings['limit']}" if sees else "a value is missing"
    return report(
        [
            warning("vm", why, runs_on="rack", independent=True, valid_for_ms=60_000),
            ok("rack", link="http://rack.example/"),
            ok("old", skipped=True),
        ],
        gone=["vm/"],
        samples=[gauge("queue_messages", mail, help="Messages.", unit="messages", dependency="vm")],
        next_poll_ms=5000,
    )


plugin = Plugin(
    kind="queues-python",
    title="Everything",
    version="0.2.0",
    summary="Every interface",
    settings_version=2,
    settings={"limit": {"type": "number", "default": 5}, "fails": {"type": "boolean", "default": False}},
    secrets=[secret_spec("key", "the key of signatures")],
    migrate=lambda version, settings: {"limit": settings["old"]},
    poll=poll,
)
Definition, Poller = plugin.export(exports)
Session = plugin.export_session(exports, close)
EOF
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
