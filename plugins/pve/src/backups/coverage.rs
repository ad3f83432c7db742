//! Guests that are in no backup job.

use super::shared::{PART, excluded};
use crate::context::PollContext;
use crate::resources::Guest;
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Sample, Status};
use proxmox::SortedMap;
use proxmox::{Diagnostics, Error, ErrorClass, count, evaluated, list};
use serde::Deserialize;

/// One entry of `/cluster/backup-info/not-backed-up`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Uncovered {
    vmid: Field<Number>,
    name: Field<Text>,
    #[serde(rename = "type")]
    kind: Field<Text>,
}

impl Uncovered {
    fn of(guest: &Guest<'_>) -> Self {
        let text = |text: &str| Field::Is(Text(text.to_owned()));
        Self {
            vmid: Field::Is(Number(guest.id as f64)),
            name: guest.name.as_deref().map_or_else(Field::default, text),
            kind: text(guest.kind()),
        }
    }

    /// The sample, with the name that prometheus-pve-exporter uses.
    fn sample(&self) -> Option<Sample> {
        let (Number(id), Text(kind)) = (self.vmid.get()?, self.kind.get()?);
        Some(Sample::gauge("pve_not_backed_up_info", 1.0).with_label("id", format!("{kind}/{id}")))
    }

    /// The ID. The largest ID has nine digits.
    fn id(&self, diagnostics: &mut Diagnostics) -> Option<u64> {
        let id = diagnostics.number(&self.vmid, || "vmid of a guest in no backup job".to_owned());
        id.filter(|id| *id < 1e9).map(|id| id as u64)
    }

    fn shown(&self) -> String {
        self.name.get().map_or_else(|| "a guest without a name".to_owned(), |Text(name)| name.clone())
    }
}

/// One entry of `/cluster/backup`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Job {
    enabled: Field<Flag>,
    all: Field<Flag>,
    /// IDs with commas in between.
    vmid: Field<Text>,
    exclude: Field<Text>,
    pool: Field<Text>,
    node: Field<Text>,
}

impl Job {
    pub(super) fn is_on(&self) -> bool {
        self.enabled.get().is_none_or(|Flag(enabled)| *enabled)
    }

    /// Returns what is wrong with the job; `None` if nothing is.
    fn odd(&self) -> Option<String> {
        fn found<T>(name: &str, field: &Field<T>) -> Option<String> {
            match field {
                Field::Odd(odd) => Some(format!("its {name} is {odd}")),
                Field::Absent | Field::Is(_) => None,
            }
        }
        let flags = [("enabled", &self.enabled), ("all", &self.all)];
        let texts = [("vmid", &self.vmid), ("exclude", &self.exclude), ("pool", &self.pool), ("node", &self.node)];
        let flags = flags.into_iter().find_map(|(name, field)| found(name, field));
        let odd = flags.or_else(|| texts.into_iter().find_map(|(name, field)| found(name, field)));
        // A job must have one of these fields.
        let any = self.all.get().is_some_and(|Flag(all)| *all) || self.vmid.get().or(self.pool.get()).is_some();
        odd.or_else(|| (!any).then(|| "it has neither all nor vmid nor pool".to_owned()))
    }

    /// Whether the job backs a guest up, by its configuration.
    pub(super) fn covers(&self, guest: &Guest<'_>) -> bool {
        let id = guest.id.to_string();
        let names = |field: &Field<Text>| {
            field.get().is_some_and(|Text(list)| list.split([',', ' ', ';']).any(|name| name == id))
        };
        let here = self.node.get().is_none_or(|Text(node)| node.is_empty() || *node == guest.node);
        let all = self.all.get().is_some_and(|Flag(all)| *all);
        let pool = self.pool.get().is_some_and(|Text(pool)| guest.pool.as_deref() == Some(pool));
        // A pool-based job covers every guest in the pool (pve-manager: PVE/VZDump.pm, get_included_guests).
        here && (names(&self.vmid) || pool || all && !names(&self.exclude))
    }
}

/// Returns the guests in no job, and the jobs.
fn read(context: &mut PollContext, guests: &[Guest<'_>]) -> Result<(Vec<Uncovered>, Vec<Job>), Error> {
    let [uncovered, jobs] = context.api.ask(["/cluster/backup-info/not-backed-up", "/cluster/backup"]);
    let jobs: Result<Vec<Job>, Error> = jobs.list(&mut context.diagnostics);
    let mut uncovered = uncovered.list(&mut context.diagnostics);
    let is_not_served = |uncovered: &Result<Vec<Uncovered>, Error>| {
        uncovered.as_ref().is_err_and(|error| error.class == ErrorClass::NotServed)
    };
    if is_not_served(&uncovered) {
        // The path before 7.0.
        let [elsewhere] = context.api.ask(["/cluster/backupinfo/not_backed_up"]);
        uncovered = elsewhere.list(&mut context.diagnostics);
    }
    if is_not_served(&uncovered) {
        // Before 6.2-9 there is no such path. The jobs contain the same information.
        let jobs = jobs?;
        if let Some(odd) = jobs.iter().find_map(Job::odd) {
            let message = format!("which guests a backup job covers cannot be read: {odd}");
            return Err(Error::permanent("unexpected_shape", message));
        }
        let in_none = |guest: &&Guest<'_>| !jobs.iter().any(|job| job.covers(guest));
        return Ok((guests.iter().filter(in_none).map(Uncovered::of).collect(), jobs));
    }
    Ok((uncovered?, jobs?))
}

/// Reports guests that no job covers. Returns the jobs, and whether the check read everything.
pub(super) fn report(context: &mut PollContext, guests: &[Guest<'_>], cluster: &str) -> (bool, Vec<Job>) {
    let read = read(context, guests);
    let settled = read.as_ref().err().is_none_or(|error| error.permanent);
    let Some((uncovered, jobs)) = context.part((PART.0, &[]), read) else { return (settled, Vec::new()) };
    if context.settings.samples {
        context.report.samples.extend(uncovered.iter().filter_map(Uncovered::sample));
        let all = Sample::gauge("pve_not_backed_up_total", uncovered.len() as f64);
        context.report.samples.push(all.with_label("id", format!("cluster/{cluster}")));
    }
    let by_id: SortedMap<u64, &Guest<'_>> = guests.iter().map(|guest| (guest.id, guest)).collect();
    let (mut missing, mut unread) = (Vec::new(), Vec::new());
    for entry in &uncovered {
        match entry.id(&mut context.diagnostics) {
            // A guest of which only the ID is known may be a template.
            Some(id) => {
                let guest = by_id.get(&id).filter(|guest| guest.name.is_some() || guest.status != "unknown");
                missing.extend(guest.and_then(|guest| needs_backup(context, guest, entry)));
            }
            None => unread.push(entry.shown()),
        }
    }
    let (active, off): (Vec<&Job>, Vec<&Job>) = jobs.iter().partition(|job| job.is_on());
    let only_off =
        |guest: &&Guest<'_>| off.iter().any(|job| job.covers(guest)) && !active.iter().any(|job| job.covers(guest));
    if !active.is_empty() {
        // The list of Proxmox VE counts disabled jobs as cover.
        let guests = guests.iter().filter(only_off).filter(|guest| !excluded(context, guest));
        missing.extend(guests.map(|guest| format!("{} (its job is disabled)", guest.shown())));
    }
    let (active, off) = (active.len(), off.len());
    let needing = guests.iter().any(|guest| !excluded(context, guest));
    let verdict = if guests.is_empty() {
        (Status::Unknown, Some("no guests are visible, so it is not known which need a backup".to_owned()))
    } else if active == 0 && needing {
        let why = "no backup job is enabled: add one, or list guests that need none in backups.exclude".to_owned();
        (Status::Warning, Some(why))
    } else if missing.is_empty() && !unread.is_empty() {
        let why = format!("guests in no backup job are listed without their IDs: {}", list(&unread));
        (Status::Unknown, Some(why))
    } else if missing.is_empty() {
        (Status::Ok, None)
    } else {
        let are = if missing.len() == 1 { "is" } else { "are" };
        let why = format!(
            "{} {are} in no backup job that runs: {}; add {} to a job, or to backups.exclude in the settings",
            count(missing.len(), "guest"),
            list(&missing),
            if missing.len() == 1 { "it" } else { "them" },
        );
        (Status::Warning, Some(why))
    };
    let dependency = evaluated(PART.0.to_owned(), "pve-backup", verdict);
    let off = if off == 0 { String::new() } else { format!(", {off} disabled") };
    context.add(dependency.with_description(format!("{} enabled{off}", count(active, "backup job"))));
    (true, jobs)
}

/// How a guest in no job is shown; `None` if it needs no backup. The list contains templates as well.
fn needs_backup(context: &PollContext, guest: &Guest<'_>, entry: &Uncovered) -> Option<String> {
    let named = || match entry.name.get() {
        Some(Text(name)) if guest.name.is_none() => format!("{} ({name})", guest.id),
        _ => guest.shown(),
    };
    (!excluded(context, guest)).then(named)
}
