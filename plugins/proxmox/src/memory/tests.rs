use super::*;
use crate::expiring::LONG;
use crate::schedule::Check;
use polliwog_sdk::{Dependency, Report, Sample, testing};
use std::time::Duration;

type Memory = super::Memory<Names>;

/// A plugin that remembers names.
#[derive(Default, Deserialize, Serialize)]
struct Names {
    names: Vec<String>,
}

impl PluginMemory for Names {
    const SHED: &'static str = "names";

    fn purge(&mut self, _: u64) {}

    fn shed(&mut self, _: &mut Sections) -> bool {
        !std::mem::take(&mut self.names).is_empty()
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// A target at a time.
fn target(settings: &str, now: i64) -> Endpoint {
    testing::set_time(now);
    testing::target(settings)
}

/// Names that need `bytes` bytes.
fn names(bytes: usize) -> Vec<String> {
    vec!["x".repeat(97); bytes / 100]
}

fn report(names: &[String]) -> Report {
    names.iter().enumerate().map(|(index, name)| Dependency::ok(format!("guest/{index}{name}"))).collect()
}

#[test]
fn the_document_is_read_once_and_written_once() {
    let mut memory = Memory::load(&target("{}", 1_000));
    memory.plugin.names.push("a".to_owned());
    memory.read.renew("nodes", (), 1_000, LONG);
    memory.silent.set("https://a", SilentOrigin::default(), 1_000, HOUR);
    memory.schedule.set("hourly/zfs", Check::new(vec!["odd".to_owned()], &[Sample::gauge("x", 0.1)]), 1_000, HOUR);
    assert!(cache::get(KEY).is_none(), "nothing is written before the end of a poll");
    assert!(memory.save().is_empty());

    let memory = Memory::load(&target("{}", 2_000));
    assert_eq!(memory.plugin.names, ["a"]);
    assert!(memory.read.get("nodes", 2_000).is_some() && memory.silent.get("https://a", 2_000).is_some());
    let check = memory.schedule.valid("hourly/zfs", 2_000).expect("it is valid for an hour");
    assert_eq!((check.diagnostics.as_slice(), check.samples().next().unwrap().value), (&["odd".to_owned()][..], 0.1));
}

#[test]
fn an_unchanged_document_is_written_once_a_day() {
    let mut memory = Memory::load(&target("{}", 1_000));
    memory.plugin.names.push("a".to_owned());
    memory.save();
    let written = cache::get(KEY);
    for (now, renewed) in [(2_000, false), (RENEWED + 999, false), (RENEWED + 1_000, true)] {
        Memory::load(&target("{}", now as i64)).save();
        assert_eq!(cache::get(KEY) != written, renewed, "{now}");
    }
}

#[test]
fn each_value_expires_by_itself() {
    let mut memory = Memory::load(&target("{}", 0));
    memory.silent.set("https://a", SilentOrigin::default(), 0, Duration::from_secs(60));
    memory.missed.renew("nodes", 0, 0, LONG);
    memory.schedule.set("qdevice", Check::default(), 0, Duration::from_secs(300));
    memory.save();
    let memory = Memory::load(&target("{}", 60_000));
    assert!(memory.silent.get("https://a", 60_000).is_none());
    assert!(memory.schedule.valid("qdevice", 60_000).is_some());
    memory.save();
    let memory = Memory::load(&target("{}", 300_000));
    assert!(memory.schedule.valid("qdevice", 300_000).is_none());
    assert_eq!(memory.missed.get("nodes", 300_000), Some(&0));
    memory.save();
    let stored = String::from_utf8(cache::get(KEY).unwrap()).unwrap();
    assert!(!stored.contains("qdevice") && !stored.contains("https://a"), "{stored}");
}

#[test]
fn changed_settings_make_everything_due() {
    let mut memory = Memory::load(&target("{}", 0));
    memory.schedule.set("qdevice", Check::default(), 0, HOUR);
    memory.plugin.names.push("a".to_owned());
    memory.save();
    let memory = Memory::load(&target(r#"{"samples": true}"#, 1_000));
    assert!(memory.schedule.valid("qdevice", 1_000).is_none());
    assert_eq!(memory.plugin.names, ["a"]);
}

#[test]
fn a_damaged_or_older_document_reads_as_empty() {
    let mut memory = Memory::load(&target("{}", 1_000));
    memory.plugin.names.push("a".to_owned());
    memory.save();
    let good = String::from_utf8(cache::get(KEY).unwrap()).unwrap();
    for damaged in [
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        good[..good.len() / 2].to_owned(),
        good.replace("\"plugin\"", "\"own\""),
        good.replace("{\"written\"", "{\"age\":1,\"written\""),
        good.replace("\"names\":[", "\"names\":[1,"),
    ] {
        cache::set(KEY, damaged.as_bytes(), HOUR).unwrap();
        assert!(Memory::load(&target("{}", 2_000)).plugin.names.is_empty(), "{damaged}");
    }
    cache::set(KEY, good.as_bytes(), HOUR).unwrap();
    assert_eq!(Memory::load(&target("{}", 2_000)).plugin.names, ["a"]);
}

#[test]
fn a_memory_that_is_too_large_loses_what_matters_least() {
    let samples = |bytes: usize| vec![Sample::gauge("x".repeat(80), 1.0); bytes / 100];
    let steps = ["samples between two checks", Names::SHED, "the names of all dependencies"];
    // Bytes of samples, of the plugin's names and of the inventory, and how many parts are dropped.
    for (sampled, named, listed, expected) in [
        (300_000, 300_000, 300_000, 0),
        (900_000, 300_000, 300_000, 1),
        (300_000, 900_000, 200_000, 2),
        (300_000, 300_000, 2_000_000, 3),
    ] {
        ["memory", "inventory/guest"].into_iter().for_each(cache::remove);
        let mut memory = Memory::load(&target("{}", 1_000));
        memory.schedule.set("backup", Check::new(vec!["odd".to_owned()], &samples(sampled)), 1_000, HOUR);
        memory.plugin.names = names(named);
        memory.inventory.update(&report(&names(listed)), &mut memory.sections, 1_000);
        assert_eq!(memory.save(), steps[..expected], "{sampled} {named} {listed}");
        let memory = Memory::load(&target("{}", 2_000));
        let check = memory.schedule.valid("backup", 2_000).expect("the check itself is remembered");
        assert_eq!(check.diagnostics, ["odd"]);
        let left = [check.samples().next().is_none(), memory.plugin.names.is_empty()];
        assert_eq!(left, [expected >= 1, expected >= 2]);
        assert_eq!(memory.inventory.names("guest/", &memory.sections).is_empty(), expected >= 3);
    }
}

#[test]
fn parts_that_are_empty_are_not_reported_as_dropped() {
    let mut memory = Memory::load(&target("{}", 1_000));
    memory.plugin.names = names(1_200_000);
    assert_eq!(memory.save(), [Names::SHED]);
}

#[test]
fn the_old_document_makes_room_for_new_sections() {
    let mut memory = Memory::load(&target("{}", 0));
    let samples = vec![Sample::gauge("x".repeat(80), 1.0); 7_000];
    memory.schedule.set("backup", Check::new(Vec::new(), &samples), 0, HOUR);
    assert!(memory.save().is_empty());
    let mut memory = Memory::load(&target("{}", 3_600_000));
    memory.inventory.update(&report(&names(500_000)), &mut memory.sections, 3_600_000);
    assert!(memory.save().is_empty());
    let memory = Memory::load(&target("{}", 3_600_001));
    assert_eq!(memory.inventory.names("guest/", &memory.sections).len(), 5_000);
}
