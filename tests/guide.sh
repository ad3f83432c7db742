#!/usr/bin/env bash
# Executes sdk/README.md: runs every `sh` block and writes every block after `<!-- file: … -->`. PROFILE=release
# measures the release build.
set -euo pipefail
. "$(dirname "$0")/demo.sh"
guide="$root/sdk/README.md"

# Convert the guide to a script.
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
