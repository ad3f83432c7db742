//! Backups that Proxmox VE makes itself: which guests are in no job, and how the last runs ended.
//!
//! A run of one guest says how that guest's backup ended. A run of several says how all of it ended; which guest failed
//! stands in its log only, so that nothing is said of any one guest from it.

use crate::Look;
use crate::nodes::{Node, Nodes, answers, parent, reports};
use crate::resources::{Guest, wanted};
use crate::tasks::Task;
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use polliwog_sdk::{Dependency, Sample, Status};
use proxmox::{AgeRule, Ended, Limits, Notes, Part, Trouble, count, judged, list, moment};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

const PART: Part<'_> = ("backup/coverage", &["backup/"]);
const RHYTHM: &str = "backup";
/// How often it is looked at. Backups run daily.
const PERIOD: Duration = Duration::from_secs(5 * 60);
/// Where something could not be read it is looked again sooner.
const AGAIN: Duration = Duration::from_secs(60);
/// Runs within so long are looked at together. Seconds.
const DAY: f64 = 24.0 * 3600.0;
/// A job's run begins at the same time each day, give or take so long. Seconds.
const ROUGHLY: f64 = 30.0 * 60.0;
/// So many runs of a node are read: a run for each guest, of many guests.
const RUNS: u32 = 500;

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
    /// Under prometheus-pve-exporter's name.
    fn sample(&self) -> Option<Sample> {
        let (Number(id), Text(kind)) = (self.vmid.get()?, self.kind.get()?);
        Some(Sample::gauge("pve_not_backed_up_info", 1.0).with_label("id", format!("{kind}/{id}")))
    }

    /// The largest that there can be has nine digits.
    fn id(&self, notes: &mut Notes) -> Option<u64> {
        let id = notes.number(&self.vmid, || "vmid of a guest in no backup job".to_owned());
        id.filter(|id| *id < 1e9).map(|id| id as u64)
    }

    fn shown(&self) -> String {
        self.name.get().map_or_else(|| "one without a name".to_owned(), |Text(name)| name.clone())
    }
}

/// One entry of `/cluster/backup`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Job {
    enabled: Field<Flag>,
    all: Field<Flag>,
    /// Numbers with commas between.
    vmid: Field<Text>,
    exclude: Field<Text>,
    pool: Field<Text>,
    node: Field<Text>,
}

impl Job {
    fn is_on(&self) -> bool {
        self.enabled.get().is_none_or(|Flag(enabled)| *enabled)
    }

    /// Whether it backs a guest up, by what it is told.
    fn covers(&self, guest: &Guest) -> bool {
        let id = guest.id.to_string();
        let names = |field: &Field<Text>| {
            field.get().is_some_and(|Text(list)| list.split([',', ' ', ';']).any(|name| name == id))
        };
        let here = self.node.get().is_none_or(|Text(node)| node.is_empty() || *node == guest.node);
        let all = self.all.get().is_some_and(|Flag(all)| *all);
        let pool = self.pool.get().is_some_and(|Text(pool)| guest.pool.as_ref() == Some(pool));
        here && (names(&self.vmid) || (all || pool) && !names(&self.exclude))
    }
}

/// `cluster`: its name, or that of the node that stands alone.
pub(crate) fn report(look: &mut Look, guests: &[Guest], nodes: &Nodes, cluster: &str) {
    for (name, _) in nodes.iter().filter(|(_, node)| node.is_offline()) {
        look.lose(format!("backup/node/{name}"), format!("nobody can see it: its node {name} is offline"));
    }
    if !look.is_due(RHYTHM) {
        return look.report.keep(PART.1[0]);
    }
    let (covered, jobs) =
        if look.settings.backups.coverage { coverage(look, guests, cluster) } else { (true, Vec::new()) };
    let runs = !look.settings.backups.runs || runs(look, guests, nodes, &jobs);
    look.looked(RHYTHM, if covered && runs { PERIOD } else { AGAIN });
}

/// What is in no job, and the jobs.
fn read(look: &mut Look) -> Result<(Vec<Uncovered>, Vec<Job>), Trouble> {
    let [uncovered, jobs] = look.api.ask(["/cluster/backup-info/not-backed-up", "/cluster/backup"]);
    let uncovered = match uncovered.list(&mut look.notes) {
        // Before 7.0 it stood elsewhere.
        Err(trouble) if trouble.code == "not_served" => {
            let [uncovered] = look.api.ask(["/cluster/backupinfo/not_backed_up"]);
            uncovered.list(&mut look.notes)
        }
        uncovered => uncovered,
    };
    Ok((uncovered?, jobs.list(&mut look.notes)?))
}

/// Guests that no job covers; gives whether there is no need to ask again soon, and the jobs.
fn coverage(look: &mut Look, guests: &[Guest], cluster: &str) -> (bool, Vec<Job>) {
    let read = read(look);
    let settled = read.as_ref().err().is_none_or(|trouble| trouble.permanent);
    let Some((uncovered, jobs)) = look.part((PART.0, &[]), read) else { return (settled, Vec::new()) };
    if look.settings.samples {
        look.report.samples.extend(uncovered.iter().filter_map(Uncovered::sample));
        let all = Sample::gauge("pve_not_backed_up_total", uncovered.len() as f64);
        look.report.samples.push(all.with_label("id", format!("cluster/{cluster}")));
    }
    let by_id: BTreeMap<u64, &Guest> = guests.iter().map(|guest| (guest.id, guest)).collect();
    let (mut missing, mut unread) = (Vec::new(), Vec::new());
    for entry in &uncovered {
        match entry.id(&mut look.notes) {
            // One of which nothing is known may be a template.
            Some(id) => {
                let guest = by_id.get(&id).filter(|guest| guest.name.is_some() || guest.status != "unknown");
                missing.extend(guest.and_then(|guest| needs_backup(look, guest, entry)));
            }
            None => unread.push(entry.shown()),
        }
    }
    let (active, off): (Vec<&Job>, Vec<&Job>) = jobs.iter().partition(|job| job.is_on());
    let only_off =
        |guest: &&Guest| off.iter().any(|job| job.covers(guest)) && !active.iter().any(|job| job.covers(guest));
    if !active.is_empty() {
        // Jobs that are switched off count as cover there.
        let guests = guests.iter().filter(only_off).filter(|guest| !excluded(look, guest));
        missing.extend(guests.map(|guest| format!("{} (its job is switched off)", guest.shown())));
    }
    let (active, off) = (active.len(), off.len());
    let needing = guests.iter().any(|guest| !excluded(look, guest));
    let verdict = if guests.is_empty() {
        (Status::Unknown, Some("no guests are to be seen, so nobody can say which need a backup".to_owned()))
    } else if active == 0 && needing {
        let why = "no backup job is switched on: add one, or list guests that need none in backups.exclude".to_owned();
        (Status::Warning, Some(why))
    } else if missing.is_empty() && !unread.is_empty() {
        let why = format!("guests in no backup job are listed without their numbers: {}", list(&unread));
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
    let dependency = judged(PART.0.to_owned(), "pve-backup", verdict);
    let off = if off == 0 { String::new() } else { format!(", {off} switched off") };
    look.add(dependency.with_description(format!("{} switched on{off}", count(active, "backup job"))));
    (true, jobs)
}

/// How a guest in no job is shown; nothing where it needs none. Templates, which the list has too, are no guests.
fn needs_backup(look: &Look, guest: &Guest, entry: &Uncovered) -> Option<String> {
    let named = || match entry.name.get() {
        Some(Text(name)) if guest.name.is_none() => format!("{} ({name})", guest.id),
        _ => guest.shown(),
    };
    (!excluded(look, guest)).then(named)
}

/// The last runs on each node, and whether all could be read.
fn runs(look: &mut Look, guests: &[Guest], nodes: &Nodes, jobs: &[Job]) -> bool {
    let asked: Vec<&String> = nodes.keys().filter(|name| answers(nodes, name)).collect();
    let path = |node: &&String| format!("/nodes/{node}/tasks?typefilter=vzdump&source=all&limit={RUNS}");
    let replies = look.api.ask_all(asked.iter().map(path).collect());
    let mut newest: BTreeMap<u64, Task> = BTreeMap::new();
    let mut of_nodes: BTreeMap<&str, f64> = BTreeMap::new();
    let mut whole = true;
    let mut unread_nodes: Vec<String> = nodes.keys().filter(|name| !asked.contains(name)).cloned().collect();
    for (node, answer) in asked.iter().zip(replies) {
        let tasks = answer.list::<Task>(&mut look.notes);
        crate::nodes::asked(node, &tasks);
        match tasks {
            Ok(tasks) if tasks.is_empty() => {
                let due = |guest: &&Guest| guest.node == **node && !excluded(look, guest);
                let covered = |guest: &Guest| jobs.iter().any(|job| job.is_on() && job.covers(guest));
                if reports(nodes, node) && guests.iter().filter(due).any(covered) {
                    let why = "a job covers guests on it, and none has run here as far back as its tasks go";
                    let name = format!("backup/node/{node}");
                    let dependency = judged(name, "pve-backup", (Status::Warning, Some(why.to_owned())));
                    look.add(parent(dependency, node));
                }
            }
            Ok(tasks) => {
                let several = sort(tasks, &mut newest);
                of_nodes.extend(several.iter().map(|task| (node.as_str(), task.began())).next());
                let busy = guests.iter().any(|guest| guest.node == **node && !excluded(look, guest));
                let left = if guests.is_empty() { None } else { Some(busy) };
                // Where no guest on it needs a backup, nobody cares how the last run went.
                let cared = reports(nodes, node) && left != Some(false);
                let dependency = of_several(look, node, &several, left).filter(|_| cared);
                look.report.dependencies.extend(dependency.map(|dependency| parent(dependency, node)));
            }
            Err(trouble) => {
                unread(look, node, &trouble);
                unread_nodes.push((*node).clone());
                whole = false;
            }
        }
    }
    for name in nodes.keys().filter(|name| !asked.contains(name)) {
        look.report.keep(format!("backup/node/{name}"));
    }
    for guest in guests {
        let Some(task) = newest.get(&guest.id).filter(|_| is_looked_at(look, guest)) else {
            if nodes.get(&guest.node).is_some_and(Node::is_offline) {
                // It grows old, and its last run may be in the tasks of that node.
                let why = format!("nobody can see it: the guest's node {} is offline", guest.node);
                look.lose_at_look(format!("backup/guest/{}", guest.id), why);
            }
            continue;
        };
        // A later run of several may have it too, and how that ended for it stands in a log only.
        let later = of_nodes.get(guest.node.as_str()).copied().filter(|began| *began > task.began());
        let dependency = of_one(look, guest, task, later, &unread_nodes);
        look.add(dependency);
    }
    if !whole || asked.len() < nodes.len() {
        // The last run of those without one may be on a node that could not be asked.
        look.report.keep("backup/guest/");
    }
    whole
}

fn is_looked_at(look: &Look, guest: &Guest) -> bool {
    let guests = &look.settings.guests;
    wanted(&guest.names(), &guests.include, &guests.exclude) && !excluded(look, guest)
}

/// Whether it needs no backup.
fn excluded(look: &Look, guest: &Guest) -> bool {
    look.settings.backups.exclude.match_any(guest.names().iter().map(String::as_str))
}

fn unread(look: &mut Look, node: &str, trouble: &Trouble) {
    look.notes.say(|| format!("the last backups of {node} are not known: {}", trouble.sentence));
    look.report.keep(format!("backup/node/{node}"));
}

/// Puts the newest run of each guest by itself into `newest`, and gives the runs of several, the newest first. One that has
/// not ended says nothing yet.
fn sort(tasks: Vec<Task>, newest: &mut BTreeMap<u64, Task>) -> Vec<Task> {
    let mut several: Vec<Task> = Vec::new();
    for task in tasks.into_iter().filter(|task| task.is(&["vzdump"]) && task.ended() != Ended::Running) {
        match task.id.get().and_then(|Text(id)| id.parse().ok()) {
            Some(guest) if newest.get(&guest).is_none_or(|known| known.began() < task.began()) => {
                newest.insert(guest, task);
            }
            Some(_) => {}
            None => several.push(task),
        }
    }
    several.sort_by(|one, other| other.began().total_cmp(&one.began()));
    several
}

fn when(task: &Task) -> Option<String> {
    Some(task.began()).filter(|began| *began > 0.0).and_then(moment)
}

/// The runs of several guests on a node: the worst of a day, because there may be more than one job. `left`: whether there are
/// guests on it still, where that is known.
fn of_several(look: &Look, node: &str, runs: &[Task], left: Option<bool>) -> Option<Dependency> {
    let newest = runs.first()?;
    // The same job ran again at this time of day, whatever it did the last time.
    let again = |task: &&Task| {
        let later = runs.iter().map(|other| other.began() - task.began()).filter(|later| *later > DAY - ROUGHLY);
        later.map(|later| (later + ROUGHLY) % DAY).any(|apart| apart <= 2.0 * ROUGHLY)
    };
    let of_the_day = runs.iter().take_while(|task| newest.began() - task.began() < DAY + ROUGHLY);
    let of_the_day = of_the_day.filter(|task| !again(task));
    let bad = of_the_day.filter_map(|task| Some((task.ended().judged(), task)).filter(|((_, why), _)| why.is_some()));
    let worst = bad.reduce(|one, other| if one.0.0.worse(other.0.0) == one.0.0 { one } else { other });
    let shown = |task: &Task| when(task).unwrap_or_else(|| "a time that is not known".to_owned());
    let verdict = match worst {
        Some(((status, why), task)) => {
            let why = why.unwrap_or_default();
            let why = format!("the run of several guests of {} {why}: its log says which of them that is", shown(task));
            (if task.began() == 0.0 { Status::Unknown } else { status }, Some(why))
        }
        None => match aged(look, look.settings.backups.age(), newest.began(), &shown(newest)) {
            (_, Some(why)) if left.is_none() => (
                Status::Unknown,
                Some(format!("{why}; no guests are to be seen, so nobody can say whether that is too long")),
            ),
            verdict => verdict,
        },
    };
    let dependency = judged(format!("backup/node/{node}"), "pve-backup", verdict);
    Some(dependency.with_description(format!("Several guests were backed up at {}", shown(newest))))
}

/// The last run of a guest by itself. `later`: when a run of several was after it, on its node; `unread`: nodes whose runs are
/// not known.
fn of_one(look: &Look, guest: &Guest, task: &Task, later: Option<f64>, unread: &[String]) -> Dependency {
    let shown = when(task).unwrap_or_else(|| "a time that is not known".to_owned());
    let (status, why) = match task.ended().judged() {
        // One of a time that nobody knows says nothing of today.
        (status, Some(why)) => {
            let status = if task.began() == 0.0 { Status::Unknown } else { status };
            (status, Some(format!("the backup of {shown} {why}")))
        }
        (_, None) => {
            let names = guest.names();
            let backups = &look.settings.backups;
            let limits = AgeRule::age(&backups.ages, names.iter().map(String::as_str), backups.age());
            match aged(look, limits, task.began(), &shown) {
                // It may have run there since.
                (Status::Warning | Status::Critical, Some(why)) if !unread.is_empty() => {
                    let nodes = list(unread);
                    (
                        Status::Unknown,
                        Some(format!("{why}, or there are newer ones on {nodes}, whose tasks are not known")),
                    )
                }
                verdict => verdict,
            }
        }
    };
    let verdict = match (later.and_then(moment), &why) {
        (Some(later), Some(why)) => {
            let unknown = format!("{why}; whether the run of several guests of {later} has it, only its log says");
            (Status::Unknown, Some(unknown))
        }
        _ => (status, why),
    };
    let name = format!("backup/{}", guest.dependency());
    let dependency = judged(name, "pve-backup", verdict).with_description(format!("Backed up at {shown}"));
    let dependency = dependency.with_parent(guest.dependency());
    match &guest.name {
        Some(name) => dependency.with_title(format!("backup of {name}")),
        None => dependency,
    }
}

fn aged(look: &Look, limits: Limits, began: f64, shown: &str) -> (Status, Option<String>) {
    if began == 0.0 {
        return (Status::Unknown, Some("its node does not say when it ran".to_owned()));
    }
    if began <= 0.0 || began > look.seconds() + 24.0 * 3600.0 {
        return (Status::Unknown, Some(format!("the last backup is of {shown}, which cannot be")));
    }
    let (status, limit) = limits.judge((look.seconds() - began) / 3600.0);
    let why = (status != Status::Ok).then(|| format!("the last backup is of {shown}, more than {limit} hours ago"));
    (status, why)
}
