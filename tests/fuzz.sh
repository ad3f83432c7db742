#!/usr/bin/env bash
# Fuzzes the parsers of foreign data: tests/fuzz.sh [SECONDS] [TARGET...]. The default is one minute for each target.
# `tests/fuzz.sh build` only builds them.
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
for target in "${targets[@]}"; do
    corpus="../../target/fuzz-corpus/$target"
    mkdir -p "$corpus"
    echo "== $target: $seconds s"
    cargo fuzz run "${options[@]}" "$target" "$corpus" "seeds/$target" -- -max_total_time="$seconds" -timeout=10 \
        -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 2>&1 |
        grep -vE "^(INFO|\s*(Compiling|Finished|Running))" || exit 1
done
