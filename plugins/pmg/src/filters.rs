//! The age of virus signatures, and whether there are newer spam rules.
//!
//! For the rules, the gateway queries the network, which takes seconds. They are checked once an hour.

use crate::context::PollContext;
use polliwog_sdk::Status;
use polliwog_sdk::lenient::{Field, Flag, Number, Text};
use proxmox::{Answer, Error, ErrorClass, Verdict, evaluated, list, moment, worse};
use serde::Deserialize;
use std::time::Duration;

const CLAMAV: &str = "clamav";
const SPAMASSASSIN: &str = "spamassassin";
const PERIOD: Duration = Duration::from_secs(60 * 60);
/// A check that could not read everything runs again after this time.
const AGAIN: Duration = Duration::from_secs(5 * 60);

/// One entry of `/nodes/N/clamav/database`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Database {
    name: Field<Text>,
    #[serde(rename = "type")]
    kind: Field<Text>,
    build_time: Field<Text>,
}

/// One entry of `/nodes/N/spamassassin/rules`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Channel {
    channel: Field<Text>,
    update_avail: Field<Flag>,
    /// Seconds since 1970.
    last_updated: Field<Number>,
}

pub(crate) fn report(context: &mut PollContext, nodes: &[String]) {
    for (part, path, read) in [
        (CLAMAV, "/clamav/database", clamav as fn(&mut PollContext, &str, Answer) -> _),
        (SPAMASSASSIN, "/spamassassin/rules", spamassassin),
    ] {
        let filters = &context.settings.filters;
        let unwanted = match part {
            CLAMAV => filters.clamav_warning_hours <= 0.0 && filters.clamav_critical_hours <= 0.0,
            _ => filters.rules_warning_hours <= 0.0,
        };
        if unwanted {
            continue;
        }
        if !context.is_due(part) || nodes.is_empty() {
            context.report.keep(part);
            continue;
        }
        let answers = context.api.patient().ask_all(nodes.iter().map(|node| format!("/nodes/{node}{path}")).collect());
        let (mut worst, mut whole): (Verdict, bool) = ((Status::Ok, None), true);
        for (node, answer) in nodes.iter().zip(answers) {
            let verdict: Result<Verdict, Error> = read(context, node, answer);
            let unread = |error: Error| {
                // The gateway looks rules up by DNS, which takes long if the name server does not answer.
                let hint = if part == SPAMASSASSIN && error.class == ErrorClass::Timeout {
                    "; it looks rules up by DNS: check the gateway's name servers, or set filters.rules_warning_hours to 0"
                } else {
                    ""
                };
                (Status::Unknown, Some(format!("{node}: {}{hint}", error.message)))
            };
            whole &= verdict.is_ok();
            worst = worse(worst, verdict.unwrap_or_else(unread));
        }
        // For the rules, the request itself is expensive, whatever its result is.
        context.checked(part, if whole || part == SPAMASSASSIN { PERIOD } else { AGAIN });
        context.add(evaluated(part, "pmg-filter", worst));
    }
}

fn clamav(context: &mut PollContext, node: &str, answer: Answer) -> Result<Verdict, Error> {
    let databases: Vec<Database> = answer.list(&mut context.diagnostics)?;
    let daily = |database: &&Database| {
        let says = |field: &Field<Text>| field.get().is_some_and(|Text(word)| word.starts_with("daily"));
        says(&database.kind) || says(&database.name)
    };
    let built = databases.iter().filter(daily).map(|daily| daily.build_time.get());
    let times: Option<Vec<f64>> = built.map(|built| built.and_then(|Text(text)| built_at(text))).collect();
    // Of several, the oldest counts, and one that is in the future.
    let oldest = |times: Vec<f64>| {
        times.into_iter().reduce(|one, other| if one > context.seconds() { one } else { one.min(other) })
    };
    let Some(at) = times.and_then(oldest) else {
        return Ok((Status::Unknown, Some(format!("{node} does not report how old its daily signatures are"))));
    };
    if let Some(verdict) = context.future(at, &format!("the build of the daily signatures of {node}")) {
        return Ok(verdict);
    }
    let (status, limit) = context.settings.filters.clamav().evaluate((context.seconds() - at) / 3600.0);
    let when = moment(at).unwrap_or_default();
    let why = format!(
        "the daily signatures of {node} are of {when}, more than {limit} hours old: check clamav-freshclam on the node"
    );
    Ok((status, (status != Status::Ok).then_some(why)))
}

/// Evaluates spam rules. They are downloaded once a night, at a varying time, so newer rules alone are not a failure.
fn spamassassin(context: &mut PollContext, node: &str, answer: Answer) -> Result<Verdict, Error> {
    let limits = context.settings.filters.rules();
    let (mut behind, mut unsaid, mut early) = (Vec::new(), Vec::new(), None);
    for channel in answer.list::<Channel>(&mut context.diagnostics)? {
        let name = channel.channel.get().map_or("a channel", |Text(name)| name.as_str());
        let updated = context.diagnostics.number(&channel.last_updated, || format!("last_updated of {name}"));
        let future = updated.and_then(|at| context.future(at, &format!("the update of {name} on {node}")));
        early = early.or(future);
        let is_old = updated.is_none_or(|at| limits.evaluate((context.seconds() - at) / 3600.0).0 != Status::Ok);
        match context.diagnostics.flag(&channel.update_avail, || format!("update_avail of {name}")) {
            Some(true) if !is_old => {}
            Some(true) => behind.push(format!("{name} on {node}")),
            Some(false) => {}
            None => unsaid.push(format!("{name} on {node}")),
        }
    }
    if behind.is_empty() && !unsaid.is_empty() {
        return Ok((
            Status::Unknown,
            Some(format!("whether there are newer rules is not reported by {}", list(&unsaid))),
        ));
    }
    if behind.is_empty() {
        return Ok(early.unwrap_or((Status::Ok, None)));
    }
    let what = list(&behind);
    let why = format!(
        "there are newer rules, and the installed ones are more than {} hours old: {what}; run \"pmgsh create \
         /nodes/{node}/spamassassin/rules\" on the node, and check why the nightly pmg-daily does not",
        limits.warning
    );
    Ok((Status::Warning, Some(why)))
}

/// Seconds since 1970, from a time as ClamAV writes it: `16 Dec 2025 23-18 +0000`.
fn built_at(text: &str) -> Option<f64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_whitespace();
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let (hour, minute) = words.next()?.split_once(['-', ':'])?;
    let zone = words.next().unwrap_or("+0000");
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    let (sign, hours, minutes) = (zone.get(..1)?, zone.get(1..3)?, zone.get(3..5)?);
    proxmox::seconds(&format!("{year}-{month:02}-{day:0>2}T{hour:0>2}:{minute:0>2}:00{sign}{hours}:{minutes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_clamav_are_parsed() {
        for (text, expected) in [
            ("16 Dec 2025 23-18 +0000", Some(1_765_927_080.0)),
            ("1 Jan 1970 01-00 +0100", Some(0.0)),
            ("16 Dec 2025 23-18", Some(1_765_927_080.0)),
            ("yesterday", None),
            ("32 Dec 2025 23-18 +0000", None),
            ("16 Dez 2025 23-18 +0000", None),
            ("", None),
        ] {
            assert_eq!(built_at(text), expected, "{text}");
        }
    }
}
