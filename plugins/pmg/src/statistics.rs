//! Today's mail and the quarantine, as samples. They have no status.

use crate::context::PollContext;
use polliwog_sdk::Sample;
use polliwog_sdk::lenient::{Field, Number};
use proxmox::SortedMap;
use serde::Deserialize;

/// Fields of `/statistics/mail`, with the labels of their samples: direction and kind.
const COUNTS: [(&str, &str, &str); 8] = [
    ("count_in", "in", "all"),
    ("count_out", "out", "all"),
    ("spamcount_in", "in", "spam"),
    ("spamcount_out", "out", "spam"),
    ("viruscount_in", "in", "virus"),
    ("viruscount_out", "out", "virus"),
    ("bounces_in", "in", "bounce"),
    ("bounces_out", "out", "bounce"),
];

/// `/quarantine/spamstatus` or `/quarantine/virusstatus`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Quarantine {
    count: Field<Number>,
    mbytes: Field<Number>,
}

pub(crate) fn report(context: &mut PollContext) {
    let [mail, spam, virus] =
        context.api.ask(["/statistics/mail", "/quarantine/spamstatus", "/quarantine/virusstatus"]);
    match mail.read::<SortedMap<String, Field<Number>>>() {
        Ok(counts) => {
            for (field, direction, kind) in COUNTS {
                let Some(count) = counts.get(field) else { continue };
                if let Some(count) = context.diagnostics.number(count, || format!("{field} of the mail statistics")) {
                    let sample = Sample::gauge("pmg_mail_today_messages", count);
                    context.report.samples.push(sample.with_label("direction", direction).with_label("kind", kind));
                }
            }
        }
        Err(error) => context.diagnostics.add(|| format!("the mail statistics are not known: {}", error.message)),
    }
    for (kind, answer) in [("spam", spam), ("virus", virus)] {
        match answer.read::<Quarantine>() {
            Ok(quarantine) => {
                let count = context.diagnostics.number(&quarantine.count, || format!("count of the {kind} quarantine"));
                let mbytes =
                    context.diagnostics.number(&quarantine.mbytes, || format!("mbytes of the {kind} quarantine"));
                let sample = |name: &str, value: f64| Sample::gauge(name, value).with_label("kind", kind);
                context.report.samples.extend(count.map(|count| sample("pmg_quarantine_messages", count)));
                let bytes = mbytes.map(|mbytes| sample("pmg_quarantine_bytes", mbytes * 1024.0 * 1024.0));
                context.report.samples.extend(bytes);
            }
            Err(error) => context.diagnostics.add(|| format!("the {kind} quarantine is not known: {}", error.message)),
        }
    }
}
