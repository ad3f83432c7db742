//! `status`: summarizes the host, its targets and its queue.

use super::fleet::{of_broker, parts_of};
use super::remote::{BADNESS, answer, ask, text};
use crate::cli::Remote;
use crate::output::{complain, print};
use anyhow::anyhow;
use egress::Method;
use serde_json::{Value, json};

/// `status`.
pub(crate) async fn status(remote: &Remote) -> anyhow::Result<u8> {
    let health = ask(remote, Method::GET, "/api/monitoring/scheduler/health", None).await?;
    let stats = ask(remote, Method::GET, "/api/v1/scheduler/stats", None).await?;
    if !health["queue"].is_object() || !stats["scheduler"].is_object() {
        return Err(anyhow!("the server at this address is not a Polliwog host: check POLLIWOG_URL"));
    }
    let settings = ask(remote, Method::GET, "/api/v1/settings?limit=1", None).await?;
    let alerts = ask(remote, Method::GET, "/api/v1/alerts?state=firing&limit=1", None).await?;
    let silences = ask(remote, Method::GET, "/api/v1/silences", None).await?;
    let channels = ask(remote, Method::GET, "/api/v1/channels", None).await?;
    let fleet = ask(remote, Method::GET, "/api/v1/fleet", None).await?;
    let problems = settings["problems"].clone();
    let (firing, silenced) = (alerts["total"].clone(), active(&silences));
    let both = json!({
        "health": health, "stats": stats, "problems": problems, "alerts": firing, "silences": silenced.0,
        "oldestSilence": silenced.1, "channels": channels["channels"], "fleet": fleet,
    });
    answer(remote, &both, |_| {
        for problem in problems.as_array().into_iter().flatten() {
            complain(text(problem));
        }
        if let Some(why) = stats["notReady"].as_str() {
            complain(format!("the host does not work correctly: {why}"));
        }
        let targets = &stats["targets"];
        let count = |status: &str| targets[status].as_u64().filter(|count| *count > 0);
        let counts = BADNESS.iter().filter_map(|status| Some(format!("{} {status}", count(status)?)));
        let counts: Vec<String> = counts.collect();
        let (scheduler, queue) = (&stats["scheduler"], &health["queue"]);
        let turns = &stats["loop"];
        let held = stats["held"].as_object().into_iter().flatten();
        let held: Vec<String> = held.map(|(reason, count)| format!("{reason} {count}")).collect();
        let dead = match health["deadLetter"]["count"].as_u64().unwrap_or(0) {
            0 => String::new(),
            count => format!("\nrarely      {count} of them: they have failed for long (dead letters)"),
        };
        print(&format!(
            "host        polliwog {}, started {}\n\
             targets     {}: {}{dead}\n\
             alerts      {firing} firing{}\n\
             channels    {}{}\n\
             queue       {} waiting, {} of them due within 12 s\n\
             polls       {} started, {} in flight, {} with a report, {} failed, {} ms on average\n\
             held back   {}\n\
             loop        {} ms per iteration, {} ms at most; longest wait of a message {} ms; at most {} of {} messages\n\
             adaptive    {}",
            text(&stats["version"]),
            text(&stats["startedAt"]),
            health["instances"].as_array().map_or(0, Vec::len),
            counts.join(", "),
            of_silences(&silenced),
            of_channels(&channels),
            of_fleet(&fleet),
            queue["depth"],
            queue["dueWithinSeconds"],
            scheduler["JobsProcessed"],
            scheduler["WorkerPoolUtilized"],
            scheduler["CommandsCreated"],
            scheduler["CommandsFailed"],
            scheduler["AverageProcessingMS"],
            held.join(", "),
            turns["meanTurnMs"],
            turns["longestTurnMs"],
            turns["oldestMessageEverMs"],
            turns["mostMessages"],
            turns["capacity"],
            if health["enabled"] == true { "yes" } else { "no" }
        ))
    })
}

/// The number of active silences, and the start of the oldest; null if all of them recur.
fn active(silences: &Value) -> (usize, Value) {
    let all = silences["silences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let active: Vec<&Value> = all.iter().filter(|silence| silence["active"] == true).collect();
    let oldest = active.iter().filter_map(|silence| silence["start"].as_str()).min();
    (active.len(), oldest.map_or(Value::Null, Value::from))
}

fn of_silences((count, oldest): &(usize, Value)) -> String {
    match (count, oldest.as_str()) {
        (0, _) => String::new(),
        (1, None) => ", a maintenance window is active".to_owned(),
        (1, Some(since)) => format!(", a silence is active since {since}"),
        (count, None) => format!(", {count} maintenance windows are active"),
        (count, Some(since)) => format!(", {count} silences are active, the oldest since {since}"),
    }
}

/// This host's part in a fleet, and what is wrong with its broker; empty if it is in none.
fn of_fleet(fleet: &Value) -> String {
    let (operator, agent) = (&fleet["operator"], &fleet["agent"]);
    let operator = (!operator.is_null())
        .then(|| format!("\nfleet       operates {}; {}", parts_of(operator), of_broker(operator)));
    let agent =
        (!agent.is_null()).then(|| format!("\nfleet       is device {}; {}", text(&agent["device"]), of_broker(agent)));
    operator.into_iter().chain(agent).collect()
}

/// The number of channels, and each that does not deliver, with the reason and the number of its waiting notifications.
fn of_channels(channels: &Value) -> String {
    let all = channels["channels"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fails = all.iter().filter_map(|channel| {
        let (name, problem) = (text(&channel["name"]), channel["problem"].as_str()?);
        Some(format!("\n            {name} does not deliver, {} notifications wait: {problem}", channel["waiting"]))
    });
    match all.len() {
        0 => "none: alerts are only shown".to_owned(),
        count => format!("{count}{}", fails.collect::<String>()),
    }
}
