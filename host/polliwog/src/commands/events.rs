//! `events`: shows what happened on the running host, and what happens.

use super::remote::{ask, part, text};
use crate::cli::{EventsArguments, Remote};
use crate::output::{complain, print};
use egress::Method;
use serde_json::Value;
use std::time::Duration;

/// The time between two requests while events are followed. A request that finds nothing new reads one row.
const PAUSE: Duration = Duration::from_secs(1);

/// `events`.
pub(crate) async fn events(remote: &Remote, arguments: &EventsArguments) -> anyhow::Result<u8> {
    let filter = |name: &str, value: &Option<String>| {
        value.as_deref().map(|value| format!("&{name}={}", part(value))).unwrap_or_default()
    };
    let filters = filter("target", &arguments.target) + &filter("event", &arguments.event);
    // The newest event of all is where the new ones begin; the past may have none of the wanted ones.
    let newest = ask(remote, Method::GET, "/api/v1/event-log?limit=1", None).await?;
    let mut after = newest["events"][0]["sequence"].as_i64().unwrap_or(0);
    if arguments.last > 0 {
        let path = format!("/api/v1/event-log?limit={}{filters}", arguments.last);
        let past = ask(remote, Method::GET, &path, None).await?;
        let past = past["events"].as_array().into_iter().flatten().rev();
        for event in past.filter(|event| event["sequence"].as_i64() <= Some(after)) {
            line(remote, event)?;
        }
    }
    if !arguments.follow {
        return Ok(0);
    }
    loop {
        let found = ask(remote, Method::GET, &format!("/api/v1/event-log?after={after}{filters}"), None).await?;
        if found["complete"] == false {
            complain("events were deleted before they were read: the list has a gap");
            let newest = ask(remote, Method::GET, "/api/v1/event-log?limit=1", None).await?;
            after = newest["events"][0]["sequence"].as_i64().unwrap_or(after);
        }
        for event in found["events"].as_array().into_iter().flatten() {
            line(remote, event)?;
        }
        after = found["last"].as_i64().unwrap_or(after);
        if found["next"].is_null() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Prints an event on a line.
fn line(remote: &Remote, found: &Value) -> anyhow::Result<()> {
    if remote.json {
        return print(&found.to_string());
    }
    let event = &found["event"];
    let about = event["serviceId"].as_str().unwrap_or("-");
    let name = text(&event["event"]);
    print(format!("{}  {name:<18}  {about:<20}  {}", text(&event["timestamp"]), text(&found["text"])).trim_end())
}
