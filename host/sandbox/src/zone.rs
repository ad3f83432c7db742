//! The operator's time zone.

use jiff::tz::TimeZone;
use model::Timestamp;

/// A time zone that plugins see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// UTC.
    pub const UTC: Self = Self(TimeZone::UTC);

    /// Returns the zone of the operating system, or UTC if it is not known.
    pub fn system() -> Self {
        Self(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    /// Returns the zone with an IANA name, for example `Europe/Zurich`; `None` if the name is not known.
    pub fn named(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }

    /// Returns the IANA name, or `UTC` if it is not known.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Returns the offset from UTC at a time, in minutes, east positive. 0 for a time that has no date.
    pub(crate) fn offset_minutes(&self, at: Timestamp) -> i32 {
        let at = jiff::Timestamp::from_millisecond(at.as_millis());
        at.map_or(0, |at| self.0.to_offset(at).seconds() / 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_follows_daylight_saving_time() {
        // 15 January, 15 July 2026, and the hour of the change in March.
        let times = [1_768_435_200_000, 1_784_073_600_000, 1_774_746_000_000 - 1, 1_774_746_000_000, i64::MAX];
        let offsets =
            |name: &str| times.map(|at| Zone::named(name).unwrap().offset_minutes(Timestamp::from_millis(at)));
        assert_eq!(offsets("Europe/Zurich"), [60, 120, 60, 120, 0]);
        assert_eq!(offsets("America/New_York"), [-300, -240, -240, -240, 0]);
        assert_eq!(offsets("Asia/Kathmandu"), [345, 345, 345, 345, 0]);
        assert_eq!(offsets("UTC"), [0; 5]);
        assert_eq!((Zone::named("Mars"), Zone::UTC.name()), (None, "UTC"));
        assert_eq!(Zone::named("Europe/Zurich").unwrap().name(), "Europe/Zurich");
    }
}
