#!/usr/bin/env bash
# Applies one deliberate fault (mutant) to the scheduler or the notifier at a time and reports which seed of the simulator catches it.
# ONLY=word runs only the mutants whose name contains the word.
# A mutant that no seed catches is a failure, because the invariants would miss the same fault in a real change.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=target/mutants/source
export CARGO_TARGET_DIR="$PWD/target/mutants/target"
# A fault changes one line, so most of the crate is not compiled again. Faults cause warnings; the flag is the same for
# each build, because other flags would build the dependencies again.
export CARGO_INCREMENTAL=1 RUSTFLAGS=--cap-lints=allow
seeds=${SEEDS:-1000}
only=${ONLY:-}
caught=0 missed=0

# name | file under host/scheduler/src | old text | new text
mutants=(
    "the breaker opens one failure late|breaker.rs|failures < rules.threshold|failures <= rules.threshold"
    "a success does not reset the open time of the breaker|breaker.rs|        self.open_for = None;|"
    "a lost probe leaves the breaker half-open|breaker.rs|        enter(self, BreakerState::Open, now);
        self.open_for|        self.open_for"
    "a host's slot is never freed|hosts.rs|held.running = held.running.saturating_sub(1);|"
    "a host admits one poll too many|hosts.rs|self.running < limit &&|self.running <= limit &&"
    "a freed slot is not passed to the next target|scheduler/outcomes.rs|        self.hand_on(&in_flight.host);|"
    "the queue causes no wake-up|scheduler.rs|self.queue.next_due().into_iter().chain(token)|token.into_iter()"
    "wake-ups are twenty seconds late|scheduler.rs|self.queue.next_due().into_iter().chain(token)|self.queue.next_due().map(\|due\| due.after(Duration::from_secs(20))).into_iter().chain(token)"
    "poll now does nothing|scheduler/targets.rs|            target.schedule.due = target.schedule.due.min(now);
            if quarantined {|            if quarantined {"
    "unwritten results do not delay polls|scheduler/places.rs|if target.unwritten >= MAX_UNWRITTEN {|if target.unwritten > 250 {"
    "the token bucket causes no wake-up|scheduler.rs|let token = room.then(\|\| self.bucket.next(self.settings.rate_per_second));|let token = None.filter(\|_\| room);"
    "one poll too many is in flight|scheduler/places.rs|self.young.len() < self.max_in_flight();|self.young.len() <= self.max_in_flight();"
    "the bucket does not count tokens|bucket.rs|            self.tokens -= 1.0;|"
    "pulse makes a dead letter one failure late|settings.rs|const PULSE_FAILURES: u32 = 5;|const PULSE_FAILURES: u32 = 6;"
    "standard backs off for up to two minutes|settings.rs|const STANDARD_CAP: Duration = Duration::from_secs(60);|const STANDARD_CAP: Duration = Duration::from_secs(120);"
    "standard makes a dead letter after half an hour|settings.rs|const STANDARD_PATIENCE: Duration = Duration::from_secs(3600);|const STANDARD_PATIENCE: Duration = Duration::from_secs(1800);"
    "standard makes a dead letter at the first permanent failure|settings.rs|permanent && failures >= 3 && failing_for >= STANDARD_CAP|permanent"
    "standard polls a dead letter every half hour|settings.rs|if self == Self::Pulse { PULSE_DEAD_LETTER_INTERVAL }|if self != Self::Depsera { PULSE_DEAD_LETTER_INTERVAL }"
    "the base interval is not the longest interval|target.rs|Cadence::Adaptive \| Cadence::Fixed => base,|Cadence::Adaptive \| Cadence::Fixed => PULSE_MAX.max(base),"
    "backoff starts doubled|backoff.rs|failures.saturating_sub(1)|failures"
    "Retry-After is ignored|scheduler/outcomes.rs|delay.max(retry_after.unwrap_or_default())|delay"
    "a target of the same origin revives a dead letter repeatedly|scheduler/outcomes.rs|            target.schedule.revived = true;|"
    "a plugin fault counts as a failure of the target|scheduler/outcomes.rs|        schedule.plugin_faults = schedule.plugin_faults.saturating_add(1);|        schedule.plugin_faults = schedule.plugin_faults.saturating_add(1); schedule.failures += 1;"
    "an outcome counts after the target was changed|scheduler/targets.rs|                in_flight.void = true;|                in_flight.void = false;"
    "the poll of a removed target is forgotten|scheduler/targets.rs|            self.orphans.insert(id.clone(), super::InFlight { void: true, ..in_flight });|            let _ = in_flight;"
    "a disabled target is polled|scheduler/places.rs|        } else if !target.spec.enabled {|        } else if false {"
    "the queue compares the first child only|queue.rs|if self.before(&self.heap[child], &self.heap[first]) {|if child > self.heap.len() {"
    "a restart forgets an open breaker|target.rs|if saved.breaker.state == BreakerState::HalfOpen \|\| is_probe {|if { saved.breaker = ::model::Breaker::CLOSED; false } {"
    "the start of a probe is not saved|scheduler/places.rs|        if probes {|        if false {"
    "a due time changed by settings is not saved|scheduler/targets.rs|            self.persist_all(&queued);|"
    "a move is not announced|scheduler/places.rs|        self.moved.push(slot);
        let fresh|        let fresh"
    "a plugin is quarantined one target early|scheduler/quarantine.rs|const FAULTY_TARGETS: usize = 5;|const FAULTY_TARGETS: usize = 4;"
    "a quarantine does not stop polls|scheduler/places.rs|self.is_quarantined(&target.spec.kind, slot) {|false {"
    "a quarantined plugin is never probed|scheduler/quarantine.rs|quarantine.chosen.filter(\|_\| quarantine.probes.is_empty())?|quarantine.chosen.filter(\|_\| false)?"
    "a success does not end a quarantine|scheduler/outcomes.rs|                _ => self.clear(&in_flight.kind, now),|                _ => {}"
    "a failed probe is followed by the next probe at once|scheduler/quarantine.rs|            if quarantine.probes.remove(&slot) {|            if quarantine.probes.remove(&slot) && false {"
    "the interval after a success counts from the end of the poll|scheduler/outcomes.rs|since.after(after).max(now)|now.after(after)"
)

# The same under host/notify/src.
notify_mutants=(
    "one good report ends an alert|notifier/observe.rs|alert.streak + 1 >= recover|true"
    "one bad report confirms an alert|notifier/observe.rs|alert.streak >= confirm|alert.streak >= 1"
    "a changed message is not noticed|alert.rs|(*status, title.as_str(), message.as_deref()) == (found, finding.shown_title(), finding.message)|*status == found"
    "a change of what it runs on is not noticed|notifier/observe.rs| && reading.runs_on(name).is_empty()|"
    "a bad report does not end a recovery|alert.rs|*state == AlertState::Firing && self.streak == 0|*state == AlertState::Firing"
    "a suppressed alert is notified|notifier/evaluate.rs|is_blind \|\| record.suppressed_by.is_some() \|\||is_blind \|\|"
    "a silenced alert is notified|notifier/evaluate.rs| \|\| record.silenced_by.is_some()|"
    "a blind host notifies of each target|notifier/evaluate.rs|is_blind \|\| record|record"
    "the end of an alert is not notified without a route|notifier/evaluate.rs|routed.chain(notified)|routed.chain(notified.take(0))"
    "a restart forgets the last messages|notifier.rs|Alert::restored(record, now)|Alert::restored(Arc::new(AlertRecord { notified: Vec::new(), ..(*record).clone() }), now)"
    "repetitions ignore their interval|notifier/evaluate.rs|repeat.filter(\|at\| *at <= now.moment)|repeat"
    "an acknowledged alert is repeated|notifier/evaluate.rs|let is_seen = record.acknowledged.is_some();|let is_seen = false;"
    "flapping does not end|notifier/evaluate.rs|            if at <= now.moment {|            if false {"
    "each change of a flapping alert is notified|notifier/evaluate.rs|if record.flapping.is_some() {|if false {"
    "what it runs on is taken from the first report only|notifier/observe.rs|if alert.is_open() && alert.record.ancestors != ancestors {|if alert.record.ancestors.is_empty() {"
    "circles of needs are not cut|ranks.rs|if need.0 == target \|\| all.needs_indirectly(&need.0, &target) {|if false {"
    "circles of what they run on are not cut|ranks.rs|    if is_cyclic {|    if false {"
    "alerts of a removed target stay|notifier/observe.rs|None => self.end(&subject, Resolution::Removed, now),|None => {}"
    "a storm is not summarised|groups.rs|let is_storm = lane.waiting.len() > STORM \|\| recent.len() > STORM;|let is_storm = false;"
    "frequent news of one group is a storm|groups.rs|\|\| recent.len() > STORM|\|\| lane.sent.len() + keys.len() > STORM"
    "a full channel is not waited for|groups.rs|if undelivered >= MAX_OPEN {|if false {"
    "a group ignores its interval|groups.rs|soonest.max(last.after(times.interval))|soonest"
    "a restart forgets when a group was notified|notifier.rs|        notifier.restore_groups(now);|"
    "a lost network is not noticed|blind.rs|silent.len() * 100 < all * SHARE|true"
    "a repeated report confirms nothing|notifier/evaluate.rs|            target.is_settled = false;|"
    "a report is skipped before its alerts are confirmed|notifier/observe.rs|held.is_settled = is_settled && !is_open;|held.is_settled = !is_open;"
    "a skipped report does not count as confirmation|notifier/observe.rs|(held.is_settled, held.repeated) = (true, Some(now.moment))|held.is_settled = true"
    "an alert is notified before a report confirms it again|notifier/evaluate.rs|alert.awaits.or(alert.waits_until).is_some()|alert.waits_until.is_some()"
    "a child does not wait for its parent|notifier/evaluate.rs|alert.awaits.or(alert.waits_until).is_some()|alert.awaits.is_some()"
    "a recovery waits for the interval of its group|notifier/evaluate.rs|alert.recent_changes(now.moment) <= 2|false"
    "a dependency that vanishes ends its alert|notifier/observe.rs|=> self.miss(&subject, since, now),|=> self.end(&subject, Resolution::Missing, now),"
    "what is out of sight explains as before|alert.rs|self.record.state == AlertState::Pending && self.is_out_of_sight|false"
    "what is unknown alerts at once|notifier/observe.rs|now.moment_of(alert.record.since).after(long)|now.moment"
    "an alert that is never confirmed explains for ever|notifier/evaluate.rs|if alert.is_misled {|if false {"
    "a target of which always something else fails is not noticed|notifier/observe.rs|if is_known && held.unconfirmed >= 2 * confirm {|if false {"
    "a report that does not know counts as a good one|notifier/sight.rs|if is_firing && alert.streak > 0 {|if false {"
    "the start needs no more reports|notifier/observe.rs|let more = u32::from(is_starting);|let more = 0;"
)

fresh() {
    rm -rf "$copy"
    mkdir -p "$copy"
    # New times, because the last build of an earlier run may have been one with a fault.
    tar -c --exclude=./target --exclude=./.git . | tar -xm -C "$copy"
}

# Limits CPU time: a step that waits for other work of the machine has not hung. One that blocks ends after an hour.
simulate() (cd "$copy" && ulimit -S -t 300 && timeout 3600 "$@" 2>&1)
# A fault is found within a few seeds: building takes longer than running.
scheduler() {
    local level=profile.release.package.scheduler
    simulate cargo run --quiet --release --config "$level.opt-level=1" --config "$level.codegen-units=16" --locked \
        -p scheduler --example seeds -- --seeds "$seeds"
}
notify() { SEEDS=$((seeds / 16)) simulate cargo test --quiet --locked -p notify --test chaos --test rules; }

# Parses a mutant: sets `name`, `file`, `from` and `to`.
parts() {
    local mutant=${1//\\|/$'\x01'}
    IFS='|' read -r -d '' name file from to <<<"$mutant" || true
    from=${from//$'\x01'/|} to=${to%$'\n'} to=${to//$'\x01'/|}
}

# Applies each mutant of a crate, and counts those that its simulator catches.
check() {
    local crate=$1 mutant output source status violation
    shift
    # Check all mutants first, so that a stale one fails within a second and not after half an hour.
    local old=0
    for mutant in "$@"; do
        parts "$mutant"
        source=$(<"$copy/host/$crate/src/$file")
        [[ $source == *"$from"* ]] || { echo "OUT OF DATE: $name: $file does not contain the old text" >&2 && old=1; }
    done
    [ "$old" = 0 ]
    # A violation without a mutant would make every mutant look caught.
    output=$("$crate") || { printf 'FAILED without a mutant (exit code %s):\n%s\n' "$?" "$output" >&2 && exit 1; }
    echo "$crate without a mutant: $(grep . <<<"$output" | tail -1)"
    for mutant in "$@"; do
        [[ $mutant == *"$only"* ]] || continue
        parts "$mutant"
        path="$copy/host/$crate/src/$file"
        source=$(<"$path")
        broken=${source/"$from"/"$to"}
        printf '%s\n' "$broken" >"$path"
        status=0
        output=$("$crate") || status=$?
        if [ "$status" = 0 ]; then
            echo "MISSED: $name"
            missed=$((missed + 1))
        elif violation=$(grep -m1 -E "VIOLATED|panicked|SIGXCPU" <<<"$output" || ([[ $status = 152 || $status = 124 ]] && echo "it did not end")); then
            echo "caught: $name: ${violation:0:200}"
            caught=$((caught + 1))
        else
            printf 'DOES NOT BUILD: %s\n%s\n' "$name" "$output" >&2
            exit 1
        fi
        printf '%s\n' "$source" >"$path"
    done
}

fresh
check scheduler "${mutants[@]}"
check notify "${notify_mutants[@]}"
echo "$caught caught, $missed missed"
[ "$missed" = 0 ]
