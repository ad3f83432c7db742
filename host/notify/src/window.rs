//! Recurring windows of time, such as `Sunday 02:00-04:00` in a time zone.

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp as Instant, ToSpan};
use model::Timestamp;
use thiserror::Error;

/// The days after which a window of any form has begun and ended again.
const HORIZON: i64 = 9;

/// A recurring window of local time.
///
/// A window begins and ends at local times. Where the clock skips one of them, the time after the gap counts; where a
/// local time exists twice, the first one counts, as RFC 5545 does it. A window whose end is not after its beginning
/// ends on the next day.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    text: String,
    days: [bool; 7],
    from: Time,
    to: Time,
    zone: TimeZone,
}

/// A text that is not a window.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidWindow {
    /// The form is wrong.
    #[error(
        "{0:?} is not a window; write it like \"Sunday 02:00-04:00\", \"Mon,Wed 22:00-06:00\" or \"day 01:00-01:30\""
    )]
    Form(String),
    /// It never ends.
    #[error("{0:?} never ends, and would silence alerts for ever: leave out a day, or shorten the times")]
    Endless(String),
    /// The time zone is unknown.
    #[error("unknown time zone {0:?}; write it like \"Europe/Zurich\" or \"UTC\"")]
    Zone(String),
}

impl Window {
    /// Parses a window: days (names of weekdays, `day`, `weekday` or `weekend`, separated by commas) and times.
    pub fn new(text: &str, zone: &str) -> Result<Self, InvalidWindow> {
        let form = || InvalidWindow::Form(text.to_owned());
        let (days, times) = text.trim().split_once(char::is_whitespace).ok_or_else(form)?;
        let (from, to) = times.trim().split_once('-').ok_or_else(form)?;
        let (days, from) = (parse_days(days).ok_or_else(form)?, parse_time(from.trim()).ok_or_else(form)?);
        let to = parse_time(to.trim()).ok_or_else(form)?;
        if from == to && days == [true; 7] {
            return Err(InvalidWindow::Endless(text.to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            days,
            from,
            to,
            zone: TimeZone::get(zone).map_err(|_| InvalidWindow::Zone(zone.to_owned()))?,
        })
    }

    /// Returns the window as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the IANA name of the time zone.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Returns whether `at` is in the window: its beginning belongs to it, its end does not.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.spans(at).any(|(from, to)| from <= at && at < to)
    }

    /// Returns the next beginning or end after `at`.
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        self.spans(at).flat_map(|(from, to)| [from, to]).filter(|change| *change > at).min()
    }

    /// The windows that begin on the days around `at`.
    fn spans(&self, at: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let today = Instant::from_millisecond(at.as_millis()).ok().map(|at| at.to_zoned(self.zone.clone()).date());
        let days =
            today.into_iter().flat_map(|today| (-2..=HORIZON).filter_map(move |by| today.checked_add(days(by)).ok()));
        days.filter(|day| self.days[usize::try_from(day.weekday().to_monday_zero_offset()).unwrap_or(0)])
            .filter_map(|day| self.span(day))
    }

    fn span(&self, day: Date) -> Option<(Timestamp, Timestamp)> {
        let end = if self.to > self.from { day } else { day.checked_add(days(1)).ok()? };
        let (from, to) = (self.instant(day, self.from)?, self.instant(end, self.to)?);
        // A window that lies in the hour that the clock skips does not exist on that day.
        (from < to).then_some((from, to))
    }

    fn instant(&self, day: Date, time: Time) -> Option<Timestamp> {
        let zoned = self.zone.to_ambiguous_zoned(day.to_datetime(time)).compatible().ok()?;
        Some(Timestamp::from_millis(zoned.timestamp().as_millisecond()))
    }
}

fn days(count: i64) -> Span {
    count.days()
}

fn parse_days(text: &str) -> Option<[bool; 7]> {
    let mut days = [false; 7];
    for word in text.split(',') {
        let word = word.trim().to_lowercase();
        let range = match word.as_str() {
            "day" | "daily" => 0..7,
            "weekday" => 0..5,
            "weekend" => 5..7,
            _ => {
                let day = Weekday::Monday.cycle_forward().take(7).position(|day| is_name(&word, day))?;
                day..day + 1
            }
        };
        days[range].fill(true);
    }
    Some(days)
}

/// Whether a word is the English name of a weekday, or its first three letters.
fn is_name(word: &str, day: Weekday) -> bool {
    let name = format!("{day:?}").to_lowercase();
    word == name || word == &name[..3]
}

fn parse_time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| -> Option<i8> {
        let is_short = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_short)
    };
    Time::new(number(hour)?, number(minute)?, 0, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_millis(text.parse::<Instant>().unwrap().as_millisecond())
    }

    fn check(window: &str, zone: &str, times: &[(&str, bool)]) {
        let window = Window::new(window, zone).unwrap();
        for (time, expected) in times {
            assert_eq!(window.contains(at(time)), *expected, "{} in {} at {time}", window.text(), window.zone());
        }
    }

    #[test]
    fn windows_follow_local_time_over_changes_of_the_clock() {
        let times = [("2026-11-22T00:59:59Z", false), ("2026-11-22T01:00:00Z", true), ("2026-11-22T03:00:00Z", false)];
        check("Sunday 02:00-04:00", "Europe/Zurich", &times);
        // In summer, local time is an hour more ahead.
        check("sun 02:00-04:00", "Europe/Zurich", &[("2026-07-05T00:00:00Z", true), ("2026-07-05T02:00:00Z", false)]);
        // 29 March 2026: the clock goes from 02:00 to 03:00, so that the window is an hour long.
        let times = [("2026-03-29T00:59:00Z", false), ("2026-03-29T01:00:00Z", true), ("2026-03-29T02:00:00Z", false)];
        check("Sunday 02:00-04:00", "Europe/Zurich", &times);
        // 25 October 2026: 02:00 to 03:00 comes twice, so that the window is three hours long.
        let times = [("2026-10-25T00:00:00Z", true), ("2026-10-25T02:59:00Z", true), ("2026-10-25T03:00:00Z", false)];
        check("Sunday 02:00-04:00", "Europe/Zurich", &times);
        // A window across midnight belongs to the day on which it begins.
        let times = [("2026-11-25T23:00:00Z", true), ("2026-11-26T05:59:00Z", true), ("2026-11-26T22:30:00Z", false)];
        check("Wed 22:00-06:00", "UTC", &times);
        check("weekday 00:00-00:00", "UTC", &[("2026-11-27T23:59:00Z", true), ("2026-11-28T00:00:00Z", false)]);
    }

    #[test]
    fn texts_that_are_not_windows_are_refused() {
        for text in
            ["", "Sunday", "Sunday 2-4", "Sonntag 02:00-04:00", "Sunday 25:00-26:00", "Sunday 02:00", "su 1:00-2:00"]
        {
            assert_eq!(Window::new(text, "UTC"), Err(InvalidWindow::Form(text.to_owned())), "{text}");
        }
        assert_eq!(Window::new("day 2:00-2:00", "UTC"), Err(InvalidWindow::Endless("day 2:00-2:00".to_owned())));
        assert_eq!(Window::new("day 1:00-2:00", "Mars/Base"), Err(InvalidWindow::Zone("Mars/Base".to_owned())));
    }

    proptest! {
        /// Between two changes a window is either open or closed, and at a change the other.
        #[test]
        fn windows_change_only_when_they_say_so(
            zone in prop::sample::select(vec![
                "Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/St_Johns", "Africa/Casablanca",
            ]),
            day in prop::sample::select(vec!["day", "Sunday", "mon,thu", "weekend"]),
            (from, to) in (0..96_u32, 0..96_u32),
            start in 1_700_000_000_000..1_900_000_000_000_i64,
            share in 0.0..1.0_f64,
        ) {
            prop_assume!(day != "day" || from != to);
            let time = |quarter: u32| format!("{:02}:{:02}", quarter / 4, quarter % 4 * 15);
            let window = Window::new(&format!("{day} {}-{}", time(from), time(to)), zone).unwrap();
            let start = Timestamp::from_millis(start);
            let change = window.next_change(start).unwrap();
            let between = Timestamp::from_millis(
                start.as_millis() + ((change.as_millis() - start.as_millis() - 1) as f64 * share) as i64,
            );
            prop_assert_eq!(window.contains(start), window.contains(between));
            // Windows of 24 hours touch, and stay open at a change.
            if from != to {
                prop_assert_ne!(window.contains(start), window.contains(change));
            }
        }
    }
}
