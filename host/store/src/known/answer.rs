//! The meaning of a report that came with an error: a health endpoint may answer 503 with all its parts, and a proxy
//! before it may answer 503 with something else.

use std::collections::HashSet;

use model::{Dependency, DependencyState, Outcome, Report, Status};

/// The name of the dependency that says that the answer was an error.
const NAME: &str = "http";
/// Its kind, by which it is recognised later: plugins have kinds of their own.
const KIND: &str = "http-answer";

/// Returns the outcome of a poll for a target with these dependencies: its report, or the error that it has in case it
/// is not a report of this target. It is one if it has a known dependency or, if none is known, one whose status the
/// source knows. If it is one and no part is critical, the error is: a service that answers 503 is not well, whatever
/// it says of its parts.
pub(super) fn judged(known: &[DependencyState], outcome: Outcome) -> Outcome {
    let Outcome::Success(mut report) = outcome else { return outcome };
    let is_kept = |found: &DependencyState| found.record.reported.name == NAME && found.record.reported.kind == KIND;
    let held = known.iter().find(|found| is_kept(found)).map(|found| &found.record.reported);
    let Some(error) = report.error_unless_known.take() else {
        if held.is_some() && !report.dependencies.iter().any(|found| found.name == NAME) {
            report.dependencies.push(answer(Status::Ok));
        }
        return Outcome::Success(report);
    };
    if !is_of_target(known, &report) {
        return Outcome::Failure(*error);
    }
    add_error(&mut report, held, error.message);
    Outcome::Success(report)
}

/// Adds the answer as a critical dependency that runs on the critical parts, unless those parts say enough: they do as
/// long as the answer was no dependency before.
fn add_error(report: &mut Report, held: Option<&Dependency>, message: String) {
    let is_critical = |found: &&Dependency| found.status == Status::Critical && !found.skipped;
    let critical: Vec<String> =
        report.dependencies.iter().filter(is_critical).map(|found| found.name.clone()).take(64).collect();
    if !critical.is_empty() && held.is_none() {
        return;
    }
    let why = match critical.is_empty() {
        true => format!("no part of the report is critical, but {message}"),
        false => message,
    };
    // The message quotes words of the body, which may differ in each answer with the same status.
    let before_quote = |text: &str| text.split('"').next().map(str::to_owned);
    let said = held.filter(|held| held.status == Status::Critical && held.runs_on == critical);
    let said = said.and_then(|held| held.error_message.clone()).filter(|said| before_quote(said) == before_quote(&why));
    let why = said.unwrap_or(why);
    let wrong = Dependency { error_message: Some(why), runs_on: critical, ..answer(Status::Critical) };
    match report.dependencies.iter_mut().find(|found| found.name == NAME) {
        // A part with this name is worse than it says.
        Some(part) if wrong.runs_on.is_empty() => {
            part.status = Status::Critical;
            part.skipped = false;
            part.error_message = wrong.error_message;
        }
        Some(_) => {}
        None => report.dependencies.push(wrong),
    }
}

fn is_of_target(known: &[DependencyState], report: &Report) -> bool {
    let mut names = known.iter().filter(|found| found.record.reported.kind != KIND).peekable();
    if names.peek().is_none() {
        return report.dependencies.iter().any(|found| found.status != Status::Unknown);
    }
    let known: HashSet<&str> = names.map(|found| found.record.reported.name.as_str()).collect();
    report.dependencies.iter().any(|found| known.contains(found.name.as_str()))
}

fn answer(status: Status) -> Dependency {
    Dependency { kind: KIND.to_owned(), ..Dependency::new(NAME, status) }
}

#[cfg(test)]
mod tests;
