//! Reports to the driver what is wrong with this host and with its fleet, so that these are alerts, too.

use crate::web_host::RunningHost;
use engine::Message;
use model::{Class, Moment, Phase};
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
/// A problem with the fleet's broker is an alert after this time: a connection is made again within seconds.
const BROKER: Duration = Duration::from_secs(30);
/// The maximum number of devices that have an alert each.
const DEVICES: usize = 1_000;

/// A problem with the broker is over when there was none for this time: an agent tries again after up to 8 s, and has
/// none until that fails.
const OVER: Duration = Duration::from_secs(15);

/// Checks until the host ends.
pub(crate) async fn watch(host: Arc<RunningHost>, ending: CancellationToken) {
    let (start, mut reported) = (host.clock.now(), BTreeMap::new());
    let mut link = Lasting::default();
    while !ending.is_cancelled() {
        let now = host.clock.now();
        let of_link = link.lasting(of_link(&host), now);
        let mut found = vec![(Class::Host, of_host(&host).into_iter().chain(of_link).collect())];
        found.extend(of_fleet(&host, now.since(start) >= HEARD));
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

/// A trouble that lasts while it is away for a moment.
#[derive(Default)]
struct Lasting(Option<(Trouble, Moment)>);

impl Lasting {
    fn lasting(&mut self, found: Option<Trouble>, now: Moment) -> Option<Trouble> {
        if let Some(found) = found {
            self.0 = Some((found, now));
        }
        self.0 = self.0.take().filter(|(_, at)| now.since(*at) < OVER);
        self.0.as_ref().map(|(trouble, _)| trouble.clone())
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

/// The problem of this host with the broker of its fleet. The operator and the agent of one host have the same broker.
fn of_link(host: &RunningHost) -> Option<Trouble> {
    let fleet = host.fleet.as_ref()?;
    let why = fleet.links().filter(|link| link.lasts >= BROKER).find_map(|link| link.problem)?;
    let title = "this host cannot do its part in the fleet".to_owned();
    Some(Trouble { name: "fleet".to_owned(), title, message: Some(why) })
}

/// The problems of a fleet, if this host counts it. Empty while it still reads the records.
fn of_fleet(host: &RunningHost, has_heard: bool) -> Vec<(Class, Vec<Trouble>)> {
    let Some(fleet) = &host.fleet else { return Vec::new() };
    let Some(operator) = fleet.operator().filter(|operator| operator.is_complete && operator.waits_for.is_none())
    else {
        return Vec::new();
    };
    let failed = fleet.deployments().into_iter().filter(|deployment| deployment.phase() == Phase::Failed);
    let deployment = |deployment: fleet::DeploymentView| Trouble {
        message: deployment.aggregate.last_error.map(|last| match last.error {
            Some(why) => format!("{}: {why}", last.device),
            None => last.device,
        }),
        title: format!("the deployment {} failed", deployment.name),
        name: deployment.name,
    };
    let mut found = vec![(Class::Deployment, failed.map(deployment).collect())];
    if has_heard && operator.link.is_connected {
        let filter = fleet::DeviceFilter { stale: true, ..fleet::DeviceFilter::default() };
        // All devices are read only if some are silent.
        let silent = if operator.stale > 0 { fleet.devices(0, &filter, DEVICES).0 } else { Vec::new() };
        let device = |device: fleet::DeviceView| {
            let since = match jiff::Timestamp::from_millisecond(fleet.heard_at(&device).as_millis()) {
                Ok(at) if device.is_heard => format!("since {at:.0}"),
                _ => "since this operator started".to_owned(),
            };
            let remedy =
                "start its host, or run `polliwog fleet status` there, which says whether it reaches the broker";
            Trouble {
                title: format!("the device {} is not heard", device.device),
                name: device.device,
                message: Some(format!("it has sent nothing {since}: {remedy}")),
            }
        };
        let doubled = operator.doubled.into_iter().map(|device| Trouble {
            title: format!("several hosts report as device {device}"),
            name: device,
            message: Some(
                "give each host another [fleet] device, because they replace each other's reports".to_owned(),
            ),
        });
        found.push((Class::Device, silent.into_iter().map(device).chain(doubled).take(DEVICES).collect()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_lasts_until_it_was_away_for_a_while() {
        let trouble = |message: &str| Trouble {
            name: "fleet".to_owned(),
            title: String::new(),
            message: Some(message.to_owned()),
        };
        let (full, refused) = (trouble("full"), trouble("refused"));
        let mut lasting = Lasting::default();
        for (second, found, expected) in [
            (0, None, None),
            (2, Some(&full), Some(&full)),
            (4, None, Some(&full)),
            (16, None, Some(&full)),
            (16, Some(&refused), Some(&refused)),
            (30, None, Some(&refused)),
            (31, None, None),
            (33, None, None),
        ] {
            let now = Moment::from_nanos(second * 1_000_000_000);
            assert_eq!(lasting.lasting(found.cloned(), now).as_ref(), expected, "after {second} s");
        }
    }
}
