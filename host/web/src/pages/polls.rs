//! The last polls of a target: how long each phase took, and what each cost.

use super::parts::age;
use crate::chart::milliseconds;
use maud::{Markup, html};
use model::{Phases, PollMeasure};

/// The section of the last polls.
pub(super) fn section(polls: &[PollMeasure]) -> Markup {
    html! {
        section #polls.target {
            h2 { "Last polls" }
            @if polls.is_empty() { p.note { "This host has not polled it yet." } } @else {
                div.scroll tabindex="0" role="region" aria-label="last polls" { table.dependencies {
                    thead { tr {
                        th scope="col" { "Ended" } th scope="col" { "Result" } th scope="col" { "Took" } th scope="col" { "Name look-up" }
                        th scope="col" { "Connect" } th scope="col" { "TLS" } th scope="col" { "First byte" } th scope="col" { "Rest" }
                        th scope="col" { "Processor" } th scope="col" { "Requests" } th scope="col" { "Received" }
                    } }
                    tbody { @for poll in polls { (row(poll)) } }
                } }
                p.note { "The phases are sums over the requests of a poll, which may run at the same time. A kept connection skips the first three." }
            }
        }
    }
}

fn row(poll: &PollMeasure) -> Markup {
    let Phases { dns, connect, tls, wait, read } = poll.phases;
    html! {
        tr {
            td { (age(poll.at)) " ago" }
            td { @match poll.failure {
                None => span.tag.ok { "✓ report" },
                Some(category) => span.tag.critical { "✗ failed (" (category.as_str()) ")" },
            } }
            td { (milliseconds(poll.wall.as_secs_f64() * 1000.0)) }
            @for phase in [dns, connect, tls, wait, read] {
                td { @if phase > 0.0 { (milliseconds(f64::from(phase))) } @else { "–" } }
            }
            td { (milliseconds(poll.cpu.as_secs_f64() * 1000.0)) }
            td { (poll.requests) }
            td { (poll.bytes) " B" }
        }
    }
}
