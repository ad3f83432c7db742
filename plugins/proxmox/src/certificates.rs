//! Certificates of a node, and when they expire. All three products list them in the same way.

use crate::{Answer, DAY, Error, PluginMemory, PollContext, Remaining, evaluated, moment, worse};
use polliwog_sdk::lenient::{Field, Number, Text};
use polliwog_sdk::{Dependency, SettingsProblem, Status};
use schemars::JsonSchema;
use serde::Deserialize;

/// No certificate is valid for longer. Seconds.
const LONGEST: f64 = 200.0 * 365.0 * DAY;

/// When a certificate is about to expire.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateLimits {
    /// Fewer remaining days are a warning; 0 for never. Days.
    pub warning_days: f64,
    /// Fewer remaining days are critical; 0 for never. Days.
    pub critical_days: f64,
}

impl Default for CertificateLimits {
    fn default() -> Self {
        // Proxmox renews its own certificates two weeks before they expire, and those of ACME a month before.
        Self { warning_days: 10.0, critical_days: 3.0 }
    }
}

impl CertificateLimits {
    fn remaining(self) -> Remaining {
        Remaining { warning: self.warning_days, critical: self.critical_days }
    }

    /// Returns a problem of the setting `certificates`.
    pub fn problem(self) -> Option<SettingsProblem> {
        self.remaining().problem("certificates.warning_days", "certificates.critical_days")
    }
}

/// One entry of `/nodes/N/certificates/info`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    filename: Field<Text>,
    notafter: Field<Number>,
    notbefore: Field<Number>,
}

/// Evaluates the certificates of a node. `renew` returns the command that renews the certificate in a file.
pub fn certificates<S, M: PluginMemory>(
    context: &mut PollContext<S, M>,
    naming: (String, &str, fn(&str) -> &'static str),
    limits: CertificateLimits,
    answer: Answer,
) -> Result<Dependency, Error> {
    let entries: Vec<Entry> = answer.list(&mut context.diagnostics)?;
    let (mut ends, mut doubt) = (Vec::<(f64, String)>::new(), (Status::Ok, None));
    for entry in &entries {
        let file = entry.filename.get().map_or_else(|| "a certificate".to_owned(), |Text(file)| file.clone());
        let end = context.diagnostics.number(&entry.notafter, || format!("notafter of {file}"));
        let start = context.diagnostics.number(&entry.notbefore, || format!("notbefore of {file}"));
        let early = start.and_then(|start| context.future(start, &format!("the beginning of {file}")));
        doubt = worse(doubt, early.unwrap_or((Status::Ok, None)));
        // A time in milliseconds is beyond this.
        match end.filter(|end| (1.0..context.seconds() + LONGEST).contains(end)) {
            Some(end) => ends.push((end, file)),
            None => {
                let why = format!("it is not reported when {file} expires");
                doubt = worse(doubt, (Status::Unknown, Some(why)));
            }
        }
    }
    let dependency = certificate(context, naming, limits, ends);
    let (status, why) = worse((dependency.status, dependency.error_message), doubt);
    Ok(Dependency { status, error_message: why, ..dependency })
}

/// Evaluates certificates: when each expires, in seconds since 1970, and the name of its file.
pub fn certificate<S, M: PluginMemory>(
    context: &PollContext<S, M>,
    (name, kind, renew): (String, &str, fn(&str) -> &'static str),
    limits: CertificateLimits,
    mut ends: Vec<(f64, String)>,
) -> Dependency {
    ends.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let is_over = |end: f64| end <= context.seconds();
    let when = |end: f64| moment(end).unwrap_or_default();
    let evaluate = |(end, file): &(f64, String)| {
        let (status, _) = limits.remaining().evaluate((end - context.seconds()) / DAY);
        let ends = if is_over(*end) { "has expired, at" } else { "expires at" };
        (status, format!("{file} {ends} {}: {}", when(*end), renew(file)))
    };
    let Some((first, file)) = ends.first() else {
        let why = "the node does not report when its certificates expire".to_owned();
        return evaluated(name, kind, (Status::Unknown, Some(why)));
    };
    let bad: Vec<(Status, String)> = ends.iter().map(evaluate).filter(|(status, _)| *status != Status::Ok).collect();
    // The certificate that expires first is the worst.
    let status = bad.first().map_or(Status::Ok, |(status, _)| *status);
    let why: Vec<String> = bad.into_iter().map(|(_, why)| why).collect();
    evaluated(name, kind, (status, (!why.is_empty()).then(|| why.join("; ")))).with_description(format!(
        "{file} {} valid until {}",
        if is_over(*first) { "was" } else { "is" },
        when(*first)
    ))
}
