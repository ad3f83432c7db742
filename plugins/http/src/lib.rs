//! Kind `http`: checks status, text, latency and certificate of any URL.
//!
//! If a server refuses the connection, times out, cannot be found or returns a wrong answer, the poll succeeds with a
//! critical dependency and the error's code. The poll fails only for problems that the operator has to fix in Polliwog:
//! a denied address, an unknown secret or bad settings.
//!
//! Dependencies: `response` always, `body` if texts are configured, `latency` if thresholds are configured,
//! `certificate` with TLS.

#![deny(unsafe_code)]

mod redirect;
mod settings;

use polliwog_sdk::http::{ExpectedStatus, HttpError, Response, TlsSession};
use polliwog_sdk::prelude::*;
use polliwog_sdk::serde_json::json as value;
use redirect::{Answered, Redirects, Stopped, origin};
use settings::Settings;
use std::time::Duration;

/// The beginning and the end of the message about an intermediate certificate that has expired.
const INTERMEDIATE: &str = "the intermediate certificate";
const EXPIRED: &str = "has expired: renew it";
/// The problem of a certificate for which the contract has no word.
const OTHER: &str = "other";
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The plugin for kind `http`.
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

    fn check(settings: &Settings) -> Vec<SettingsProblem> {
        settings.problems()
    }

    fn poll(target: &Endpoint, settings: Settings) -> Result<Report, CallError> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(problem.into());
        }
        let mut redirects = Redirects::default();
        let error = match redirect::followed(target, &settings, &mut redirects) {
            Ok(answer) => return Ok(answered(&settings, &redirects, &answer)),
            Err(Stopped::Unsent(error)) => return Err(error.into()),
            Err(Stopped::Elsewhere(to, error)) => redirected_elsewhere(target, &to, error),
            Err(Stopped::Unanswered(error)) => error,
        };
        Ok(unanswered(&settings, &redirects, &error))
    }
}

polliwog_sdk::register!(Http);

fn answered(settings: &Settings, redirects: &Redirects, answer: &Answered) -> Report {
    let Answered { response, is_secure, stopped } = answer;
    let took = redirects.took + response.latency();
    let response_checked = status(settings, response, stopped.as_deref()).with_latency(took);
    let mut report: Report = [response_checked].into_iter().collect();
    report.dependencies.extend(body(settings, response));
    report.dependencies.extend(latency(settings, took));
    let session = is_secure.then(|| response.tls()).flatten();
    let found = session.and_then(|session| certificate(settings, &session, clock::now()));
    let report = with_certificate(report, settings, redirects, found.map(accepted));
    without_unchecked(settings, report)
}

/// Adds the worst of the certificates of the servers that redirected and of the last one.
fn with_certificate(
    mut report: Report,
    settings: &Settings,
    redirects: &Redirects,
    last: Option<Dependency>,
) -> Report {
    let of_redirects = redirects.servers.iter().filter_map(|server| {
        let found = accepted(certificate(settings, &server.session, clock::now())?);
        let message = found.error_message.map(|message| format!("{message} ({})", server.origin));
        Some(Dependency { error_message: message, ..found })
    });
    let worst = last
        .into_iter()
        .chain(of_redirects)
        .reduce(|worst, found| if found.status.worse(worst.status) == worst.status { worst } else { found });
    match worst {
        Some(worst) => report.dependencies.push(worst),
        // A redirect may lead to https at another time.
        None => report.keep("certificate"),
    }
    report
}

/// Says which checks are no longer wanted, so that their last state does not count as missing.
fn without_unchecked(settings: &Settings, mut report: Report) -> Report {
    for (name, is_checked) in [("body", settings.checks_body()), ("latency", settings.checks_latency())] {
        if !is_checked {
            report.remove(name);
        }
    }
    report
}

/// The certificates of an answer were accepted: an intermediate one that has expired is not needed.
fn accepted(found: Dependency) -> Dependency {
    match found.error_message.as_deref() {
        Some(why) if why.starts_with(INTERMEDIATE) && why.ends_with(EXPIRED) => {
            Dependency { status: Status::Warning, ..found }
        }
        _ => found,
    }
}

/// Returns the error of a redirect to a URL that the host refused to request.
fn redirected_elsewhere(target: &Endpoint, to: &str, error: HttpError) -> HttpError {
    let is_known = [&target.url].into_iter().chain(&target.also).any(|known| origin(known) == origin(to));
    let remedy = match origin(to) {
        Some(origin) if !is_known => format!("add {origin} to also, or expect the redirect's status"),
        _ => "correct the server's redirect, or expect its status".to_owned(),
    };
    let message = format!("it redirects to {to}, which is refused ({}): {remedy}", error.message);
    HttpError { code: "redirected_elsewhere".to_owned(), message, ..error }
}

/// Returns the report without a whole answer. What could not be checked is unknown. The last known certificate is kept,
/// unless the server showed one.
fn unanswered(settings: &Settings, redirects: &Redirects, error: &HttpError) -> Report {
    let failed = |name: &str| Dependency {
        error: Some(value!({ "code": error.code }).to_string()),
        ..part(Dependency::critical(name, error.message.as_str()), "rest")
    };
    let (response, body, cause) = match error.status {
        // The body says nothing about the status.
        Some(status) if settings.expects(status) => {
            (part(Dependency::ok("response"), "rest").with_code(status.into()), failed("body"), "body")
        }
        Some(status) => (unexpected(settings, status, "", None), unjudged(status), "response"),
        None => {
            let silent = part(Dependency::unknown("body", "there was no answer"), "rest").with_runs_on("response");
            (failed("response"), silent, "response")
        }
    };
    let mut report: Report = [response].into_iter().collect();
    report.dependencies.extend(Some(body).filter(|_| settings.checks_body() || cause == "body"));
    let latency = || part(Dependency::unknown("latency", "there was no whole answer"), "rest").with_runs_on(cause);
    report.dependencies.extend(settings.checks_latency().then(latency));
    let found = error
        .tls()
        .and_then(|session| Some(shown(certificate(settings, &session, clock::now())?, session.problem.as_deref())));
    let report = with_certificate(report, settings, redirects, found);
    without_unchecked(settings, report)
}

fn status(settings: &Settings, response: &Response, stopped: Option<&str>) -> Dependency {
    let code = response.status();
    match settings.expects(code) {
        true => part(Dependency::ok("response"), "rest").with_code(code.into()),
        false => unexpected(settings, code, response.reason(), stopped),
    }
}

/// Returns the dependency of an answer with a status that is not expected. `stopped` says why its redirect was not
/// followed.
fn unexpected(settings: &Settings, code: u16, reason: &str, stopped: Option<&str>) -> Dependency {
    let reason = if reason.is_empty() { String::new() } else { format!(" {reason}") };
    let stopped = stopped.map_or_else(String::new, |stopped| format!(" ({stopped})"));
    let expected = ExpectedStatus::sentence(&settings.expected_status);
    let found = Dependency {
        error: Some(value!({ "code": "unexpected_status", "status": code }).to_string()),
        ..Dependency::critical("response", format!("answered {code}{reason}{stopped}, expected {expected}"))
    };
    part(found, "rest").with_code(code.into())
}

/// Returns the dependency of the body of an answer with a status that is not expected.
fn unjudged(code: u16) -> Dependency {
    let why = format!("the answer has the unexpected status {code}");
    part(Dependency::unknown("body", why), "rest").with_runs_on("response")
}

fn body(settings: &Settings, response: &Response) -> Option<Dependency> {
    if !settings.checks_body() {
        return None;
    }
    if !settings.expects(response.status()) {
        return Some(unjudged(response.status()));
    }
    let text = PageText::of(response);
    let missing = settings.body_contains.iter().find(|wanted| !text.contains(wanted));
    let present = settings.body_excludes.iter().find(|unwanted| text.contains(unwanted));
    let unclear = settings.body_excludes.iter().find(|unwanted| !text.could_show(unwanted));
    let checked = match (missing, present, unclear) {
        (Some(wanted), ..) => Dependency::critical("body", format!("the body does not contain {wanted:?}")),
        (None, Some(unwanted), _) => Dependency::critical("body", format!("the body contains {unwanted:?}")),
        (None, None, Some(unwanted)) => {
            let why = format!(
                "whether the body contains {unwanted:?} is not known, because it is not text in its character set: have \
                 the server declare the right one"
            );
            Dependency::unknown("body", why)
        }
        (None, None, None) => Dependency::ok("body"),
    };
    Some(part(checked, "rest"))
}

/// The text of a body, as far as its character set is known.
struct PageText {
    text: String,
    /// The text in Latin-1, if the body is not UTF-8. The host converts the body from the set that the server declares.
    latin1: Option<String>,
    is_readable: bool,
    /// Whether it may be in another character set than the one that it was taken for.
    is_guessed: bool,
}

/// Beginnings of the names of character sets that the host does not convert to what they mean, and of those the names
/// that it knows (WHATWG Encoding Standard).
const UNREAD_SETS: [&str; 11] =
    ["utf-7", "utf7", "utf-32", "cp", "ibm", "x-user", "ebcdic", "csebcdic", "utf-ebcdic", "csibm", "iso-10646"];
/// The characters at the beginning of a text in which it can state its character set (HTML, section 4.2.5.4).
const PROLOGUE: usize = 1024;
const READ_SETS: [&str; 5] = ["cp125", "cp819", "cp866", "ibm819", "ibm866"];

impl PageText {
    fn of(response: &Response) -> Self {
        let body = response.body();
        let text = response.text();
        let is_utf8 = std::str::from_utf8(body).is_ok();
        // Other control characters are in no text. A text of replacement characters could not be converted at all.
        let is_odd =
            |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0c' | '\x1b' | '\u{80}'..='\u{9f}');
        let is_of = |set: &str, sets: &[&str]| sets.iter().any(|name| set.starts_with(name));
        let is_unread = |set: &str| is_of(set, &UNREAD_SETS) && !is_of(set, &READ_SETS);
        let declared = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let set = declared.split_once("charset=").map(|(_, set)| set.trim_start_matches(['"', '\'', ' ']));
        let is_lost = |c: char| c == '\u{fffd}' || c.is_whitespace();
        let is_replaced = is_utf8 && !text.is_empty() && text.chars().all(is_lost);
        let is_readable = !(is_replaced || text.contains(is_odd) || set.is_some_and(is_unread));
        let latin1 = (!is_utf8).then(|| body.iter().copied().map(char::from).collect());
        let states = |begin: &str| begin.contains("charset") || begin.contains("encoding=");
        let begin = || text.chars().take(PROLOGUE).collect::<String>().to_ascii_lowercase();
        let kind = declared.split(';').next().unwrap_or_default().trim();
        let is_converted = kind.starts_with("text/") && kind != "text/xml";
        // The host converts such a text from this set, unless it is UTF-8, which cannot be seen here.
        let is_guessed = set.is_none()
            && is_converted
            && !text.is_ascii()
            && text.chars().all(is_of_windows_1252)
            && !states(&begin());
        Self { text, latin1, is_readable, is_guessed }
    }

    fn contains(&self, wanted: &str) -> bool {
        self.text.contains(wanted) || self.latin1.as_ref().is_some_and(|text| text.contains(wanted))
    }

    /// Whether a text would be found if it was there.
    fn could_show(&self, wanted: &str) -> bool {
        let is_in_doubt =
            self.latin1.is_some() && !wanted.is_ascii() || self.is_guessed && !wanted.chars().all(is_of_windows_1252);
        self.is_readable && !is_in_doubt
    }
}

/// Whether a character is in the set windows-1252 (WHATWG Encoding Standard).
fn is_of_windows_1252(c: char) -> bool {
    c <= '\u{ff}' || "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ".contains(c)
}

fn latency(settings: &Settings, took: Duration) -> Option<Dependency> {
    if !settings.checks_latency() {
        return None;
    }
    let ms = took.as_millis();
    let above = |limit: Option<u32>| limit.filter(|&limit| took > Duration::from_millis(limit.into()));
    let checked = match (above(settings.latency_critical_ms), above(settings.latency_warning_ms)) {
        (Some(limit), _) => Dependency::critical("latency", format!("took {ms} ms, more than {limit} ms")),
        (None, Some(limit)) => Dependency::warning("latency", format!("took {ms} ms, more than {limit} ms")),
        (None, None) => Dependency::ok("latency"),
    };
    Some(part(checked, "rest").with_latency(took))
}

/// Returns the dependency of the certificates that the server sent: the one that expires first counts, because without
/// it none is accepted. Roots do not count: clients have their own. `None` without a certificate.
fn certificate(settings: &Settings, session: &TlsSession, now: i64) -> Option<Dependency> {
    let leaf = session.leaf()?;
    let others = session.chain.iter().skip(1).filter(|other| other.subject != other.issuer);
    let not_yet = [leaf].into_iter().chain(others.clone()).any(|found| now < found.not_before);
    let first = others.fold(leaf, |first, other| if other.not_after < first.not_after { other } else { first });
    let what = match std::ptr::eq(first, leaf) {
        true => "the certificate".to_owned(),
        false => format!("{INTERMEDIATE} {:?}", first.subject),
    };
    let left = first.not_after.saturating_sub(now);
    let days = left / DAY_MS;
    let checked = if left <= 0 {
        Dependency::critical("certificate", format!("{what} {EXPIRED}"))
    } else if not_yet {
        Dependency::critical("certificate", "it, or one of its chain, is not valid yet: check the clocks")
    } else if days < i64::from(settings.certificate_critical_days) {
        Dependency::critical("certificate", format!("{what} expires in {days} days: renew it"))
    } else if days < i64::from(settings.certificate_warning_days) {
        Dependency::warning("certificate", format!("{what} expires in {days} days: renew it soon"))
    } else {
        Dependency::ok("certificate")
    };
    let details = value!({
        "fingerprint": leaf.fingerprint, "subject": leaf.subject, "issuer": leaf.issuer,
        "notBefore": leaf.not_before, "notAfter": leaf.not_after, "firstExpiry": first.not_after,
    });
    Some(Dependency { check_details: Some(details.to_string()), ..part(checked, "certificate") })
}

/// Returns the dependency of a certificate that was refused for this reason.
fn shown(found: Dependency, problem: Option<&str>) -> Dependency {
    match problem {
        // Its dates say more.
        Some(problem) if found.status != Status::Critical => {
            let problem = if problem == OTHER { String::new() } else { format!(" ({problem})") };
            let message = format!("the certificate is not accepted{problem}: see the error of the response");
            Dependency { status: Status::Critical, error_message: Some(message), ..found }
        }
        _ => found,
    }
}

fn part(dependency: Dependency, kind: &str) -> Dependency {
    Dependency { kind: Some(kind.to_owned()), ..dependency }
}

#[cfg(test)]
mod tests;
