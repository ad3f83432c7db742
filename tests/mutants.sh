#!/usr/bin/env bash
# Breaks the scheduler on purpose, one way at a time, and says which seed of the simulator catches it.
# (ONLY=word runs those whose names have it.)
# A break that no seed catches is a failure: the invariants would not notice it in our own changes either.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=target/mutants/source
export CARGO_TARGET_DIR="$PWD/target/mutants/target"
seeds=${SEEDS:-1000}
only=${ONLY:-}
caught=0 missed=0

# name | file under host/scheduler/src | what stands there | what stands there instead
mutants=(
    "the breaker opens one failure late|breaker.rs|failures < rules.threshold|failures <= rules.threshold"
    "a success does not reset how long the breaker opens|breaker.rs|        self.open_for = None;|"
    "a lost probe leaves the breaker half-open|breaker.rs|        self.enter(BreakerState::Open, now);
        self.open_for|        self.open_for"
    "a host's slot is never given back|hosts.rs|held.running = held.running.saturating_sub(1);|"
    "a host lets one more in than it may|hosts.rs|self.running < limit &&|self.running <= limit &&"
    "a freed slot is not handed on|scheduler/outcomes.rs|            self.make_ready(next, now);|            let _ = next;"
    "no wake-up for the queue|scheduler.rs|self.queue.next_due().into_iter().chain(token)|token.into_iter()"
    "wake-ups twenty seconds late|scheduler.rs|self.queue.next_due().into_iter().chain(token)|self.queue.next_due().map(\|due\| due.after(Duration::from_secs(20))).into_iter().chain(token)"
    "poll now does nothing|scheduler/targets.rs|            target.schedule.due = target.schedule.due.min(now);
            if quarantined {|            if quarantined {"
    "results that wait for the database hold nobody back|scheduler/places.rs|if target.unwritten >= MAX_UNWRITTEN {|if target.unwritten > 250 {"
    "no wake-up for the token bucket|scheduler.rs|let token = room.then(\|\| self.bucket.next(self.settings.rate_per_second));|let token = None.filter(\|_\| room);"
    "one poll too many in flight|scheduler/places.rs|self.young.len() < self.max_in_flight();|self.young.len() <= self.max_in_flight();"
    "the bucket gives without taking|bucket.rs|            self.tokens -= 1.0;|"
    "a dead letter of Pulse's one failure late|settings.rs|const PULSE_FAILURES: u32 = 5;|const PULSE_FAILURES: u32 = 6;"
    "standard waits for two minutes|settings.rs|const STANDARD_CAP: Duration = Duration::from_secs(60);|const STANDARD_CAP: Duration = Duration::from_secs(120);"
    "standard gives up after half an hour|settings.rs|const STANDARD_PATIENCE: Duration = Duration::from_secs(3600);|const STANDARD_PATIENCE: Duration = Duration::from_secs(1800);"
    "standard makes a dead letter of the first permanent failure|settings.rs|permanent && failures >= 3 && failing_for >= STANDARD_CAP|permanent"
    "standard looks at a dead letter every half hour|settings.rs|if self == Self::Pulse { PULSE_LOOK }|if self != Self::Depsera { PULSE_LOOK }"
    "an interval is no promise|target.rs|            Cadence::Adaptive \| Cadence::Fixed => base,|            Cadence::Adaptive \| Cadence::Fixed => PULSE_MAX.max(base),"
    "backoff begins doubled|backoff.rs|failures.saturating_sub(1)|failures"
    "Retry-After is not heard|scheduler/outcomes.rs|delay.max(retry_after.unwrap_or_default())|delay"
    "a neighbour revives again and again|scheduler/outcomes.rs|            target.schedule.revived = true;|"
    "a plugin's fault counts as the target's|scheduler/outcomes.rs|        schedule.plugin_faults = schedule.plugin_faults.saturating_add(1);|        schedule.plugin_faults = schedule.plugin_faults.saturating_add(1); schedule.failures += 1;"
    "the outcome of a target that was another one counts|scheduler/targets.rs|                flight.void = true;|                flight.void = false;"
    "the poll of a removed target is forgotten|scheduler/targets.rs|            self.orphans.insert(id.clone(), super::Flight { void: true, ..flight });|            let _ = flight;"
    "a disabled target is polled|scheduler/places.rs|        } else if !target.spec.enabled {|        } else if false {"
    "the queue looks at the first child only|queue.rs|if self.before(&self.heap[child], &self.heap[first]) {|if child > self.heap.len() {"
    "a restart forgets an open breaker|target.rs|if saved.breaker.state == BreakerState::HalfOpen \|\| looked_at {|if { saved.breaker = Breaker::CLOSED; false } {"
    "that a probe began is not written|scheduler/places.rs|        if probes {|        if false {"
    "a due time that settings changed is not written|scheduler/targets.rs|            self.persist_all(&queued);|"
    "a plugin is quarantined one target early|scheduler/quarantine.rs|const SUSPICIOUS: usize = 5;|const SUSPICIOUS: usize = 4;"
    "a quarantine holds nobody back|scheduler/places.rs|self.is_quarantined(&target.spec.kind, slot) {|false {"
    "a quarantined plugin is never tried|scheduler/quarantine.rs|quarantine.chosen.filter(\|_\| quarantine.probes.is_empty())?|quarantine.chosen.filter(\|_\| false)?"
    "a quarantine does not end with a success|scheduler/outcomes.rs|                _ => self.clear(&flight.kind, now),|                _ => {}"
    "a failed probe is followed by the next at once|scheduler/quarantine.rs|            if quarantine.probes.remove(&slot) {|            if quarantine.probes.remove(&slot) && false {"
    "success is counted from the end of the poll|scheduler/outcomes.rs|due.after(after).max(now)|now.after(after)"
)

fresh() {
    rm -rf "$copy"
    mkdir -p "$copy"
    tar -c --exclude=./target --exclude=./.git . | tar -x -C "$copy"
}

run() (cd "$copy" && timeout 300 cargo run --quiet --release --locked -p scheduler --example seeds -- --seeds "$seeds" 2>&1)

# Takes a mutant apart: sets `name`, `file`, `from` and `to`.
parts() {
    local mutant=${1//\\|/$'\x01'}
    IFS='|' read -r -d '' name file from to <<<"$mutant" || true
    from=${from//$'\x01'/|} to=${to%$'\n'} to=${to//$'\x01'/|}
}

fresh
# First all that are out of date, in a second, and not one after half an hour.
old=0
for mutant in "${mutants[@]}"; do
    parts "$mutant"
    source=$(<"$copy/host/scheduler/src/$file")
    [[ $source == *"$from"* ]] || { echo "OUT OF DATE: $name: $file has no such line" >&2 && old=1; }
done
[ "$old" = 0 ]
echo "unbroken: $(run | tail -1)"
for mutant in "${mutants[@]}"; do
    [[ $mutant == *"$only"* ]] || continue
    parts "$mutant"
    path="$copy/host/scheduler/src/$file"
    source=$(<"$path")
    broken=${source/"$from"/"$to"}
    printf '%s\n' "$broken" >"$path"
    status=0
    output=$(RUSTFLAGS="--cap-lints=allow" run) || status=$?
    if [ "$status" = 0 ]; then
        echo "MISSED: $name"
        missed=$((missed + 1))
    elif violation=$(grep -m1 -E "VIOLATED|panicked" <<<"$output" || ([ "$status" = 124 ] && echo "it never ends")); then
        echo "caught: $name: ${violation:0:200}"
        caught=$((caught + 1))
    else
        printf 'DOES NOT BUILD: %s\n%s\n' "$name" "$output" >&2
        exit 1
    fi
    printf '%s\n' "$source" >"$path"
done
echo "$caught caught, $missed missed"
[ "$missed" = 0 ]
