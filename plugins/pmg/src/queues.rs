//! Mail queues.
//!
//! Whatever queue is asked for, the gateway lists all the mail that it has: so they are asked for once a minute, and one
//! after the other.

use crate::PollContext;
use polliwog_sdk::{Sample, Status};
use proxmox::{Answer, ErrorClass, Evaluation, Verdict, evaluated, worse};
use std::time::Duration;

/// The four that Postfix has.
pub(crate) const QUEUES: [&str; 4] = ["deferred", "active", "incoming", "hold"];
const PERIOD: Duration = Duration::from_secs(60);
const CHECK: &str = "queues";

/// Counts each queue on each of these nodes. Rows hold people's addresses: one is asked for, because none cannot be, and
/// nothing of it is read.
pub(crate) fn report(context: &mut PollContext, nodes: &[String]) {
    if nodes.is_empty() && context.report.kept.iter().any(|kept| kept == "node/") {
        // Which nodes there are may be known again at the next look.
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
            [] => (Status::Unknown, Some("there is no node that could be asked: \"cluster\" says why".to_owned())),
            _ => (Status::Ok, None),
        };
        for node in &late {
            worst = worse(worst, (Status::Unknown, Some(uncounted(node))));
        }
        for (node, answer) in asked.into_iter().zip(answers) {
            let verdict = count(context, (queue, node), answer).unwrap_or_else(|message| {
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

/// How a queue of a node is; why that is not known; or nothing where it took too long.
fn count(context: &mut PollContext, (queue, node): (&str, &String), answer: Answer) -> Result<Verdict, Option<String>> {
    let count = answer
        .total(&mut context.diagnostics)
        .map_err(|error| (error.class != ErrorClass::Timeout).then(|| format!("{node}: {}", error.message)))?
        .ok_or_else(|| Some(format!("{node} does not say how many messages are in it")))?;
    context.report.samples.push(sample(queue, node, count));
    let name = format!("queue/{queue} {node}");
    let Evaluation { status, limit, after } =
        context.hysteresis.evaluate(&name, context.settings.queues.limits(queue), count);
    let why = format!("{node} has {limit} or more in it, counted by recipient{after}: {}", remedy(queue));
    Ok((status, Some(why)))
}

fn uncounted(node: &str) -> String {
    format!(
        "{node} did not count it in time: its queues may be very long; look there with \"postqueue -p | tail -n 1\""
    )
}

/// The count itself, for graphs: in a text it would be written to disk at every poll.
fn sample(queue: &str, node: &str, count: f64) -> Sample {
    Sample::gauge("pmg_queue_messages", count).with_label("queue", queue).with_label("node", node)
}

/// What to do about a queue that is too long.
fn remedy(queue: &str) -> &'static str {
    match queue {
        "deferred" => "\"postqueue -p\" there, or its queue administration, says why they cannot be delivered",
        "active" | "incoming" => "look at the load there, and whether its filter runs",
        _ => "somebody put them on hold; release or delete them",
    }
}
