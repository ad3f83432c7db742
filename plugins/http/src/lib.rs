//! Kind `http`: any URL. Its status, its text, how long it takes and how long its certificate lasts.
//!
//! The answer is the fact: a server that refuses, times out, cannot be found or answers the wrong thing is a successful
//! poll with a critical dependency and the error's code. Only what the operator has to mend in Polliwog (an address that
//! is denied, an unknown secret, bad settings) fails the poll.
//!
//! Dependencies: `response`; `body` where text is asked for; `latency` where it has thresholds; `certificate` over TLS.

#![deny(unsafe_code)]

mod redirect;
mod settings;

use polliwog_sdk::http::{HttpError, Response, TlsInfo};
use polliwog_sdk::prelude::*;
use polliwog_sdk::serde_json::json as value;
use redirect::Stopped;
use settings::Settings;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The plugin.
pub struct Http;

impl Poller for Http {
    type Settings = Settings;
    const INFO: Info = Info {
        kind: "http",
        title: "HTTP",
        version: env!("CARGO_PKG_VERSION"),
        summary: "Status, text, latency and certificate of any URL",
        ..Info::SERVICE
    };

    fn check(settings: &Settings) -> Vec<String> {
        settings.problems()
    }

    fn poll(target: &Target, settings: Settings) -> Result<Report, PollError> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(PollError::permanent("bad_settings", problem));
        }
        match redirect::followed(target, &settings) {
            Ok(response) => Ok(answered(target, &settings, &response)),
            Err(Stopped::Elsewhere(to)) => Ok(elsewhere(target, &settings, &to)),
            Err(Stopped::Unsent(error)) => Err(error.into()),
            Err(Stopped::Unanswered(error)) => Ok(unanswered(target, &settings, &error)),
        }
    }
}

polliwog_sdk::register!(Http);

fn answered(target: &Target, settings: &Settings, response: &Response) -> Report {
    let mut report: Report = [status(settings, response)].into_iter().collect();
    report.dependencies.extend(body(settings, response));
    report.dependencies.extend(latency(settings, response.total_ms()));
    report.dependencies.extend(response.tls().map(|tls| certificate(settings, tls, target.now)));
    report
}

/// The way leads where the target may not go.
fn elsewhere(target: &Target, settings: &Settings, to: &str) -> Report {
    let message =
        format!("it redirects to {to}, which is neither its url nor in its also: add it there, or expect the redirect");
    let code = "redirected_elsewhere".to_owned();
    unanswered(target, settings, &HttpError { code, message, retryable: false })
}

/// Without an answer the other checks cannot be told; the certificate is as it was.
fn unanswered(target: &Target, settings: &Settings, error: &HttpError) -> Report {
    let failed = Dependency {
        error: Some(value!({ "code": error.code }).to_string()),
        ..part(Dependency::critical("response", error.message.as_str()), "rest")
    };
    let silent = |name: &str| part(Dependency::unknown(name, "there was no answer"), "rest");
    let mut report: Report = [failed].into_iter().collect();
    report.dependencies.extend(settings.looks_at_body().then(|| silent("body")));
    report.dependencies.extend(settings.looks_at_latency().then(|| silent("latency")));
    if target.url.starts_with("https:") {
        report.kept.push("certificate".to_owned());
    }
    report
}

fn status(settings: &Settings, response: &Response) -> Dependency {
    let code = response.status();
    let reason = if response.reason().is_empty() { String::new() } else { format!(" {}", response.reason()) };
    let judged = if settings.expects(code) {
        Dependency::ok("response")
    } else {
        Dependency {
            error: Some(value!({ "code": "unexpected_status", "status": code }).to_string()),
            ..Dependency::critical("response", format!("answered {code}{reason}, expected {}", settings.expected()))
        }
    };
    Dependency { code: Some(code.into()), latency_ms: Some(response.total_ms()), ..part(judged, "rest") }
}

fn body(settings: &Settings, response: &Response) -> Option<Dependency> {
    if !settings.looks_at_body() {
        return None;
    }
    let text = response.text();
    let missing = settings.body_contains.iter().find(|wanted| !text.contains(wanted.as_str()));
    let present = settings.body_excludes.iter().find(|unwanted| text.contains(unwanted.as_str()));
    let judged = match (missing, present) {
        (Some(wanted), _) => Dependency::critical("body", format!("the body does not contain {wanted:?}")),
        (None, Some(unwanted)) => Dependency::critical("body", format!("the body contains {unwanted:?}")),
        (None, None) => Dependency::ok("body"),
    };
    Some(part(judged, "rest"))
}

fn latency(settings: &Settings, ms: f64) -> Option<Dependency> {
    if !settings.looks_at_latency() {
        return None;
    }
    let above = |limit: Option<u32>| limit.filter(|&limit| ms > f64::from(limit));
    let judged = match (above(settings.latency_critical_ms), above(settings.latency_warning_ms)) {
        (Some(limit), _) => Dependency::critical("latency", format!("took {ms:.0} ms, more than {limit} ms")),
        (None, Some(limit)) => Dependency::warning("latency", format!("took {ms:.0} ms, more than {limit} ms")),
        (None, None) => Dependency::ok("latency"),
    };
    Some(Dependency { latency_ms: Some(ms), ..part(judged, "rest") })
}

fn certificate(settings: &Settings, tls: &TlsInfo, now: u64) -> Dependency {
    let left = tls.not_after.saturating_sub(now);
    let days = left / DAY_MS;
    let judged = if left == 0 {
        Dependency::critical("certificate", "the certificate has expired: renew it")
    } else if now < tls.not_before {
        Dependency::critical("certificate", "the certificate is not valid yet: check the clocks")
    } else if days < u64::from(settings.certificate_critical_days) {
        Dependency::critical("certificate", format!("the certificate expires in {days} days: renew it"))
    } else if days < u64::from(settings.certificate_warning_days) {
        Dependency::warning("certificate", format!("the certificate expires in {days} days: renew it soon"))
    } else {
        Dependency::ok("certificate")
    };
    let details = value!({
        "fingerprint": tls.fingerprint, "subject": tls.subject, "issuer": tls.issuer,
        "notBefore": tls.not_before, "notAfter": tls.not_after,
    });
    Dependency { check_details: Some(details.to_string()), ..part(judged, "certificate") }
}

fn part(dependency: Dependency, kind: &str) -> Dependency {
    Dependency { kind: Some(kind.to_owned()), ..dependency }
}

#[cfg(test)]
mod tests;
