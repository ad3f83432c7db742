//! Mail queues.
//!
//! For any queue, the gateway lists all of its mail. The queues are therefore requested once a minute, one after the
//! other.

use crate::context::PollContext;
use crate::settings::QUEUES;
use polliwog_sdk::{Sample, Status};
use proxmox::{Answer, ErrorClass, Evaluation, Verdict, evaluated, worse};
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(60);
const CHECK: &str = "queues";

/// Counts each queue on each of these nodes. Rows contain addresses of people: one row is requested, because zero rows
/// cannot be, and its content is not read.
pub(crate) fn report(context: &mut PollContext, nodes: &[String]) {
    if nodes.is_empty() && context.report.kept.iter().any(|kept| kept == "node/") {
        // The nodes may be known again at the next poll.
        return context.report.keep("queue/");
    }
    if !nodes.is_empty() && !context.is_due(CHECK) {
        return context.report.keep("queue/");
    }
    let mut late: Vec<&String> = Vec::new();
    for queue in QUEUES {
        let asked: Vec<&String> = nodes.iter().filter(|node| !late.contains(node)).collect();
        let path = |node: &&String| format!("/nodes/{node}/postfix/queue/{queue}?limit=1");
        let answers = context.api.patient().ask_all(asked.iter().map(path).collect());
        let mut worst = match nodes {
            [] => (Status::Unknown, Some("no node could be asked: see \"cluster\"".to_owned())),
            _ => (Status::Ok, None),
        };
        for node in &late {
            worst = worse(worst, (Status::Unknown, Some(uncounted(node))));
        }
        for (node, answer) in asked.into_iter().zip(answers) {
            let verdict = count(context, queue, node, answer).unwrap_or_else(|message| {
                late.extend(message.is_none().then_some(node));
                (Status::Unknown, Some(message.unwrap_or_else(|| uncounted(node))))
            });
            worst = worse(worst, verdict);
        }
        context.add(evaluated(format!("queue/{queue}"), "pmg-queue", worst));
    }
    if !nodes.is_empty() {
        context.checked(CHECK, PERIOD);
    }
}

/// Evaluates a queue of a node. Fails with the reason, or with `None` if the answer took too long.
fn count(context: &mut PollContext, queue: &str, node: &str, answer: Answer) -> Result<Verdict, Option<String>> {
    let count = answer
        .total(&mut context.diagnostics)
        .map_err(|error| (error.class != ErrorClass::Timeout).then(|| format!("{node}: {}", error.message)))?
        .ok_or_else(|| Some(format!("{node} does not report how many messages are in it")))?;
    context.report.samples.push(sample(queue, node, count));
    let name = format!("queue/{queue} {node}");
    let Evaluation { status, limit, after } =
        context.hysteresis.evaluate(&name, context.settings.queues.limits(queue), count);
    let why = format!("{node} has {limit} or more in it, counted by recipient{after}: {}", remedy(queue));
    Ok((status, Some(why)))
}

fn uncounted(node: &str) -> String {
    format!(
        "{node} did not count it in time: its queues may be very long; check them on the node with \"postqueue -p | \
         tail -n 1\""
    )
}

/// The count as a sample: in a text it would be written to disk at every poll.
fn sample(queue: &str, node: &str, count: f64) -> Sample {
    Sample::gauge("pmg_queue_messages", count).with_label("queue", queue).with_label("node", node)
}

/// The remedy for a long queue.
fn remedy(queue: &str) -> &'static str {
    match queue {
        "deferred" => "\"postqueue -p\" on the node, or its queue administration, shows why they cannot be delivered",
        "active" | "incoming" => "check the load of the node, and whether its filter is running",
        _ => "they were put on hold by hand; release or delete them",
    }
}
