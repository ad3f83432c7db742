//! Latency over time: one point for each dependency and window of five minutes.

use crate::Timestamp;
use std::time::Duration;

/// The width of a latency window.
pub const LATENCY_WINDOW: Duration = Duration::from_secs(300);

/// The latencies measured in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyPoint {
    /// The start of the window, a whole multiple of five minutes since the epoch.
    pub start: Timestamp,
    /// The lowest latency, in milliseconds.
    pub min: f32,
    /// The highest latency, in milliseconds.
    pub max: f32,
    /// The sum of all latencies, in milliseconds.
    pub sum: f32,
    /// The number of measurements.
    pub count: u32,
}

impl LatencyPoint {
    /// Creates a window with its first measurement.
    pub fn first(at: Timestamp, ms: f64) -> Self {
        let ms = ms as f32;
        Self { start: window_of(at), min: ms, max: ms, sum: ms, count: 1 }
    }

    /// Adds a measurement. Returns the completed point if `at` lies in another window, which starts with this
    /// measurement.
    pub fn add(&mut self, at: Timestamp, ms: f64) -> Option<Self> {
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

    /// Returns the mean latency, in milliseconds.
    pub fn mean(&self) -> f32 {
        self.sum / self.count.max(1) as f32
    }
}

fn window_of(at: Timestamp) -> Timestamp {
    let width = LATENCY_WINDOW.as_millis() as i64;
    Timestamp::from_millis(at.as_millis().div_euclid(width) * width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_in_another_window_finishes_the_point() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let mut point = LatencyPoint::first(at(10), 4.0);
        assert_eq!(point.add(at(299), 2.0), None);
        let finished = point.add(at(300), 9.0).unwrap();
        assert_eq!((finished.min, finished.max, finished.mean(), finished.count), (2.0, 4.0, 3.0, 2));
        assert_eq!((point.start, point.count), (at(300), 1));
        assert!(point.add(at(10), 1.0).is_some(), "a clock that was set back also starts a new window");
    }
}
