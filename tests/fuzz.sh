#!/usr/bin/env bash
# Fuzzes the parsers of foreign data: tests/fuzz.sh [SECONDS] [TARGET...]. The default is one minute for each target.
# As many targets as this machine has cores run at the same time. `tests/fuzz.sh build` only builds them.
# Findings are stored in tests/fuzz/artifacts, and the corpus for the next run in target/fuzz-corpus.
set -euo pipefail
cd "$(dirname "$0")/fuzz"
seconds=${1:-60}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=(report mapping proactive_deps configuration mask captures settings)
cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --debug --locked cargo-fuzz --version 0.13.1
# The instrumentation needs nightly flags; this makes the pinned compiler accept them in this script only.
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$PWD/../../target/fuzz"
# No sanitizer: the fuzzed code has no unsafe blocks, and panics and hangs are found without one.
options=(--fuzz-dir . --sanitizer none)
cargo fuzz build "${options[@]}" 2>&1 | tail -n 3
[ "$seconds" != build ] || exit 0

fuzz() {
    local target=$1 corpus="../../target/fuzz-corpus/$1" output result=0
    mkdir -p "$corpus"
    output=$(cargo fuzz run "${options[@]}" "$target" "$corpus" "seeds/$target" -- -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 2>&1) || result=$?
    printf '== %s: %s s\n%s\n' "$target" "$seconds" "$(grep -vE "^(INFO|\s*(Blocking|Compiling|Finished|Running))" <<<"$output")"
    return "$result"
}

failed=()
running=()
for target in "${targets[@]}"; do
    if [ ${#running[@]} = "$(nproc)" ]; then
        wait "${running[0]#* }" || failed+=("${running[0]% *}")
        running=("${running[@]:1}")
    fi
    fuzz "$target" &
    running+=("$target $!")
done
for one in "${running[@]}"; do wait "${one#* }" || failed+=("${one% *}"); done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" >&2 && exit 1; }
