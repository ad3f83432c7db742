//! Mail queues.

use crate::Look;
use polliwog_sdk::{Sample, Status};
use proxmox::{judged, worse};

/// The four that Postfix has.
pub(crate) const QUEUES: [&str; 4] = ["deferred", "active", "incoming", "hold"];

/// Counts each queue on each of these nodes. Rows hold people's addresses: one is asked for, because none cannot be, and
/// nothing of it is read.
pub(crate) fn report(look: &mut Look, nodes: &[String]) {
    if nodes.is_empty() && look.report.kept.iter().any(|kept| kept == "node/") {
        // Which nodes there are may be known again at the next look.
        return look.report.keep("queue/");
    }
    let paths = QUEUES
        .iter()
        .flat_map(|queue| nodes.iter().map(move |node| format!("/nodes/{node}/postfix/queue/{queue}?limit=1")));
    let mut answers = look.api.ask_all(paths.collect()).into_iter();
    for queue in QUEUES {
        let limits = look.settings.queues.limits(queue);
        let mut worst = match nodes {
            [] => (Status::Unknown, Some("there is no node that could be asked: \"cluster\" says why".to_owned())),
            _ => (Status::Ok, None),
        };
        for (node, answer) in nodes.iter().zip(&mut answers) {
            let (status, why) = match answer.total(&mut look.notes) {
                Ok(Some(count)) => {
                    look.report.samples.push(sample(queue, node, count));
                    let (status, limit) = limits.judge(count);
                    (status, format!("{node} has {limit} messages or more in it: {}", remedy(queue)))
                }
                Ok(None) => (Status::Unknown, format!("{node} does not say how many messages are in it")),
                Err(trouble) => (Status::Unknown, format!("{node}: {}", trouble.sentence)),
            };
            worst = worse(worst, (status, Some(why)));
        }
        look.add(judged(format!("queue/{queue}"), "pmg-queue", worst));
    }
}

/// The count itself, for graphs: in a text it would be written to disk at every poll.
fn sample(queue: &str, node: &str, count: f64) -> Sample {
    Sample::gauge("pmg_queue_messages", count).with_label("queue", queue).with_label("node", node)
}

/// What to do about a queue that is too long.
fn remedy(queue: &str) -> &'static str {
    match queue {
        "deferred" => "look there with \"pmgqm\" or the queue administration at why they cannot be delivered",
        "active" | "incoming" => "look at the load there, and whether its filter runs",
        _ => "somebody put them on hold; release or delete them",
    }
}
