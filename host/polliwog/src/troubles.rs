//! Reports to the driver what is wrong with this host and with its fleet, so that these are alerts, too.

use crate::web_host::RunningHost;
use engine::Message;
use model::{Class, Moment, Timestamp};
use notify::Trouble;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use web::Fleet as _;

/// The interval of the checks.
const EVERY: Duration = Duration::from_secs(2);
/// After its start, an operator has not heard its devices yet: they count as silent after this time.
const HEARD: Duration = Duration::from_secs(330);
/// After each connection, the operator has heard all devices that are well after this time.
const HEARTBEATS: Duration = Duration::from_secs(60);
/// A problem with the fleet's broker is an alert after this time: a connection is made again within seconds.
const BROKER: Duration = Duration::from_secs(30);
/// The maximum number of devices that have an alert each.
const DEVICES: usize = 1_000;

/// A problem with the broker is over when there was none for this time: an agent whose broker does not store records
/// has none between a check that succeeds and the write that fails.
const OVER: Duration = Duration::from_secs(15);

/// Checks until the host ends.
pub(crate) async fn watch(host: Arc<RunningHost>, ending: CancellationToken) {
    let mut reported = BTreeMap::new();
    let (mut link, mut hearing) = (Lasting::default(), Hearing { start: host.clock.now(), connected_since: None });
    while !ending.is_cancelled() {
        let now = host.clock.now();
        let links = host.fleet.as_ref().into_iter().flat_map(|fleet| fleet.links());
        let found = links.filter_map(|link| Some((link.problem?, link.lasts))).max_by_key(|(_, lasts)| *lasts);
        let has_heard = hearing.has_heard(host.fleet.as_ref().is_some_and(|fleet| fleet.hears()), now);
        let wall = host.clock.wall();
        let of_link = link.lasting(found.map(|(why, lasts)| (why, lasts, wall.before(lasts))), now);
        let of_link = of_link.map(|why| Trouble {
            name: "fleet".to_owned(),
            title: "this host cannot do its part in the fleet".to_owned(),
            message: Some(why),
        });
        let mut found = vec![(Class::Host, of_host(&host).into_iter().chain(of_link).collect())];
        found.extend(of_fleet(&host, has_heard));
        for (class, troubles) in found {
            if reported.get(&class) != Some(&troubles) {
                reported.insert(class, troubles.clone());
                // The driver is gone only when the host ends.
                let _ = host.mailbox.send(Message::Troubles(class, troubles));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = ending.cancelled() => {}
        }
    }
}

/// Whether the operator has had the time to hear all devices that are well.
struct Hearing {
    start: Moment,
    connected_since: Option<Moment>,
}

impl Hearing {
    fn has_heard(&mut self, is_connected: bool, now: Moment) -> bool {
        let since = self.connected_since.get_or_insert(now);
        let has_heard = now.since(self.start) >= HEARD && now.since(*since) >= HEARTBEATS;
        if !is_connected {
            self.connected_since = None;
        }
        is_connected && has_heard
    }
}

/// A problem with the broker that is an alert.
#[derive(Default)]
struct Lasting(Option<Lasted>);

struct Lasted {
    why: String,
    since: Timestamp,
    /// When it was last there.
    at: Moment,
}

impl Lasting {
    /// Returns the problem that is an alert, if any. `found` is the present problem, how long it has lasted, and since
    /// when.
    fn lasting(&mut self, found: Option<(String, Duration, Timestamp)>, now: Moment) -> Option<String> {
        self.0 = self.0.take().filter(|lasted| now.since(lasted.at) < OVER);
        if let Some((why, _, since)) = found.filter(|(_, lasts, _)| self.0.is_some() || *lasts >= BROKER) {
            // Both clocks are read one after the other: later, it would differ by a little.
            let since = self.0.as_ref().map_or(since, |lasted| lasted.since);
            self.0 = Some(Lasted { why, since, at: now });
        }
        let lasted = self.0.as_ref()?;
        let since = jiff::Timestamp::from_millisecond(lasted.since.as_millis()).unwrap_or_default();
        Some(format!("{} (since {since:.0})", lasted.why))
    }
}

fn of_host(host: &RunningHost) -> Vec<Trouble> {
    let database = host.database().err().map(|why| Trouble {
        name: "database".to_owned(),
        title: "the database does not take results".to_owned(),
        message: Some(why),
    });
    let problems = host.reconfigurer.problems();
    let configuration = problems.first().map(|first| Trouble {
        name: "configuration".to_owned(),
        title: "a part of the configuration is not active".to_owned(),
        message: Some(match problems.len() {
            1 => first.clone(),
            count => format!("{first}; and {} more", count - 1),
        }),
    });
    let telemetry = host.telemetry.as_ref().and_then(|counters| counters.problem()).map(|why| Trouble {
        name: "otlp".to_owned(),
        title: "the collector of OpenTelemetry does not take logs and metrics".to_owned(),
        message: Some(why),
    });
    database.into_iter().chain(configuration).chain(telemetry).collect()
}

/// The problems of a fleet, if this host counts it. Empty while it still reads the records.
fn of_fleet(host: &RunningHost, has_heard: bool) -> Vec<(Class, Vec<Trouble>)> {
    let Some(fleet) = &host.fleet else { return Vec::new() };
    let Some(operator) = fleet.operator().filter(|operator| operator.is_complete && operator.waits_for.is_none())
    else {
        return Vec::new();
    };
    let deployment = |deployment: fleet::DeploymentView| Trouble {
        message: deployment.aggregate.reason().map(fleet::Happened::why),
        title: format!("the deployment {} failed", deployment.name),
        name: deployment.name,
    };
    let failures = fleet.failures(usize::MAX).first;
    let mut found = vec![(Class::Deployment, failures.into_iter().map(deployment).collect())];
    if has_heard {
        let silent = fleet.silent(DEVICES);
        let device = |device: fleet::DeviceView| {
            let since = match jiff::Timestamp::from_millisecond(fleet.heard_at(&device).as_millis()) {
                Ok(at) if device.is_heard => format!("its last heartbeat was at {at:.0}"),
                _ => "it has sent no heartbeat since this operator started".to_owned(),
            };
            let remedy =
                "start its host, or run `polliwog fleet status` there, which says whether it reaches the broker";
            Trouble {
                title: format!("the device {} is not heard", device.device),
                name: device.device,
                message: Some(format!("{since}: {remedy}")),
            }
        };
        let doubled = operator.doubled.into_iter().map(|device| Trouble {
            title: format!("several hosts report as device {device}"),
            name: device,
            message: Some(
                "several hosts report as this device: give each another [fleet] device, because they replace each other's \
                 reports"
                    .to_owned(),
            ),
        });
        found.push((Class::Device, doubled.chain(silent.into_iter().map(device)).take(DEVICES).collect()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_devices_are_alerts_a_minute_after_a_connection() {
        let mut hearing = Hearing { start: Moment::from_nanos(0), connected_since: None };
        for (second, is_connected, expected) in [
            (2, true, false),
            (328, true, false),
            (330, true, true),
            (340, false, false),
            (640, false, false),
            (650, true, false),
            (708, true, false),
            (710, true, true),
        ] {
            let now = Moment::from_nanos(second * 1_000_000_000);
            assert_eq!(hearing.has_heard(is_connected, now), expected, "after {second} s");
        }
    }

    #[test]
    fn an_alert_of_the_broker_lasts_until_there_was_no_problem_for_a_while() {
        let mut lasting = Lasting::default();
        for (second, found, expected) in [
            (0, None, None),
            (2, Some(("full", 29)), None),
            (4, Some(("full", 31)), Some("full")),
            (6, None, Some("full")),
            (18, None, Some("full")),
            (18, Some(("refused", 0)), Some("refused")),
            (32, None, Some("refused")),
            (33, None, None),
            (34, Some(("refused", 1)), None),
        ] {
            // The second clock is late by some milliseconds.
            let wall = Timestamp::from_millis(second * 1000 + second % 10);
            let found = found.map(|(why, lasts)| (why.to_owned(), Duration::from_secs(lasts)));
            let found = found.map(|(why, lasts)| (why, lasts, wall.before(lasts)));
            let now = Moment::from_nanos(second * 1_000_000_000);
            let expected = expected.map(|why| format!("{why} (since 1969-12-31T23:59:33Z)"));
            assert_eq!(lasting.lasting(found, now), expected, "after {second} s");
        }
    }
}
