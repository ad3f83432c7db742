//! The news that a channel still has to hear after a while in which it took nothing.

use model::{AlertEvent, Delivery, DeliveryState, NotifiedAlert, Subject};
use notify::LISTED;
use std::collections::{BTreeMap, BTreeSet};

/// Why a delivery is not sent.
const REPLACED: &str = "later notifications say what is still true of it";
const HANDED_OVER: &str = "another device of the fleet polls the target now, and notifies of it";
const WITHDRAWN: &str = "an operator acknowledged or silenced it before it was sent";

/// Alerts of which nothing more is sent.
#[derive(Default)]
pub(crate) struct Removal {
    /// The fingerprints of those that another device notifies of.
    pub elsewhere: BTreeSet<String>,
    /// The fingerprints of those that an operator has seen. Their ends are sent.
    pub seen: BTreeSet<String>,
}

impl Removal {
    pub(crate) fn is_empty(&self) -> bool {
        self.elsewhere.is_empty() && self.seen.is_empty()
    }

    fn concerns(&self, alert: &NotifiedAlert) -> bool {
        let is_seen = !is_end(alert) && self.seen.contains(&alert.fingerprint);
        is_seen || self.elsewhere.contains(&alert.fingerprint)
    }
}

/// Reduces deliveries that wait, in their order, to what is still true. Returns those that change.
///
/// Of each alert, only the last news is kept. The ends of alerts become one notification, in the last delivery that has
/// nothing else and was not sent yet. A delivery without news is [`DeliveryState::Replaced`] and keeps its alerts for
/// readers. What a receiver took or refused already stays as it is.
pub(super) fn reduce(waiting: &[&Delivery]) -> Vec<Delivery> {
    let mut last = BTreeMap::new();
    for (place, delivery) in waiting.iter().enumerate() {
        last.extend(delivery.rest().alerts.into_iter().map(|alert| (alert.fingerprint, place)));
    }
    let mut kept: Vec<Delivery> = waiting.iter().map(|delivery| (*delivery).clone()).collect();
    for (place, delivery) in kept.iter_mut().enumerate() {
        let known = known(delivery);
        let is_kept = |alert: &NotifiedAlert| known.contains(&alert.fingerprint) || last[&alert.fingerprint] == place;
        delivery.notification.alerts.retain(is_kept);
    }
    gather_ends(&mut kept);
    let change = |(before, after): (&&Delivery, Delivery)| {
        if after.notification.alerts.is_empty() && after.notification.omitted > 0 {
            // Others of its alerts are not listed anywhere.
            return None;
        }
        if after.notification.alerts.is_empty() {
            return Some(replaced(before, REPLACED));
        }
        (after != **before).then_some(after)
    };
    waiting.iter().zip(kept).filter_map(change).collect()
}

/// A delivery from which alerts were removed.
pub(super) struct Without {
    pub delivery: Delivery,
    /// The removed alerts.
    pub removed: Vec<Subject>,
}

/// Removes alerts from a delivery that waits. `None` if that changes nothing: none is listed, or the receiver took or
/// refused them already.
pub(super) fn without(delivery: &Delivery, removal: &Removal) -> Option<Without> {
    let known = known(delivery);
    let is_removed = |alert: &NotifiedAlert| removal.concerns(alert) && !known.contains(&alert.fingerprint);
    let alerts = &delivery.notification.alerts;
    let removed: Vec<Subject> =
        alerts.iter().filter(|alert| is_removed(alert)).map(|alert| alert.subject.clone()).collect();
    if removed.is_empty() {
        return None;
    }
    if removed.len() == alerts.len() {
        // Others of its alerts are not listed anywhere.
        let is_kept = delivery.notification.omitted > 0;
        let why = if removal.elsewhere.is_empty() { WITHDRAWN } else { HANDED_OVER };
        return (!is_kept).then(|| Without { delivery: replaced(delivery, why), removed });
    }
    let mut left = delivery.clone();
    left.notification.alerts.retain(|alert| !is_removed(alert));
    Some(Without { delivery: left, removed })
}

/// A delivery that is not sent. It keeps its alerts for readers.
fn replaced(delivery: &Delivery, why: &str) -> Delivery {
    let (state, error) = (DeliveryState::Replaced, Some(why.to_owned()));
    Delivery { state, error, next_attempt: None, ..delivery.clone() }
}

/// Moves the ends of alerts into the last delivery that consists of such.
fn gather_ends(deliveries: &mut [Delivery]) {
    let consists_of_ends = |delivery: &Delivery| {
        let alerts = &delivery.notification.alerts;
        // A receiver that recognises repetitions may have taken one that was sent already.
        delivery.attempts == 0 && !alerts.is_empty() && alerts.iter().all(is_end)
    };
    let Some(place) = deliveries.iter().rposition(consists_of_ends) else { return };
    let mut summary = deliveries[place].notification.clone();
    for (_, delivery) in deliveries.iter_mut().enumerate().filter(|(other, _)| *other != place) {
        let known = known(delivery);
        let notification = &mut delivery.notification;
        let mut free = LISTED.saturating_sub(summary.alerts.len());
        let is_moved = |alert: &mut NotifiedAlert| {
            let is_moved = free > 0 && is_end(alert) && !known.contains(&alert.fingerprint);
            free -= usize::from(is_moved);
            is_moved
        };
        let moved: Vec<NotifiedAlert> = notification.alerts.extract_if(.., is_moved).collect();
        if moved.is_empty() {
            continue;
        }
        summary.alerts.extend(moved);
        summary.group.retain(|label| notification.group.contains(label));
        if notification.alerts.is_empty() {
            summary.omitted = summary.omitted.saturating_add(std::mem::take(&mut notification.omitted));
        }
    }
    summary.alerts.sort_by_key(|alert| alert.since);
    deliveries[place].notification = summary;
}

fn is_end(alert: &NotifiedAlert) -> bool {
    alert.event == AlertEvent::Resolved
}

/// The fingerprints of the alerts whose outcome is known.
fn known(delivery: &Delivery) -> BTreeSet<String> {
    delivery.progress.iter().map(|alert| alert.fingerprint.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample_notification;
    use model::{AlertProgress, Timestamp};

    /// A delivery with alerts such as `+db` (it fires) and `-db` (it is over). The outcome of those after `=` is known,
    /// and `!` is for a delivery that was sent once.
    fn delivery(number: u64, alerts: &str) -> Delivery {
        let at = Timestamp::from_millis(i64::try_from(number).unwrap());
        let mut delivery = Delivery::new(sample_notification("ops", (AlertEvent::Firing, 1), at), at);
        delivery.notification.number = number;
        let sample = delivery.notification.alerts.remove(0);
        for word in alerts.split_whitespace() {
            delivery.attempts = word.starts_with(['!', '=']).into();
            let word = word.trim_start_matches('!');
            let word = match word.strip_prefix('=') {
                Some(known) => {
                    delivery.progress.push(AlertProgress { fingerprint: known[1..].to_owned(), refused: None });
                    known
                }
                None => word,
            };
            let event = if word.starts_with('-') { AlertEvent::Resolved } else { AlertEvent::Firing };
            let fingerprint = word[1..].to_owned();
            delivery.notification.alerts.push(NotifiedAlert { fingerprint, event, since: at, ..sample.clone() });
        }
        delivery
    }

    /// The news of the deliveries after [`reduce`], as in [`delivery`]; `.` for one that is replaced.
    fn reduced(deliveries: &[Delivery]) -> Vec<String> {
        let changed = reduce(&deliveries.iter().collect::<Vec<_>>());
        let now = |delivery: &Delivery| {
            let is_same = |after: &&Delivery| after.notification.number == delivery.notification.number;
            let after = changed.iter().find(is_same).unwrap_or(delivery);
            assert_eq!(after.notification.id, delivery.notification.id);
            assert!(after.state != DeliveryState::Replaced || after.notification == delivery.notification);
            shown(after)
        };
        deliveries.iter().map(now).collect()
    }

    /// The news of a delivery, as in [`delivery`]; `.` if it is replaced.
    fn shown(delivery: &Delivery) -> String {
        if delivery.state == DeliveryState::Replaced {
            return ".".to_owned();
        }
        let word = |alert: &NotifiedAlert| {
            let known = if known(delivery).contains(&alert.fingerprint) { "=" } else { "" };
            format!("{known}{}{}", if is_end(alert) { "-" } else { "+" }, alert.fingerprint)
        };
        delivery.notification.alerts.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn of_each_alert_only_the_last_news_waits_and_the_ends_are_one_notification() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["+a", "+b"], &["+a", "+b"]),
            (&["+a", "-a"], &[".", "-a"]),
            (&["+a", "+b", "-a", "-b"], &[".", ".", ".", "-a -b"]),
            (&["+a", "-a", "+a"], &[".", ".", "+a"]),
            (&["+a", "+a"], &[".", "+a"]),
            (&["+a +b", "-a", "+c", "-c"], &["+b", ".", ".", "-a -c"]),
            (&["-a", "+b", "-c +d"], &["-a -c", "+b", "+d"]),
            // Each says what fires as well: none consists of ends.
            (&["-a +b", "-c +d"], &["-a +b", "-c +d"]),
            // The receiver took one of two: its end is news, and so is the other one.
            (&["=+a +b", "-a", "-b"], &["=+a", ".", "-a -b"]),
            (&["=-a -b", "-c"], &["=-a", "-b -c"]),
            (&["!-a", "-b"], &[".", "-a -b"]),
            (&["!-a", "+c -b"], &["-a", "+c -b"]),
            (&["=+a +b", "+a"], &["=+a +b", "+a"]),
        ];
        for (before, after) in cases {
            let deliveries: Vec<Delivery> =
                (1..).zip(*before).map(|(number, alerts)| delivery(number, alerts)).collect();
            assert_eq!(reduced(&deliveries), *after, "{before:?}");
        }
    }

    #[test]
    fn an_alert_of_another_device_does_not_wait_any_more() {
        let cases = [
            ("+a", Some(".")),
            ("-a", Some(".")),
            ("+a +b", Some("+b")),
            ("=+a +b", None),
            ("+a =+b", Some("=+b")),
            ("+b", None),
        ];
        for (before, expected) in cases {
            let changed = without(&delivery(1, before), &removal(&["a", "z"], &[]));
            let removed = changed.as_ref().map_or(0, |changed| changed.removed.len());
            assert_eq!(removed, usize::from(expected.is_some()), "{before}");
            assert_eq!(changed.map(|changed| shown(&changed.delivery)).as_deref(), expected, "{before}");
        }
        let mut storm = delivery(1, "+a");
        storm.notification.omitted = 7;
        assert!(without(&storm, &removal(&["a"], &[])).is_none(), "it says more than what it lists");
    }

    fn removal(elsewhere: &[&str], seen: &[&str]) -> Removal {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Removal { elsewhere: all(elsewhere), seen: all(seen) }
    }

    #[test]
    fn what_an_operator_has_seen_is_not_sent_any_more_except_its_end() {
        for (before, expected) in [("+a", Some(".")), ("-a", None), ("+a -b", Some("-b")), ("=+a", None)] {
            let changed = without(&delivery(1, before), &removal(&[], &["a"]));
            assert_eq!(changed.map(|changed| shown(&changed.delivery)).as_deref(), expected, "{before}");
        }
    }

    #[test]
    fn a_notification_of_ends_has_what_its_alerts_share_and_not_more_than_others() {
        let (first, many) = ("-a", (0..100).map(|number| format!("-{number}")).collect::<Vec<_>>().join(" "));
        assert_eq!(reduced(&[delivery(1, first), delivery(2, &many)])[0], first);
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut deliveries = [delivery(1, "-a"), delivery(2, "-b")];
        deliveries[0].notification.group = vec![label("target", "one"), label("site", "x")];
        deliveries[0].notification.omitted = 7;
        deliveries[1].notification.group = vec![label("target", "two"), label("site", "x")];
        let changed = reduce(&deliveries.iter().collect::<Vec<_>>());
        let summary = &changed[1].notification;
        assert_eq!((&summary.group[..], summary.omitted), (&[label("site", "x")][..], 7));
        assert_eq!(reduced(&[delivery(1, "+a")]), ["+a"]);
        let mut storm = [delivery(1, "+a"), delivery(2, "-a")];
        storm[0].notification.omitted = 150;
        assert_eq!(reduced(&storm), ["+a", "-a"], "it says more than what it lists");
        assert_eq!(reduce(&[]), []);
    }
}
