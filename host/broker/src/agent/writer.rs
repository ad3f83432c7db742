//! The writer of the description of this device that the broker has.

use model::FleetPlace;

/// The writer of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// This host, with the database that it has.
    Known,
    /// This host, with a database that it no longer has; or a write was stored twice, or another host has begun in the
    /// same second. Everything is said again with a later epoch: if there is another host, it notices that.
    Unclear,
    /// Another host with the same id.
    Another,
}

/// Judges the description at the broker by its epoch and its revision.
///
/// A server that is killed may store a write whose acknowledgement is lost, and a cluster may store one twice. Only an
/// epoch that is later than that of this host is proof of another one: each host begins with a later epoch than it
/// knows.
pub(super) fn writer(place: &FleetPlace, is_same_broker: bool, (epoch, revision): (u32, u64)) -> Writer {
    match place.described {
        Some(described) if is_same_broker && revision > described => match epoch.cmp(&place.epoch) {
            std::cmp::Ordering::Less => Writer::Known,
            std::cmp::Ordering::Equal => Writer::Unclear,
            std::cmp::Ordering::Greater => Writer::Another,
        },
        None if place.epoch > 0 && (epoch > place.epoch || epoch == place.epoch && !is_same_broker) => Writer::Unclear,
        _ => Writer::Known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_epoch_is_proof_of_another_host() {
        let place = |described| FleetPlace { epoch: 20, described, ..FleetPlace::default() };
        let cases = [
            // The last description was acknowledged.
            (Some(7), true, (20, 7), Writer::Known),
            (Some(7), true, (20, 8), Writer::Unclear),
            (Some(7), true, (19, 8), Writer::Known),
            (Some(7), true, (21, 8), Writer::Another),
            // The broker was restored, or is another one.
            (Some(7), true, (21, 6), Writer::Known),
            (Some(7), false, (21, 8), Writer::Known),
            // Nothing was acknowledged.
            (None, true, (19, 8), Writer::Known),
            (None, true, (20, 8), Writer::Known),
            (None, true, (21, 8), Writer::Unclear),
            (None, false, (20, 8), Writer::Unclear),
        ];
        for (described, is_same_broker, found, expected) in cases {
            let judged = writer(&place(described), is_same_broker, found);
            assert_eq!(judged, expected, "{described:?} {is_same_broker} {found:?}");
        }
        assert_eq!(writer(&FleetPlace::default(), false, (0, 1)), Writer::Known, "this host has not begun");
    }
}
