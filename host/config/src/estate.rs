//! The estate file of `simulate`: JSON with targets, classes and outages.

use crate::value::parse_duration;
use scheduler::Settings;
use scheduler::simulator::{Class, Estate, Outage};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::time::Duration;

/// The limits of a simulation: targets, duration, and the product of both in days.
const TARGETS: u32 = 100_000;
const LONGEST: Duration = Duration::from_secs(90 * 86_400);
const TARGET_DAYS: f64 = 1e6;

/// The estate file's content.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object with targets and classes")]
struct Written {
    #[serde(default)]
    name: String,
    targets: u32,
    #[serde(default = "ten")]
    targets_per_host: u32,
    #[serde(default = "day", deserialize_with = "duration")]
    duration: Duration,
    #[serde(default, deserialize_with = "some_duration")]
    base_interval: Option<Duration>,
    #[serde(default, deserialize_with = "some_duration")]
    min_interval: Option<Duration>,
    #[serde(default, deserialize_with = "some_duration")]
    max_interval: Option<Duration>,
    max_in_flight: Option<usize>,
    max_per_host: Option<usize>,
    classes: Vec<WrittenClass>,
    #[serde(default)]
    outages: Vec<WrittenOutage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "a class: an object with share and more")]
struct WrittenClass {
    #[serde(default)]
    name: String,
    share: f64,
    incidents_per_day: f64,
    #[serde(deserialize_with = "duration")]
    incident_length: Duration,
    #[serde(default = "tenth", deserialize_with = "duration")]
    latency: Duration,
    #[serde(default)]
    failure_rate: f64,
    #[serde(default, deserialize_with = "some_duration")]
    interval: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an outage: an object with at, length, share")]
struct WrittenOutage {
    #[serde(deserialize_with = "duration")]
    at: Duration,
    #[serde(deserialize_with = "duration")]
    length: Duration,
    share: f64,
}

fn ten() -> u32 {
    10
}

fn day() -> Duration {
    Duration::from_secs(86_400)
}

fn tenth() -> Duration {
    Duration::from_millis(100)
}

/// Deserializes a duration from text such as `"30s"` or from a number of seconds.
fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let wrong = serde::de::Error::custom;
    match Value::deserialize(deserializer)? {
        Value::String(text) => parse_duration(&text).map_err(wrong),
        Value::Number(seconds) => Duration::try_from_secs_f64(seconds.as_f64().unwrap_or(-1.0))
            .map_err(|_| wrong(format!("{seconds} is not a valid number of seconds"))),
        other => Err(wrong(format!("{other} is not a duration: write \"30s\", or a number of seconds"))),
    }
}

fn some_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

/// Reads the text of an estate file.
///
/// # Errors
/// One sentence that names the wrong key.
pub fn read_estate(text: &str) -> Result<Estate, String> {
    let written: Written = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let defaults = Settings::default();
    let settings = Settings {
        base: written.base_interval,
        min: written.min_interval.unwrap_or(defaults.min),
        max: written.max_interval,
        max_in_flight: written.max_in_flight.unwrap_or(defaults.max_in_flight),
        max_per_host: written.max_per_host.unwrap_or(defaults.max_per_host),
        ..defaults
    };
    let class = |class: WrittenClass| Class {
        name: class.name,
        share: class.share,
        incidents_per_day: class.incidents_per_day,
        incident: class.incident_length,
        latency: class.latency,
        failure_rate: class.failure_rate,
        interval: class.interval,
    };
    let outage = |outage: WrittenOutage| Outage { at: outage.at, length: outage.length, share: outage.share };
    let estate = Estate {
        name: written.name,
        targets: written.targets,
        per_host: written.targets_per_host,
        duration: written.duration,
        settings,
        classes: written.classes.into_iter().map(class).collect(),
        outages: written.outages.into_iter().map(outage).collect(),
    };
    check(&estate)?;
    Ok(estate)
}

/// Fails if a value of the estate is out of range.
fn check(estate: &Estate) -> Result<(), String> {
    let Settings { base, min, max, .. } = estate.settings;
    if !(1..=TARGETS).contains(&estate.targets) {
        return Err(format!("targets: use 1 to {TARGETS}"));
    }
    if estate.duration.is_zero() || estate.duration > LONGEST {
        return Err("duration: use more than 0s and at most 90d".to_owned());
    }
    let target_days = f64::from(estate.targets) * estate.duration.as_secs_f64() / 86_400.0;
    if target_days > TARGET_DAYS {
        return Err(format!("{target_days:.0} target-days take too long: use fewer targets, or a shorter duration"));
    }
    let longest = max.unwrap_or(Duration::from_secs(86_400));
    if min < Duration::from_millis(100) || longest < min || longest > Duration::from_secs(86_400) {
        return Err("minInterval and maxInterval: use 100ms to 1d, with minInterval at most maxInterval".to_owned());
    }
    if base.is_some_and(|base| base < min || base > longest) {
        return Err("baseInterval lies outside minInterval and maxInterval".to_owned());
    }
    for (name, cap) in [("maxInFlight", estate.settings.max_in_flight), ("maxPerHost", estate.settings.max_per_host)] {
        if !(1..=100_000).contains(&cap) {
            return Err(format!("{name}: use 1 to 100000"));
        }
    }
    if estate.per_host == 0 {
        return Err("targetsPerHost: use 1 or more".to_owned());
    }
    if estate.classes.is_empty() || estate.classes.iter().map(|class| class.share).sum::<f64>() <= 0.0 {
        return Err("classes: at least one needs a share above 0".to_owned());
    }
    for (number, class) in estate.classes.iter().enumerate() {
        let wrong = |key: &str, rule: &str| Err(format!("class {} {:?}: {key}: {rule}", number + 1, class.name));
        if !(0.0..=1e9).contains(&class.share) {
            return wrong("share", "use 0 to 1000000000");
        }
        if !(0.0..=10_000.0).contains(&class.incidents_per_day) {
            return wrong("incidentsPerDay", "use 0 to 10000");
        }
        if !(0.0..=1.0).contains(&class.failure_rate) {
            return wrong("failureRate", "use 0 to 1");
        }
        if class.latency > Duration::from_secs(300) {
            return wrong("latency", "use at most 5m");
        }
        if class.interval.is_some_and(|own| own < min || own > longest) {
            return wrong("interval", "use one within minInterval and maxInterval");
        }
    }
    if estate.outages.iter().any(|outage| outage.at >= estate.duration) {
        return Err(
            "outages: an outage begins after the simulation ends: use an earlier `at`, or a longer duration".to_owned()
        );
    }
    if estate.outages.iter().any(|outage| !(0.0..=1.0).contains(&outage.share)) {
        return Err("outages: share: use 0 to 1".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_estates_of_the_repository_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheduler/estates");
        let mut count = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(!read_estate(&text).unwrap().name.is_empty());
            count += 1;
        }
        assert_eq!(count, 3);
    }

    #[test]
    fn errors_name_the_invalid_key() {
        let class = r#"{ "share": 1, "incidentsPerDay": 1, "incidentLength": "5m" }"#;
        let estate = |rest: &str, class: &str| format!(r#"{{ "targets": 3, {rest} "classes": [{class}] }}"#);
        assert!(read_estate(&estate("", class)).is_ok());
        assert!(read_estate(&estate(r#""duration": 3600,"#, class)).is_ok());
        for (text, expected) in [
            (estate(r#""durration": "1d","#, class), "unknown field `durration`"),
            (estate(r#""duration": "soon","#, class), "is not a duration"),
            (estate(r#""duration": "0s","#, class), "duration: use more than 0s"),
            (estate(r#""baseInterval": "1s","#, class), "baseInterval lies outside"),
            (estate(r#""minInterval": "0s","#, class), "minInterval and maxInterval"),
            (estate("", &class.replace("\"share\": 1", "\"share\": 0")), "share above 0"),
            (estate("", &class.replace("\"incidentsPerDay\": 1", "\"incidentsPerDay\": -1")), "incidentsPerDay: use 0"),
            (estate("", ""), "at least one"),
            (estate("", class).replace("\"targets\": 3", "\"targets\": 0"), "targets: use 1"),
            ("[".to_owned(), "line 1 column 1"),
        ] {
            let found = read_estate(&text).unwrap_err();
            assert!(found.contains(expected), "{text}: {found}");
        }
    }
}
