#!/usr/bin/env bash
# Does what sdk/README.md says, word by word: every `sh` block is run, every block after `<!-- file: … -->` is written.
# PROFILE=release measures what users see.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${PROFILE:-debug}
cargo build --locked --quiet $([ "$profile" = release ] && echo --release)
export PATH="$PWD/target/$profile:$PATH"
guide="$PWD/sdk/README.md"
work=$(mktemp -d)
# It lets go of its ports when it has ended, and whoever comes next needs them.
trap 'kill "$demo" 2>/dev/null && wait "$demo" || true; rm -rf "$work"' EXIT
export XDG_DATA_HOME="$work/data"
cd "$work"
printf '[server]\nlisten = "127.0.0.1:0"\nmetrics_listen = "127.0.0.1:0"\n' >demo.toml
polliwog run --demo --config demo.toml >/dev/null 2>demo.log &
demo=$!
for _ in $(seq 300); do
    grep -q "pages and API at" demo.log && break
    kill -0 "$demo" || { cat demo.log; exit 1; }
    sleep 0.1
done

# The guide as a script.
awk '
    /^<!-- file: / { file = $3; next }
    /^```/ {
        if (within) { if (within == "file") print "POLLIWOG_END"; within = ""; file = ""; next }
        if (file != "") { within = "file"; print "cat >" file " <<\"POLLIWOG_END\"" }
        else if ($0 == "```sh") within = "sh"
        else within = "other"
        next
    }
    within == "file" { print; next }
    within == "sh" { print }
' "$guide" >guide-steps
began=$SECONDS
bash -euxo pipefail ./guide-steps
for _ in $(seq 100); do
    grep -q "queue_depths.wasm serves kind queue-depths" demo.log && break
    sleep 0.1
done
grep "queue_depths.wasm serves kind queue-depths" demo.log
echo "the guide's commands took $((SECONDS - began)) s"
