#!/usr/bin/env bash
# Builds the program from nothing and prints the CPU time of each crate, compared with tests/build-cost.tsv.
#
#   tests/build-cost.sh              builds, prints and compares; exit code 1 if the build costs 3 % more
#   tests/build-cost.sh update       also replaces the table
#   tests/build-cost.sh compare A B  compares two tables
#
# Machines differ in speed, so all times of the earlier table are multiplied by the median ratio of the crates that both
# have. Run it on a machine that does nothing else.
set -euo pipefail

# As the wrapper of rustc: notes the CPU time of one call.
if [ -n "${BUILD_COST_LOG:-}" ] && [ $# -gt 0 ]; then
    status=0
    "$@" || status=$?
    name=${CARGO_PKG_NAME:-}
    [ -n "$name" ] || exit "$status"
    [[ " $* " == *" --target wasm32-wasip2 "* ]] && name+=" (plugins)"
    # The second line is that of the processes that have ended. A pipe would be another process, without any.
    times >"$BUILD_COST_LOG.$$"
    tail -1 "$BUILD_COST_LOG.$$" | awk -v name="$name" '
        { for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); seconds += part[1] * 60 + part[2] } }
        END { printf "%.3f\t%s\n", seconds, name }' >>"$BUILD_COST_LOG"
    rm -f "$BUILD_COST_LOG.$$"
    exit "$status"
fi

cd "$(dirname "$0")/.."
table=tests/build-cost.tsv

# Prints each crate of B with its time in A and B, the largest first, and what is new, grown or gone.
compare() {
    awk -F'\t' -v OFS='\t' '
        /^#/ { next }
        FNR == NR { was[$2] = $1; next }
        { now[$2] = $1 }
        END {
            for (name in now) if (name in was && was[name] >= 1 && name != "total") ratio[++n] = now[name] / was[name]
            for (i = 2; i <= n; i++) for (j = i; j > 1 && ratio[j - 1] > ratio[j]; j--) {
                held = ratio[j]; ratio[j] = ratio[j - 1]; ratio[j - 1] = held
            }
            speed = n ? ratio[int((n + 1) / 2)] : 1
            for (name in now) {
                note = name in was ? "" : "new"
                before = was[name] * speed
                if (note == "") note = now[name] > before * 1.2 + 0.5 ? "grown" : ""
                printf "%8.1f %8.1f  %-44s %s\n", before, now[name], name, note | "sort -k2,2nr"
            }
            close("sort -k2,2nr")
            for (name in was) if (!(name in now)) printf "%8.1f %8s  %-44s gone\n", was[name] * speed, "", name
            change = was["total"] ? 100 * (now["total"] / (was["total"] * speed) - 1) : 0
            printf "\nSeconds of CPU: before (times %.2f, the speed of this machine), and now. ", speed
            printf "The build costs %.1f %% %s.\n", change < 0 ? -change : change, change < 0 ? "less" : "more"
            exit change > 3
        }' "$1" "$2"
}

if [ "${1:-}" = compare ]; then
    compare "$2" "$3"
    exit
fi

place=$PWD/target/build-cost
rm -rf "$place"
mkdir -p "$place"
log=$place/log.tsv
cargo fetch --locked --quiet
# Cargo reads this variable in the build of the plugins, too.
export BUILD_COST_LOG=$log CARGO_BUILD_RUSTC_WRAPPER=$PWD/tests/build-cost.sh CARGO_TARGET_DIR=$place/target
TIMEFORMAT='%U %S %R'
{ time cargo build --locked --release 2>"$place/cargo.log"; } 2>"$place/time" || { cat "$place/cargo.log" >&2 && exit 1; }
read -r user system wall <"$place/time"
{
    printf '# CPU seconds of a cold release build by crate: tests/build-cost.sh update\n# %s, %s s of wall-clock time\n' \
        "$(rustc --version)" "$wall"
    awk -F'\t' -v all="$(awk "BEGIN { print $user + $system }")" '
        { seconds[$2] += $1; rustc += $1 }
        END {
            for (name in seconds) printf "%.1f\t%s\n", seconds[name], name
            printf "%.1f\t%s\n%.1f\t%s\n", all - rustc, "build scripts (C, machine code) and cargo", all, "total"
        }' "$log" | sort -t"$(printf '\t')" -k1,1nr -k2,2
} >"$place/table.tsv"
result=0
compare "$table" "$place/table.tsv" || result=$?
if [ "${1:-}" = update ]; then
    cp "$place/table.tsv" "$table"
    exit 0
fi
exit "$result"
