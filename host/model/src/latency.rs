//! Latency over time: one point for each dependency and window of five minutes, and the distribution within it.

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

/// The factor between the limits of two buckets of a sketch. A percentile is at most 5 % off.
const GROWTH: f64 = 1.1;
/// The percentile of a [`LatencySummary`].
const PERCENTILE: f64 = 0.95;

/// The distribution of latencies: how many lie in each bucket, where the limits of the buckets form a geometric series
/// (after DDSketch: Masson, Rim and Lee 2019). The sketch of two times together is the sum of their sketches. Empty
/// for a window with one measurement, which needs none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// The numbers of the buckets, ascending, each with its count. Bucket `n` ends at 1.1ⁿ µs; the last at 10 hours.
    buckets: Vec<(u8, u32)>,
}

impl Sketch {
    /// Creates a sketch of counts by bucket. Counts of one bucket are added.
    pub fn of_buckets(counts: impl IntoIterator<Item = (u8, u32)>) -> Self {
        let mut sketch = Self::default();
        counts.into_iter().for_each(|(bucket, count)| sketch.put(bucket, count));
        sketch
    }

    /// Returns the buckets, ascending, each with its count.
    pub fn buckets(&self) -> &[(u8, u32)] {
        &self.buckets
    }

    /// Adds a latency in milliseconds, `count` times.
    pub fn add(&mut self, ms: f64, count: u32) {
        let bucket = (ms * 1000.0).ln() / GROWTH.ln();
        self.put(bucket.ceil().clamp(0.0, u8::MAX.into()) as u8, count);
    }

    /// Adds the measurements of a point with its sketch.
    pub fn merge(&mut self, point: &LatencyPoint, sketch: &Self) {
        if sketch.buckets.is_empty() {
            return self.add(point.mean().into(), point.count);
        }
        sketch.buckets.iter().for_each(|(bucket, count)| self.put(*bucket, *count));
    }

    /// Returns a latency in milliseconds that the `share` of all measurements does not exceed; `None` if it is empty.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        // The middle of the bucket, which is equally far from both of its limits in relation to them.
        self.bucket_of(share).map(|bucket| 2.0 * GROWTH.powi(bucket.into()) / (GROWTH + 1.0) / 1000.0)
    }

    /// Returns a sketch with the bucket of the 95th percentile only: it has the same percentile, and is as small as can
    /// be, but cannot be merged with others.
    pub fn reduced(&self) -> Self {
        Self { buckets: self.bucket_of(PERCENTILE).map(|bucket| (bucket, 1)).into_iter().collect() }
    }

    fn bucket_of(&self, share: f64) -> Option<u8> {
        let total: u64 = self.buckets.iter().map(|(_, count)| u64::from(*count)).sum();
        let rank = ((total as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            below += u64::from(*count);
            below >= rank
        });
        found.map(|(bucket, _)| *bucket)
    }

    fn put(&mut self, bucket: u8, count: u32) {
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (bucket, count)),
        }
    }
}

/// A completed window with its distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyWindow {
    /// The window.
    pub point: LatencyPoint,
    /// The distribution; empty if there was one measurement.
    pub sketch: Sketch,
}

/// The latencies of a dependency in a period of five minutes, an hour or a day. In milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencySummary {
    /// The start of the period.
    pub start: Timestamp,
    /// The lowest latency.
    pub min: f32,
    /// The mean latency.
    pub mean: f32,
    /// The 95th percentile, at most 5 % off. The highest latency if the distribution is not known.
    pub p95: f32,
    /// The highest latency.
    pub max: f32,
    /// The number of measurements.
    pub count: u32,
}

impl LatencySummary {
    /// Summarises a point with its distribution.
    pub fn of(point: &LatencyPoint, sketch: &Sketch) -> Self {
        let LatencyPoint { start, min, max, count, .. } = *point;
        let p95 = sketch.quantile(PERCENTILE).map_or(max, |ms| (ms as f32).max(min).min(max));
        Self { start, min, mean: point.mean(), p95, max, count }
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

    #[test]
    fn a_percentile_is_at_most_five_percent_off_however_the_measurements_were_merged() {
        // A spread of five orders of magnitude, from a generator that always yields the same.
        let mut state = 1_u64;
        let mut latencies: Vec<f64> = (0..5_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                10_f64.powf((state >> 11) as f64 / (1_u64 << 53) as f64 * 5.0 - 2.0)
            })
            .collect();
        let mut merged = Sketch::default();
        for part in latencies.chunks(97) {
            let mut sketch = Sketch::default();
            part.iter().for_each(|ms| sketch.add(*ms, 1));
            merged.merge(&LatencyPoint::first(Timestamp::default(), 1.0), &sketch);
        }
        let single = LatencyPoint::first(Timestamp::default(), 1e9);
        merged.merge(&single, &Sketch::default());
        latencies.push(1e9);
        latencies.sort_unstable_by(f64::total_cmp);
        for share in [0.01, 0.5, 0.95, 0.999] {
            let exact = latencies[(latencies.len() as f64 * share).ceil() as usize - 1];
            let found = merged.quantile(share).unwrap();
            assert!((found / exact - 1.0).abs() < 0.05, "{share}: {found} instead of {exact}");
            assert_eq!(Sketch::of_buckets(merged.buckets().iter().copied()), merged);
        }
        assert_eq!(merged.reduced().quantile(0.95), merged.quantile(0.95));
        assert_eq!(Sketch::default().quantile(0.5), None);
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            Sketch::default().add(odd, 1);
        }
    }

    #[test]
    fn a_summary_stays_between_lowest_and_highest() {
        let mut point = LatencyPoint::first(Timestamp::default(), 100.0);
        assert_eq!(LatencySummary::of(&point, &Sketch::default()).p95, 100.0);
        point.add(Timestamp::default(), 101.0);
        let mut sketch = Sketch::default();
        sketch.add(100.0, 1);
        sketch.add(101.0, 1);
        let summary = LatencySummary::of(&point, &sketch);
        assert_eq!((summary.min, summary.mean, summary.max, summary.count), (100.0, 100.5, 101.0, 2));
        assert!((100.0..=101.0).contains(&summary.p95), "{summary:?}");
    }
}
