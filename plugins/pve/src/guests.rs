//! Guests: virtual machines and containers.
//!
//! A stopped guest is a failure only if it is expected to run. Even then there may be a reason: a backup or migration
//! holds it, HA was ordered to stop it, or a person stopped it.

use crate::cluster_view::ClusterView;
use crate::context::PollContext;
use crate::ha::Service;
use crate::memory::{GuestNames, NAMES, Names, Stopped};
use crate::nodes::{State, on_node};
use crate::resources::{Guest, Resources};
use crate::settings;
use crate::tasks::Task;
use polliwog_sdk::{Dependency, Status};
use proxmox::SortedMap;
use proxmox::{Evaluation, Unseen, evaluated, moment};
use std::borrow::Cow;
use std::time::Duration;

/// A lock of this age is stale: its task ended without removing it, for example when its node failed. Seconds.
const STALE_LOCK: f64 = 12.0 * 3600.0;

/// How often the names of guests are remembered, for when their node is offline and the cluster lists only IDs.
const NAMED: Duration = Duration::from_secs(5 * 60);

/// After a removal, the list of guests may have the guest for this long. Seconds.
const LISTED_LATE: f64 = 120.0;

/// Guests that were expected to run at the last poll.
struct Before {
    /// In ascending order.
    watched: Vec<u64>,
    stopped: SortedMap<u64, Stopped>,
}

pub(crate) fn report(context: &mut PollContext, resources: &Resources<'_>, view: &ClusterView<'_>) {
    let guests = &resources.guests;
    let onboot = crate::onboot::report(context, guests, view.nodes);
    let own = &mut context.memory.plugin;
    let before = Before { watched: std::mem::take(&mut own.watched), stopped: std::mem::take(&mut own.stopped) };
    let (mut watched, mut stopped): (Vec<u64>, Vec<(u64, Stopped)>) = Default::default();
    let (mut checked, mut nameless) = (0, guests.is_empty() || resources.unread > 0);
    let expected_names = context.settings.guests.expected.clone();
    let mut unseen = expected_names.unseen();
    context.report.dependencies.reserve(guests.len());
    let settings = &context.settings.guests;
    let selected_by_name = [&settings.include, &settings.exclude].iter().any(|some| some.for_every_name().is_none());
    // There may be thousands of guests, and most settings name none. Patterns in `expected` that match no guest are
    // reported, so they need the names even with `*`.
    let needs_names = selected_by_name || !settings.expected.is_empty();
    let mut names = crate::resources::Names::default();
    for guest in guests {
        if needs_names {
            names.fill(guest);
        }
        names.iter().for_each(|name| unseen.see(name));
        nameless |= guest.name.is_none();
        let settings = &context.settings.guests;
        if !guest.selection(&names, settings).is_wanted(&mut context.report, || guest.dependency()) {
            continue;
        }
        checked += 1;
        let by_ha = view.services.get(&guest.id);
        let expected = settings.expected.match_any(names.iter())
            || settings.expected_by_ha && ha_wants(guest, by_ha)
            || onboot.contains(&guest.id);
        let state = view.nodes.get(&*guest.node).map_or(State::Unknown, |node| node.state);
        let invisible = guest.status == "unknown" && view.unresponsive.contains(&*guest.node);
        if state == State::Offline || invisible {
            stopped.extend(before.stopped.get(&guest.id).map(|known| (guest.id, known.clone())));
        }
        if invisible || guest.status == "unknown" && state != State::Offline {
            // The guest is not visible for a moment. On an offline node anything may happen to it.
            watched.extend(before.has_watched(guest.id).then_some(guest.id));
        }
        if invisible {
            context.report.keep(guest.dependency());
            continue;
        }
        let verdict = if state == State::Offline {
            Verdict::Unknown(format!("it cannot be checked: its node {} is offline", guest.node))
        } else if !expected {
            may_rest(guest)
        } else {
            let (verdict, down) = before.expected_to_run(guest, by_ha, context, view);
            if guest.status != "unknown" {
                watched.push(guest.id);
            }
            stopped.extend(down.map(|down| (guest.id, down)));
            verdict
        };
        let verdict = if verdict == Verdict::Well { full(context, guest) } else { verdict };
        context.report.dependencies.push(verdict.of(guest));
    }
    if checked == 0 && !guests.is_empty() && !context.settings.guests.exclude.is_all() {
        context.warn_of_api("no guest is checked: see guests.include and guests.exclude in the settings");
    }
    absent(context, resources, unseen, nameless);
    removed(context, guests, view.tasks);
    watched.sort_unstable();
    context.memory.plugin.watched = watched;
    context.memory.plugin.stopped = stopped.into_iter().collect();
}

/// Says which guests were removed on purpose: a task removed them, and not an earlier one with their id.
fn removed(context: &mut PollContext, guests: &[Guest<'_>], tasks: &[Task]) {
    let removed = crate::tasks::removed(tasks);
    let now = context.seconds();
    let replaced = &mut context.memory.plugin.replaced;
    replaced.retain(|id, _| removed.contains_key(id));
    for (id, ended) in &removed {
        if guests.iter().any(|guest| guest.id == *id) {
            if replaced.get(id).is_none_or(|(known, _)| known != ended) {
                replaced.insert(*id, (*ended, now));
            }
        } else if replaced.get(id).is_none_or(|(known, since)| ended > known || now - since < LISTED_LATE) {
            context.report.remove(format!("guest/{id}"));
            context.report.remove(format!("backup/guest/{id}"));
        }
    }
}

impl Before {
    fn has_watched(&self, id: u64) -> bool {
        self.watched.binary_search(&id).is_ok()
    }

    /// Evaluates a guest that is expected to run. Returns what is remembered until it runs.
    fn expected_to_run(
        &self,
        guest: &Guest<'_>,
        service: Option<&Service>,
        context: &mut PollContext,
        view: &ClusterView<'_>,
    ) -> (Verdict, Option<Stopped>) {
        let known = self.stopped.get(&guest.id).cloned();
        let verdict = must_run(guest, service);
        let held = guest.lock.as_deref().filter(|lock| *lock != "suspended" && guest.status == "stopped");
        match (verdict, held) {
            (Some(Verdict::Well), _) => (Verdict::Well, None),
            // It may return to its earlier state: a stopped guest is started for its backup, or is not visible for a
            // while.
            (Some(verdict), None) => (verdict, known),
            (verdict, _) => {
                let now = context.seconds();
                let ran_before = self.has_watched(guest.id);
                let new = || if ran_before { Stopped::after_running(now) } else { Stopped::at_first_check(now) };
                let stopped = known.unwrap_or_else(new).at(now, guest.lock.as_deref());
                let stopped = stopped.explained(guest, context, view);
                let lock = held.filter(|_| now - stopped.held >= STALE_LOCK);
                let stale = lock.map(|lock| stale_lock(guest, lock, &stopped));
                let verdict = stale.or(verdict).unwrap_or_else(|| down(&stopped, now, &context.settings.guests));
                (verdict, Some(stopped))
            }
        }
    }
}

/// Reports expected guests that do not exist: critical if the list of guests is complete, unknown if it may not be.
fn absent(context: &mut PollContext, resources: &Resources<'_>, unseen: Unseen<'_>, nameless: bool) {
    for name in unseen.left() {
        let id = name.parse::<u64>();
        if let Ok(id) = &id
            && resources.templates.contains_key(id)
        {
            context.diagnostics.add(|| format!("guests.expected names {id}, which is a template: templates never run"));
            continue;
        }
        if name.contains('*') || name.starts_with("tag:") || name.starts_with("pool:") {
            if !nameless {
                context.warn_of_api(&format!(
                    "guests.expected names {name:?}, and no guest has that name, tag or pool: check its spelling"
                ));
            }
            continue;
        }
        let whole = !resources.guests.is_empty() && resources.unread == 0 && (id.is_ok() || !nameless);
        let verdict = if whole {
            let why = "expected to run, but there is no such guest: it was removed or renamed, or the token may not \
                       see it";
            (Status::Critical, Some(why.to_owned()))
        } else {
            let why = "expected to run, but not visible; not all guests could be read, or the token may not see them";
            (Status::Unknown, Some(why.to_owned()))
        };
        context.add(evaluated(format!("guest/{name}"), "pve-vm", verdict));
    }
}

/// Restores the names of guests whose nodes have reported nothing for five minutes.
pub(crate) fn restore_names(context: &mut PollContext, resources: &mut Resources<'_>) {
    let due = context.is_due(NAMES);
    if !due && resources.guests.iter().all(|guest| guest.name.is_some()) {
        return;
    }
    let mut names: Names = context.memory.sections.get(NAMES);
    let (templates, mut guests): (Vec<Guest<'_>>, Vec<Guest<'_>>) =
        resources.guests.drain(..).partition(|guest| guest.name.is_none() && names.templates.contains(&guest.id));
    resources.templates.extend(templates.into_iter().map(|template| (template.id, template.node.into_owned())));
    for guest in guests.iter_mut().filter(|guest| guest.name.is_none()) {
        if let Some(GuestNames { name, tags, pool }) = names.guests.get(&guest.id) {
            (guest.name, guest.pool) = (name.clone().map(Cow::Owned), pool.clone().map(Cow::Owned));
            guest.set_tags(tags);
        }
    }
    resources.guests = guests;
    if due {
        let called = |guest: &Guest<'_>| {
            let text = |text: &Option<Cow<'_, str>>| text.as_deref().map(str::to_owned);
            GuestNames {
                name: text(&guest.name),
                tags: guest.tags().map(str::to_owned).collect(),
                pool: text(&guest.pool),
            }
        };
        names.guests = resources.guests.iter().map(|guest| (guest.id, called(guest))).collect();
        names.templates = resources.templates.keys().copied().collect();
        context.memory.sections.set(NAMES, &names);
        context.checked(NAMES, NAMED);
    }
}

/// Whether HA wants a guest to run: by the requested state, or, if that could not be read, by what HA does with it.
fn ha_wants(guest: &Guest<'_>, service: Option<&Service>) -> bool {
    match (service, guest.ha.as_deref()) {
        (Some(service), _) if service.requested.is_some() => service.wants_running(),
        (_, Some(state)) => !matches!(state, "stopped" | "request_stop" | "disabled" | "ignored" | "ignore"),
        (_, None) => false,
    }
}

/// A stale lock prevents the guest from being started.
fn stale_lock(guest: &Guest<'_>, lock: &str, stopped: &Stopped) -> Verdict {
    let tool = if guest.container { "pct" } else { "qm" };
    let since = moment(stopped.since).unwrap_or_default();
    Verdict::Critical(format!(
        "expected to run, but is stopped with the lock {lock} since {since}: if no task holds it, run \"{tool} unlock \
         {}\"",
        guest.id
    ))
}

/// Evaluates the root file system of a running container.
fn full(context: &mut PollContext, guest: &Guest<'_>) -> Verdict {
    let Some(share) = guest.root.filter(|_| guest.status == "running") else { return Verdict::Well };
    let Evaluation { status, limit, after } =
        context.hysteresis.evaluate(&guest.dependency(), context.settings.guests.root(), share);
    let why = || {
        format!(
            "it runs, and more than {limit} % of its root file system is used{after}: make room, or \"pct resize\" it"
        )
    };
    match status {
        Status::Critical => Verdict::Critical(why()),
        Status::Warning => Verdict::Warning(why()),
        Status::Ok | Status::Unknown => Verdict::Well,
    }
}

/// The meaning of a guest's state.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    Well,
    /// It is not running, and that is fine.
    Rests(&'static str),
    Warning(String),
    Critical(String),
    Unknown(String),
}

impl Verdict {
    fn of(self, guest: &Guest<'_>) -> Dependency {
        let kind = if guest.container { "pve-container" } else { "pve-vm" };
        let verdict = match self {
            Self::Well | Self::Rests(_) => (Status::Ok, None),
            Self::Warning(ref why) => (Status::Warning, Some(why.clone())),
            Self::Critical(ref why) => (Status::Critical, Some(why.clone())),
            Self::Unknown(ref why) => (Status::Unknown, Some(why.clone())),
        };
        let dependency = on_node(evaluated(guest.dependency(), kind, verdict), &guest.node);
        let dependency = match &guest.name {
            Some(name) => dependency.with_title(&**name),
            None => dependency,
        };
        match self {
            Self::Rests(why) => dependency.with_description(why).with_skipped(true),
            _ => dependency,
        }
    }
}

/// Returns what is wrong with a guest whether or not it is expected to run; `None` if that depends.
fn broken(guest: &Guest<'_>) -> Option<Verdict> {
    let because = |why: &str| Some(Verdict::Critical(format!("{}: {why}", guest.status)));
    match &*guest.status {
        "io-error" => {
            because("the guest is halted because its storage failed or is full; correct that, then run \"qm resume\"")
        }
        "internal-error" => because("QEMU has an internal error; stop and start the guest"),
        "guest-panicked" => because("the guest's kernel panicked; see its console"),
        "unknown" => Some(Verdict::Unknown(format!(
            "{} does not report its state: check the node for a storage that hangs (\"pvesm status\"), and pvestatd",
            guest.node
        ))),
        _ => None,
    }
}

/// Evaluates a guest that is not expected to run.
fn may_rest(guest: &Guest<'_>) -> Verdict {
    broken(guest).unwrap_or(match &*guest.status {
        "running" => Verdict::Well,
        "stopped" | "paused" | "suspended" | "prelaunch" | "shutdown" | "watchdog" | "debug" | "inmigrate"
        | "finish-migrate" | "postmigrate" | "save-vm" | "restore-vm" | "colo" => {
            Verdict::Rests("It is not running, and not expected to run")
        }
        other => Verdict::Unknown(format!("{other}: a state that this plugin does not know")),
    })
}

/// Evaluates a guest that is expected to run; `None` if it is down and the time matters.
fn must_run(guest: &Guest<'_>, service: Option<&Service>) -> Option<Verdict> {
    if let Some(verdict) = broken(guest) {
        return Some(verdict);
    }
    let status = &*guest.status;
    if matches!(status, "running" | "inmigrate" | "finish-migrate" | "postmigrate" | "save-vm" | "restore-vm") {
        return Some(Verdict::Well);
    }
    if let Some(lock) = &guest.lock {
        let why = match &**lock {
            "backup" => "It is down while it is backed up",
            "migrate" => "It is down while it is migrated",
            "snapshot" | "snapshot-delete" => "It is down while a snapshot is created or removed",
            "rollback" => "It is down while it is rolled back",
            "clone" | "create" | "disk" => "It is down while it is created or copied",
            "suspended" | "suspending" => "It was suspended to disk on purpose",
            "fstrim" | "mounted" => "It is down while its disks are worked on",
            _ => return Some(Verdict::Warning(format!("{status}, with the lock {lock:?}: check its task"))),
        };
        return Some(Verdict::Rests(why));
    }
    match status {
        "paused" | "suspended" | "prelaunch" | "debug" | "shutdown" | "watchdog" => {
            Some(Verdict::Warning(format!("{status}: expected to run")))
        }
        "stopped" if service.is_some_and(Service::wants_stopped) => Some(Verdict::Rests("HA was ordered to stop it")),
        "stopped" => None,
        _ => Some(Verdict::Unknown(format!("{status}: a state that this plugin does not know"))),
    }
}

/// Evaluates a guest that is expected to run, is stopped, and has no lock.
fn down(stopped: &Stopped, now: f64, settings: &settings::Guests) -> Verdict {
    if let Some((by, at)) = &stopped.by {
        let when = moment(*at).map(|when| format!(" at {when}")).unwrap_or_default();
        return Verdict::Warning(format!("expected to run, but was stopped on purpose by {by}{when}"));
    }
    let since = moment(stopped.since).unwrap_or_default();
    if now - stopped.held < f64::from(settings.grace_seconds) {
        return Verdict::Warning(if stopped.began_unseen() {
            "expected to run, but is stopped; since when is not known at the first check".to_owned()
        } else {
            format!("expected to run, but is stopped since {since}")
        });
    }
    Verdict::Critical(format!(
        "expected to run, but is stopped since {since}{}: start it, or check its last task",
        if stopped.began_unseen() { " or longer" } else { "" }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest<'a>(status: &'a str, lock: Option<&'a str>) -> Guest<'a> {
        Guest {
            id: 100,
            node: Cow::Borrowed("pve1"),
            status: Cow::Borrowed(status),
            lock: lock.map(Cow::Borrowed),
            ..Guest::default()
        }
    }

    fn status(verdict: Option<Verdict>) -> Option<(Status, bool)> {
        verdict
            .map(|verdict| verdict.of(&guest("", None)))
            .map(|dependency| (dependency.status, dependency.is_skipped()))
    }

    #[test]
    fn states_are_evaluated_by_expectation() {
        let (ok, rests) = (Some((Status::Ok, false)), Some((Status::Ok, true)));
        let (warning, critical) = (Some((Status::Warning, false)), Some((Status::Critical, false)));
        let unknown = Some((Status::Unknown, false));
        for (state, lock, expected, unexpected) in [
            ("running", None, ok, ok),
            ("stopped", None, None, rests),
            ("stopped", Some("backup"), rests, rests),
            ("stopped", Some("migrate"), rests, rests),
            ("stopped", Some("suspended"), rests, rests),
            ("stopped", Some("mystery"), warning, rests),
            ("paused", Some("snapshot"), rests, rests),
            ("paused", None, warning, rests),
            ("prelaunch", None, warning, rests),
            ("io-error", Some("backup"), critical, critical),
            ("internal-error", None, critical, critical),
            ("unknown", None, unknown, unknown),
            ("finish-migrate", None, ok, rests),
            ("dreaming", None, unknown, unknown),
        ] {
            let guest = guest(state, lock);
            assert_eq!(status(must_run(&guest, None)), expected, "{state} {lock:?} expected");
            assert_eq!(status(Some(may_rest(&guest))), unexpected, "{state} {lock:?} not expected");
        }
        let stopped = Service { requested: Some("stopped".to_owned()) };
        assert_eq!(status(must_run(&guest("stopped", None), Some(&stopped))), rests, "HA was ordered to stop it");
    }

    #[test]
    fn a_stop_is_critical_after_its_grace_period_unless_it_was_on_purpose() {
        let settings = settings::Guests { grace_seconds: 60, ..settings::Guests::default() };
        let stopped = |by: Option<&str>| {
            let mut stopped = Stopped::at_first_check(1000.0);
            stopped.by = by.map(|by| (by.to_owned(), 900.0));
            stopped
        };
        assert!(matches!(down(&stopped(None), 1059.0, &settings), Verdict::Warning(_)));
        assert!(matches!(down(&stopped(None), 1060.0, &settings), Verdict::Critical(_)));
        assert!(matches!(down(&stopped(Some("alice@pve")), 9999.0, &settings), Verdict::Warning(_)));
        // The lock is gone, and the grace period begins.
        let held = stopped(None).at(1010.0, Some("backup")).at(5000.0, None);
        assert!(matches!(down(&held, 5059.0, &settings), Verdict::Warning(_)));
        assert!(matches!(down(&held, 5060.0, &settings), Verdict::Critical(_)));
        assert_eq!(stopped(None).at(10.0, None).since, 10.0, "a clock that was set back");
    }
}
