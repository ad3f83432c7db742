//! The news that a channel still has to hear after a while in which it took nothing.

use model::{AlertEvent, Delivery, DeliveryState, Notification, NotifiedAlert, UnlistedAlert};
use notify::{LISTED, Unsent};
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
    /// The fingerprints of those that fire and that an operator has seen. An end that waits is that of an earlier
    /// episode: the channel would hear that something is over that fires.
    pub seen: BTreeSet<String>,
}

impl Removal {
    pub(crate) fn is_empty(&self) -> bool {
        self.elsewhere.is_empty() && self.seen.is_empty()
    }

    fn concerns(&self, fingerprint: &str) -> bool {
        self.seen.contains(fingerprint) || self.elsewhere.contains(fingerprint)
    }
}

/// A delivery that changed while it waited.
#[derive(Debug, PartialEq)]
pub(super) struct Changed {
    pub delivery: Delivery,
    /// The alerts of which neither this delivery nor a later one says anything any more.
    pub unsent: Vec<Unsent>,
}

/// Reduces deliveries that wait, in their order, to what is still true. Returns those that change.
///
/// Of each alert, only the last news is kept. The ends of alerts become one notification, in the last delivery that has
/// nothing else and was not sent yet. A delivery that lists nothing any more is [`DeliveryState::Replaced`] and keeps
/// its alerts for readers. What a receiver took or refused already stays as it is.
pub(super) fn reduce(waiting: &[&Delivery]) -> Vec<Changed> {
    let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
    for (place, delivery) in waiting.iter().enumerate() {
        let rest = delivery.rest();
        last.extend(rest.alerts.iter().map(|alert| (alert.fingerprint.clone(), place)));
        for alert in rest.alerts.into_iter().map(UnlistedAlert::from).chain(rest.unlisted) {
            first.entry(alert.fingerprint).or_insert((place, alert.before));
        }
    }
    let mut kept: Vec<Delivery> = waiting.iter().map(|delivery| (*delivery).clone()).collect();
    for (place, delivery) in kept.iter_mut().enumerate() {
        let known = known(delivery);
        let is_open = |alert: &NotifiedAlert| !known.contains(&alert.fingerprint);
        delivery.notification.alerts.retain(|alert| !is_open(alert) || last[&alert.fingerprint] == place);
        for alert in delivery.notification.alerts.iter_mut().filter(|alert| is_open(alert)) {
            // The earlier messages about it are not sent.
            if let Some((_, before)) = first.get(&alert.fingerprint).filter(|(earlier, _)| *earlier < place) {
                alert.before.clone_from(before);
            }
        }
        remove_unlisted(delivery, |alert| last.get(&alert.fingerprint).is_some_and(|last| *last > place));
    }
    gather_ends(&mut kept);
    let change = |(before, after): (&&Delivery, Delivery)| {
        if after.notification.alerts.is_empty() {
            return emptied(before, &after, REPLACED);
        }
        (after != **before).then(|| Changed { delivery: after, unsent: Vec::new() })
    };
    waiting.iter().zip(kept).filter_map(change).collect()
}

/// Removes alerts from a delivery that waits. `None` if that changes nothing: it has none of them, or their outcome is
/// known already.
pub(super) fn without(delivery: &Delivery, removal: &Removal) -> Option<Changed> {
    let known = known(delivery);
    let mut left = delivery.clone();
    let is_removed =
        |alert: &mut NotifiedAlert| removal.concerns(&alert.fingerprint) && !known.contains(&alert.fingerprint);
    let removed = left.notification.alerts.extract_if(.., is_removed).map(UnlistedAlert::from);
    let mut removed: Vec<UnlistedAlert> = removed.collect();
    removed.extend(remove_unlisted(&mut left, |alert| removal.concerns(&alert.fingerprint)));
    if removed.is_empty() {
        return None;
    }
    let mut unsent = unsent(delivery, removed);
    if !left.notification.alerts.is_empty() {
        return Some(Changed { delivery: left, unsent });
    }
    let over = emptied(delivery, &left, if removal.elsewhere.is_empty() { WITHDRAWN } else { HANDED_OVER })?;
    unsent.extend(over.unsent);
    Some(Changed { unsent, ..over })
}

/// Ends a delivery that lists nothing any more; `left` is the rest of it. The alerts that it only counts are unsent.
/// `None` if it counts more than are known.
fn emptied(delivery: &Delivery, left: &Delivery, why: &str) -> Option<Changed> {
    let Notification { omitted, unlisted, .. } = &left.notification;
    let is_known = usize::try_from(*omitted).is_ok_and(|omitted| omitted <= unlisted.len());
    is_known.then(|| Changed { delivery: replaced(delivery, why), unsent: unsent(delivery, unlisted.clone()) })
}

/// Removes alerts from those that a delivery only counts, and returns them.
pub(super) fn remove_unlisted(
    delivery: &mut Delivery,
    is_removed: impl Fn(&UnlistedAlert) -> bool,
) -> Vec<UnlistedAlert> {
    let Notification { omitted, unlisted, .. } = &mut delivery.notification;
    let removed: Vec<UnlistedAlert> = unlisted.extract_if(.., |alert| is_removed(alert)).collect();
    *omitted = omitted.saturating_sub(u32::try_from(removed.len()).unwrap_or(u32::MAX));
    removed
}

fn unsent(delivery: &Delivery, alerts: Vec<UnlistedAlert>) -> Vec<Unsent> {
    let channel = &delivery.notification.channel;
    let of_alert = |UnlistedAlert { subject, before, .. }| Unsent { channel: channel.clone(), subject, before };
    alerts.into_iter().map(of_alert).collect()
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
            summary.unlisted.append(&mut notification.unlisted);
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
    use model::{AlertProgress, Before, Class, LastNotified, Status, Subject, Timestamp};

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
            let mut after = changed.iter().map(|changed| &changed.delivery);
            let after = after.find(|after| after.notification.number == delivery.notification.number);
            let after = after.unwrap_or(delivery);
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
            let unsent = changed.as_ref().map_or(0, |changed| changed.unsent.len());
            assert_eq!(unsent, usize::from(expected.is_some()), "{before}");
            assert_eq!(changed.map(|changed| shown(&changed.delivery)).as_deref(), expected, "{before}");
        }
        let mut storm = delivery(1, "+a");
        storm.notification.omitted = 7;
        assert!(without(&storm, &removal(&["a"], &[])).is_none(), "it counts alerts that are not known");
    }

    /// A delivery that lists some alerts and counts others; both as in [`delivery`].
    fn storm(number: u64, listed: &str, counted: &str) -> Delivery {
        let mut storm = delivery(number, listed);
        let counted = delivery(number, counted).notification.alerts;
        storm.notification.omitted = u32::try_from(counted.len()).unwrap();
        storm.notification.unlisted = counted.into_iter().map(UnlistedAlert::from).collect();
        for alert in &mut storm.notification.unlisted {
            alert.subject = Subject::Other(Class::Host, alert.fingerprint.as_str().into());
        }
        storm
    }

    /// The rest of a delivery, with the number of alerts that it counts, and the unsent ones of those.
    fn left(changed: &Changed) -> (String, u32, String) {
        let Notification { omitted, unlisted, .. } = &changed.delivery.notification;
        assert!(changed.delivery.state == DeliveryState::Replaced || *omitted as usize == unlisted.len());
        let counted = changed.unsent.iter().filter(|unsent| unsent.subject.class() == Class::Host);
        let counted: Vec<&str> = counted.map(|unsent| unsent.subject.name()).collect();
        (shown(&changed.delivery), *omitted, counted.join(" "))
    }

    #[test]
    fn alerts_that_are_only_counted_are_withdrawn_and_not_forgotten() {
        let storm = || storm(1, "+a +b", "+c +d -e");
        for (seen, listed, counted, unsent) in [
            ("c", "+a +b", 2, "c"),
            ("a", "+b", 3, ""),
            ("a d e", "+b", 1, "d e"),
            // There is a new message about the others.
            ("a b", ".", 3, "c d e"),
            ("a b c", ".", 3, "c d e"),
        ] {
            let changed = without(&storm(), &removal(&[], &seen.split(' ').collect::<Vec<_>>())).unwrap();
            assert_eq!(left(&changed), (listed.to_owned(), counted, unsent.to_owned()), "{seen}");
        }
        assert_eq!(without(&storm(), &removal(&[], &["y", "z"])), None);
    }

    #[test]
    fn later_news_about_an_alert_that_is_only_counted_replace_it() {
        let cases = [(("+a", "+c +d"), "-c", "+a", 1), (("+a", "+c"), "-c", "+a", 0), (("+a", "+c +d"), "+a", ".", 2)];
        for ((listed, counted), later, expected, omitted) in cases {
            let deliveries = [storm(1, listed, counted), delivery(2, later)];
            let changed = reduce(&deliveries.iter().collect::<Vec<_>>());
            let unsent = if expected == "." { "c d" } else { "" };
            let expected = (expected.to_owned(), omitted, unsent.to_owned());
            assert_eq!(left(&changed[0]), expected, "{listed} {counted} {later}");
        }
    }

    #[test]
    fn the_first_of_several_messages_about_an_alert_says_what_the_channel_knows() {
        let told = |number: i64| {
            let (event, status) = (AlertEvent::Firing, Status::Critical);
            Before::Message(LastNotified {
                channel: "ops".to_owned(),
                event,
                status,
                at: Timestamp::from_millis(number),
            })
        };
        let with = |mut delivery: Delivery, before: Before| {
            delivery.notification.alerts[0].before = before;
            delivery
        };
        let unsent = |delivery: &Delivery| without(delivery, &removal(&["a"], &[])).unwrap().unsent[0].before.clone();
        for first in [Before::Nothing, told(7), Before::Unknown] {
            assert_eq!(unsent(&with(delivery(1, "+a"), first.clone())), first);
            // The first one of two is replaced.
            let deliveries = [with(delivery(1, "+a"), first.clone()), with(delivery(2, "+a"), told(1))];
            let changed = reduce(&deliveries.iter().collect::<Vec<_>>());
            assert_eq!(changed[0].delivery.state, DeliveryState::Replaced);
            assert_eq!(unsent(&changed[1].delivery), first);
        }
    }

    fn removal(elsewhere: &[&str], seen: &[&str]) -> Removal {
        let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Removal { elsewhere: all(elsewhere), seen: all(seen) }
    }

    #[test]
    fn what_an_operator_has_seen_is_not_sent_any_more() {
        for (before, expected) in [("+a", Some(".")), ("-a", Some(".")), ("+a -b", Some("-b")), ("=+a", None)] {
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
        let summary = &changed[1].delivery.notification;
        assert_eq!((&summary.group[..], summary.omitted), (&[label("site", "x")][..], 7));
        assert_eq!(reduced(&[delivery(1, "+a")]), ["+a"]);
        let mut storm = [delivery(1, "+a"), delivery(2, "-a")];
        storm[0].notification.omitted = 150;
        assert_eq!(reduced(&storm), ["+a", "-a"], "it counts alerts that are not known");
        assert_eq!(reduce(&[]), []);
    }
}
