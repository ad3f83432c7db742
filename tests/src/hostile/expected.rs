//! The expected result of each guest.

use egress::Timing;
use model::{FailureCategory, Outcome, Report, Status};
use sandbox::{Done, Sent};

/// The expected result of a guest.
pub enum Expect {
    /// Loading is refused with this code.
    Refused(&'static str),
    /// The check of settings fails with a message that contains this text.
    CheckFails(&'static str),
    /// The check of settings finds too many problems. This number of entries is shown.
    Complains(usize),
    /// The poll ends with a fault of the plugin with this code.
    Fault(&'static str),
    /// The poll fails with this category and code, without a fault of the plugin.
    Fails(FailureCategory, &'static str),
    /// The poll ends with a report that was repaired. The function checks it.
    Reports(fn(&Report) -> bool),
}

impl Expect {
    /// Returns whether the poll is expected to time out.
    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, Self::Fails(FailureCategory::Transient, "timeout"))
    }

    /// Checks a guest whose file was refused.
    pub(super) fn refused(&self, code: &str, message: &str) -> Result<String, String> {
        match self {
            Self::Refused(expected) if *expected == code => {
                // The reason is in brackets after "failed".
                let why = message.split_once(" failed (").and_then(|(_, rest)| rest.split_once(')'));
                Ok(why.map_or_else(|| format!("describe: {code}"), |(why, _)| format!("describe: {why}")))
            }
            _ => Err(format!("the file was refused: {code}: {message}")),
        }
    }

    /// Checks the problems that a guest found in settings. Returns `None` if the poll decides.
    pub(super) fn checked(&self, problems: &[String]) -> Result<Option<String>, String> {
        match (self, problems) {
            (Self::Refused(code), _) => Err(format!("the file was loaded, expected refusal {code}")),
            (Self::CheckFails(word), [problem]) if problem.contains(word) && problem.len() <= 2048 => {
                Ok(Some(format!("check-settings: {word}")))
            }
            (Self::CheckFails(word), _) => {
                let found: String = problems.join("; ").chars().take(300).collect();
                Err(format!("expected a failed check of settings ({word}), found: {found}"))
            }
            (Self::Complains(shown), problems) if problems.len() == *shown => {
                Ok(Some("check-settings: shortened".to_owned()))
            }
            (_, []) => Ok(None),
            (_, problems) => Err(format!("unexpected problems with settings: {problems:?}")),
        }
    }

    /// Checks the result of a guest's poll.
    pub(super) fn polled(&self, done: &Done) -> Result<String, String> {
        let wrong = || {
            let result: String = format!("{done:?}").chars().take(1500).collect();
            Err(format!("unexpected result of the poll: {result}"))
        };
        match (self, &done.outcome) {
            (Self::Fault(code), Outcome::Failure(failure))
                if failure.category == FailureCategory::Plugin && failure.code == *code =>
            {
                Ok(format!("poll: {code}"))
            }
            (Self::Fails(category, code), Outcome::Failure(failure))
                if failure.category == *category && failure.code == *code && failure.message.len() <= 1024 =>
            {
                Ok(format!("poll: {code} ({})", category.as_str()))
            }
            (Self::Reports(good), Outcome::Success(report)) if good(report) => Ok("poll: repaired".to_owned()),
            _ => wrong(),
        }
    }
}

/// Returns the result of sending a notification in the form of a poll's. A notification that was taken is a report.
pub(super) fn sent(sent: Sent) -> Done {
    let Sent { result, usage, seen, stored } = sent;
    let outcome = result.map_or_else(Outcome::Failure, |()| Outcome::Success(Report::default()));
    Done { outcome, usage, seen, timing: Timing::default(), stored }
}

/// Returns whether every dependency has the expected title. The guests write the error codes of their attempts there.
fn tried(report: &Report, expected: &str) -> bool {
    !report.dependencies.is_empty()
        && report.dependencies.iter().all(|dependency| dependency.title.as_deref() == Some(expected))
}

fn warned(report: &Report, text: &str) -> bool {
    report.warnings.iter().any(|warning| warning.contains(text))
}

fn clean(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) || c == '\u{200b}')
}

macro_rules! expect {
    ($($guest:ident: $expect:expr;)*) => {
        use Expect::{CheckFails, Complains, Fails, Fault, Refused, Reports};
        use FailureCategory::{Misconfigured, Permanent, Transient};
        $(
            #[allow(missing_docs, reason = "the guest's file documents it")]
            pub fn $guest() -> Expect {
                $expect
            }
        )*
    };
}

expect! {
    // The guest never ends or uses too many resources.
    endless_loop: Fault("cpu_limit");
    logs_forever: Fault("cpu_limit");
    calls_the_host_forever: Fault("cpu_limit");
    fetches_forever: Fault("cpu_limit");
    fills_memory: Fault("cpu_limit");
    copies_memory: Fault("cpu_limit");
    exhausts_masking: Fault("cpu_limit");
    post_return_loops: Fault("cpu_limit");
    sleeps: Fails(Transient, "timeout");
    stuck_in_fetch: Fails(Transient, "timeout");
    memory_bomb: Fault("memory_limit");
    takes_memory: Fault("memory_limit");
    takes_memory_twice: Fault("memory_limit");
    starts_with_too_much_memory: Refused("too_large");
    grows_a_table: Fault("table_limit");
    recurses: Fault("stack");
    recurses_deeply: Fault("stack");

    // The guest traps.
    panicking: Fault("panic");
    aborts: Fault("panic");
    exits: Fault("exit");
    unreachable: Fault("panic");
    divides_by_zero: Fault("trap");
    reads_out_of_bounds: Fault("stack");
    writes_out_of_bounds: Fault("stack");
    calls_a_null_entry: Fault("trap");
    calls_beyond_the_table: Fault("trap");
    calls_another_type: Fault("trap");
    converts_nan_to_an_integer: Fault("trap");
    post_return_traps: Fault("panic");

    // The guest passes values that violate the contract.
    report_points_nowhere: Fault("trap");
    report_is_misaligned: Fault("trap");
    report_lists_billions: Fault("trap");
    report_lists_nowhere: Fault("trap");
    report_has_an_invalid_variant: Fault("trap");
    status_is_out_of_range: Fault("trap");
    name_is_not_utf8: Fault("trap");
    name_is_a_surrogate: Fault("trap");
    name_is_endless: Fault("trap");
    realloc_is_misaligned: Fault("trap");
    logs_invalid_utf8: Fault("trap");
    logs_out_of_bounds: Fault("trap");
    logs_at_an_unknown_level: Fault("trap");
    fetches_billions: Fault("trap");

    // The start or `describe` fails.
    start_loops: Refused("describe_failed");
    start_traps: Refused("describe_failed");
    start_takes_memory: Refused("describe_failed");
    describe_loops: Refused("describe_failed");
    describe_traps: Refused("describe_failed");
    describe_points_nowhere: Refused("describe_failed");
    kind_is_not_utf8: Refused("describe_failed");
    describe_lists_billions: Refused("describe_failed");
    schema_is_huge: Refused("bad_descriptor");
    settings_version_is_zero: Refused("bad_descriptor");
    schema_is_invalid: Refused("bad_descriptor");
    schema_is_external: Refused("bad_descriptor");
    schema_is_recursive: Refused("bad_descriptor");
    schema_doubles: Refused("bad_descriptor");
    kind_is_a_path: Refused("bad_descriptor");
    kind_is_endless: Refused("bad_descriptor");
    version_is_missing: Refused("bad_descriptor");
    pattern_is_invalid: Refused("bad_descriptor");
    pattern_explodes: Refused("bad_descriptor");
    wants_too_many_secrets: Refused("bad_descriptor");
    intervals_are_absurd: Reports(|_| true);
    fetches_while_described: Reports(|_| true);
    check_loops: CheckFails("CPU time");
    check_traps: CheckFails("panicked");
    check_lists_nowhere: CheckFails("out of bounds");
    realloc_loops: CheckFails("CPU time");
    realloc_traps: CheckFails("panicked");
    realloc_lies: CheckFails("beyond end of memory");
    realloc_calls_the_host: CheckFails("cannot leave");
    check_complains_without_end: Complains(21);
    check_complains_hugely: CheckFails("wrong");
    migrate_loops: CheckFails("their conversion from version 1 failed: ");
    migrate_panics: CheckFails("no settings are converted here");
    migrate_returns_a_list: CheckFails("the plugin returned no JSON object");
    migrate_returns_too_much: CheckFails("more than 65536");
    migrate_returns_unknown_keys: CheckFails("the result is not valid: unknown key \"odd\"");

    // The report is too large or invalid.
    oversized_report: Fault("output_limit");
    too_many_dependencies: Fails(Permanent, "too_many_dependencies");
    too_many_samples: Fault("too_many_samples");
    too_many_kept: Fault("too_many_kept");
    too_many_gone: Fault("too_many_gone");
    store_overflows: Fault("panic");
    store_without_end: Fault("cpu_limit");
    stores_a_count: Reports(|report| report.dependencies[0].code == Some(1));
    name_is_huge: Reports(|report| {
        report.dependencies.len() == 2 && report.dependencies[0].name.len() <= 256 && warned(report, "is not plain")
    });
    warns_without_end: Reports(|report| {
        report.warnings.len() == 1000 && report.warnings.iter().all(|warning| warning.len() <= 1024)
    });
    numbers_are_invalid: Reports(|report| {
        report.samples.iter().all(|sample| sample.value.is_finite())
            && report.dependencies.iter().filter_map(|d| d.latency_ms).all(|ms| ms.is_finite() && ms >= 0.0)
    });
    labels_are_hostile: Reports(|report| report.samples.len() == 1 && report.samples[0].name == "good");
    metrics_are_the_hosts: Reports(|report| report.samples.len() == 1 && report.samples[0].name == "mine");
    runs_on_forms_a_cycle: Reports(|report| report.dependencies.iter().map(|d| d.runs_on.len()).sum::<usize>() == 1);
    names_repeat: Reports(|report| report.dependencies.len() == 1 && report.dependencies[0].status == Status::Critical);
    texts_are_hostile: Reports(|report| {
        let names: Vec<&str> = report.dependencies.iter().map(|dependency| dependency.name.as_str()).collect();
        let [.., dependency] = &report.dependencies[..] else { return false };
        let texts = [&dependency.title, &dependency.impact, &dependency.description, &dependency.error_message];
        names == ["item 1", "item 2", "a b", "<b>bold</b>"]
            && texts.into_iter().flatten().all(|text| clean(text))
            && dependency.error.is_none() && dependency.contact.is_none() && dependency.check_details.is_none()
    });
    fails_oddly: Fails(Permanent, "unspecified");

    // The guest attempts to access forbidden resources.
    probes_the_system: Reports(|report| report.dependencies.iter().all(|dependency| dependency.status == Status::Ok));
    requests_other_origins: Reports(|report| {
        let code = |title: &Option<String>| matches!(title.as_deref(), Some("denied" | "bad_request"));
        report.dependencies.iter().all(|dependency| code(&dependency.title))
    });
    follows_a_redirect: Reports(|report| tried(report, "denied"));
    injects_headers: Reports(|report| tried(report, "bad_request"));
    sets_the_hosts_headers: Reports(|report| tried(report, "bad_request"));
    uses_unknown_secrets: Reports(|report| tried(report, "secret_unknown"));
    puts_a_secret_in_the_path: Fails(Permanent, "bad_request");
    has_secrets_echoed: Reports(|report| {
        // In the form "split", the stars are beyond the maximum length of a description.
        let seen = |d: &model::Dependency| d.description.as_deref().is_some_and(|text| text.contains("****"));
        report.dependencies.iter().all(|d| seen(d) || d.name == "split")
    });
    ends_answers_inside_secrets: Reports(|report| {
        report.dependencies.iter().all(|dependency| {
            let seen = dependency.title.as_deref().unwrap_or_default();
            let stars = || seen.trim_start_matches('*');
            match dependency.name.split('/').next().unwrap_or_default() {
                // The host waits for the end of the answer, which is behind the secret.
                "until" => seen.starts_with('*') && stars() == "true",
                "first" => dependency.name.ends_with(&(seen.len() - stars().len()).to_string()) && stars() == "false",
                "none" => seen == "false",
                "refused" => seen == "bad_request",
                _ => false,
            }
        })
    });
    opens_a_session: Fails(Misconfigured, "not_found");
    close_never_ends: Reports(|report| report.dependencies.len() == 1);
    guesses_secrets_by_signatures: Reports(|report| {
        report.dependencies.iter().all(|dependency| {
            let seen = dependency.title.as_deref().unwrap_or_default();
            match dependency.name.split_once('/').map_or(dependency.name.as_str(), |(kind, _)| kind) {
                "basic" | "digest" if dependency.name.contains('/') => seen == "untouched",
                "digest" | "keyed" | "base64" | "derived" => seen.len() > 20 && seen.bytes().all(|byte| byte == b'*'),
                "pattern" => matches!(seen, "capture_missing" | "capture_too_short"),
                "kept" => matches!(seen, "capture_missing" | "secret_unknown"),
                "refused" if dependency.name.ends_with("absent") => seen == "secret_unknown",
                "refused" if dependency.name.contains("/no ") => seen == "secret_unusable",
                "refused" if dependency.name.ends_with(['E', 'T']) => seen == "denied",
                "refused" => seen == "bad_request",
                "work" => seen == r#"[None, Some("too_much_signed_in_poll"), Some("too_much_signed_in_poll")]"#,
                _ => false,
            }
        })
    });
    makes_too_many_requests: Reports(|report| {
        report.dependencies.len() == 1 && report.dependencies[0].name == "too_many_requests_in_poll"
    });
    makes_all_requests_at_once: Reports(|report| {
        let codes: Vec<_> = report.dependencies.iter().map(|dependency| dependency.code).collect();
        codes == [Some(512), Some(10_000 - 512)]
    });
    sends_too_much: Fault("output_limit");
    fills_the_cache: Reports(|report| {
        let kept = report.dependencies.iter().filter(|dependency| dependency.code == Some(1)).count();
        kept == 10 && report.warnings == ["key: invalid-argument", "value: full", "time: invalid-argument"]
    });
    writes_to_stdout: Reports(|_| true);
    logs_too_much: Reports(|_| true);
    forges_log_lines: Reports(|_| true);
    leaves_traces: Reports(|_| true);
    looks_for_traces: Reports(|_| true);
    cached: Reports(|report| report.dependencies.len() == 2);

    // The guest sends notifications.
    notifier_loops: Fault("cpu_limit");
    notifier_panics: Fault("panic");
    notifier_records_too_much: Fault("panic");
    notifier_fills_memory: Fault("memory_limit");
    notifier_sends_elsewhere: Fails(Permanent, "all_denied");
    notifier_has_its_secret_echoed: Fails(Permanent, "echoed");
    notifier_believes_an_alert: Reports(|_| true);
    notifier_sends_forever: Fails(Permanent, "too_many_requests_in_poll");
    notifier_complains_hugely: Fails(Permanent, "refused");
}
