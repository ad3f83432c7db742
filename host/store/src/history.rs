//! Latency over time: one point for each dependency and five minutes.

use model::Timestamp;
use std::time::Duration;

/// How much time a point covers.
pub const WINDOW: Duration = Duration::from_secs(300);

/// What was measured in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyPoint {
    /// When the window began: a whole multiple of five minutes since the epoch.
    pub start: Timestamp,
    /// The fastest, in milliseconds.
    pub min: f32,
    /// The slowest.
    pub max: f32,
    /// The sum, for the mean.
    pub sum: f32,
    /// How many there were.
    pub count: u32,
}

impl LatencyPoint {
    /// The first measurement of a window.
    pub(crate) fn first(at: Timestamp, ms: f64) -> Self {
        let ms = ms as f32;
        Self { start: window_of(at), min: ms, max: ms, sum: ms, count: 1 }
    }

    /// One more measurement; the finished point when `at` lies in another window.
    pub(crate) fn add(&mut self, at: Timestamp, ms: f64) -> Option<Self> {
        if window_of(at) != self.start {
            return Some(std::mem::replace(self, Self::first(at, ms)));
        }
        let ms = ms as f32;
        self.min = self.min.min(ms);
        self.max = self.max.max(ms);
        self.sum += ms;
        self.count = self.count.saturating_add(1);
        None
    }

    /// The mean, in milliseconds.
    pub fn mean(&self) -> f32 {
        self.sum / self.count.max(1) as f32
    }
}

fn window_of(at: Timestamp) -> Timestamp {
    let width = WINDOW.as_millis() as i64;
    Timestamp::from_millis(at.as_millis().div_euclid(width) * width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_where_the_next_begins() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let mut point = LatencyPoint::first(at(10), 4.0);
        assert_eq!(point.add(at(299), 2.0), None);
        let finished = point.add(at(300), 9.0).unwrap();
        assert_eq!((finished.min, finished.max, finished.mean(), finished.count), (2.0, 4.0, 3.0, 2));
        assert_eq!((point.start, point.count), (at(300), 1));
        assert!(point.add(at(10), 1.0).is_some(), "a clock that was set back begins a window as well");
    }
}
