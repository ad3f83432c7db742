//! Wall clock and randomness. No other module reads them.

use model::{Moment, Timestamp};
use rand::TryRngCore;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// If the wall clock moved by more than this relative to the monotonic clock, it was set. Corrections by a time server
/// are far smaller.
const JUMP: Duration = Duration::from_secs(60);
/// Smaller differences are ignored, so that a moment always has the same date: the two clocks are read one after the
/// other, in whole milliseconds, and drift.
const DRIFT: Duration = Duration::from_millis(20);
/// Most stored corrections of the wall clock. They give earlier moments their dates.
const ERAS: usize = 256;
/// The wall clock is used to decide what is old only after it has run this long without being set.
const STEADY: Duration = Duration::from_secs(3600);

/// The process's clock: monotonic moments since it was created, and the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// There is one for a process.
    eras: &'static RwLock<Eras>,
    /// That of `eras`, which each reading of the clock compares with: without a lock.
    offset: &'static AtomicI64,
}

/// The offsets between the wall clock and the monotonic clock.
#[derive(Debug)]
struct Eras {
    /// The moment of each setting or correction of the clock, and the offset before it.
    past: Vec<(Moment, i64)>,
    /// Wall clock minus monotonic clock, in milliseconds.
    offset: i64,
    /// The time since which it has not been set.
    since: Moment,
    /// The number of milliseconds by which it was set then; 0 if it never was.
    set: i64,
}

impl Eras {
    /// Records the wall clock's time. Returns the number of milliseconds by which it was set.
    fn observe(&mut self, now: Moment, wall: Timestamp) -> Option<i64> {
        let offset = offset(now, wall);
        if is_drift(offset, self.offset) {
            return None;
        }
        let moved = offset.saturating_sub(self.offset);
        if self.past.len() == ERAS {
            self.past.remove(0);
        }
        self.past.push((now, self.offset));
        self.offset = offset;
        if moved.unsigned_abs() < JUMP.as_millis() as u64 {
            return None;
        }
        self.since = now;
        self.set = moved;
        Some(moved)
    }

    /// The wall-clock time of a moment, by the offset at that moment, so that past events keep their dates.
    fn at(&self, moment: Moment) -> Timestamp {
        let era = self.past.iter().find(|(until, _)| moment < *until);
        let offset = era.map_or(self.offset, |(_, offset)| *offset);
        Timestamp::from_millis((moment.as_nanos() / 1_000_000).saturating_add(offset))
    }
}

impl Clock {
    /// A clock that starts now.
    #[allow(clippy::disallowed_methods, reason = "this is where time enters")]
    pub fn start() -> Self {
        let eras = Eras { past: Vec::new(), offset: wall().as_millis(), since: Moment::START, set: 0 };
        let offset = Box::leak(Box::new(AtomicI64::new(eras.offset)));
        Self { start: Instant::now(), eras: Box::leak(Box::new(RwLock::new(eras))), offset }
    }

    /// The present moment on the monotonic clock.
    pub fn now(&self) -> Moment {
        Moment::from_nanos(i64::try_from(self.start.elapsed().as_nanos()).unwrap_or(i64::MAX))
    }

    /// The present wall-clock time. Logs if the clock was set.
    pub fn wall(&self) -> Timestamp {
        let (now, wall) = (self.now(), wall());
        if is_drift(offset(now, wall), self.offset.load(Ordering::Relaxed)) {
            return wall;
        }
        let moved = {
            let mut eras = self.eras.write().unwrap_or_else(PoisonError::into_inner);
            let moved = eras.observe(now, wall);
            self.offset.store(eras.offset, Ordering::Relaxed);
            moved
        };
        if let Some(moved) = moved {
            let by = Duration::from_millis(moved.unsigned_abs());
            let how = if moved < 0 { "back" } else { "forward" };
            tracing::warn!(
                "the clock of this machine was set {how} by {by:?}: nothing is polled early or late for it, and no history \
                 is taken as old for the next {STEADY:?}"
            );
        }
        wall
    }

    /// The wall-clock time of a moment. A past moment keeps its date when the clock is set.
    pub fn at(&self, moment: Moment) -> Timestamp {
        self.eras.read().unwrap_or_else(PoisonError::into_inner).at(moment)
    }

    /// When the wall clock was set last, and by how many milliseconds; `None` if it has run long enough since then.
    pub fn set(&self) -> Option<(Timestamp, i64)> {
        if self.is_plausible() {
            return None;
        }
        let eras = self.eras.read().unwrap_or_else(PoisonError::into_inner);
        (eras.set != 0).then(|| (eras.at(eras.since), eras.set))
    }

    /// Whether the wall clock has run long enough without being set to decide what is old.
    pub fn is_plausible(&self) -> bool {
        self.wall();
        self.now().since(self.eras.read().unwrap_or_else(PoisonError::into_inner).since) >= STEADY
    }
}

/// Returns the wall clock minus the monotonic clock, in milliseconds.
fn offset(now: Moment, wall: Timestamp) -> i64 {
    wall.as_millis().saturating_sub(now.as_nanos() / 1_000_000)
}

/// Whether two offsets differ so little that the clock was neither set nor corrected.
fn is_drift(offset: i64, known: i64) -> bool {
    offset.saturating_sub(known).unsigned_abs() < DRIFT.as_millis() as u64
}

/// Now, on the wall clock.
#[allow(clippy::disallowed_methods, reason = "this is where time enters")]
fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// The present time, in seconds since 1970.
pub fn seconds() -> i64 {
    wall().as_millis() / 1000
}

/// Unpredictable bytes from the operating system.
///
/// # Panics
/// If the operating system provides no randomness, because tokens and seeds would be predictable.
#[allow(clippy::disallowed_types, reason = "this is where chance enters")]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_happened_keeps_its_date_when_the_clock_is_set() {
        let at = |seconds: u64| Moment::START.after(Duration::from_secs(seconds));
        let time = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let mut eras = Eras { past: Vec::new(), offset: 1_000_000, since: Moment::START, set: 0 };
        assert_eq!(eras.observe(at(10), Timestamp::from_millis(1_010_007)), None, "read a little later");
        assert_eq!(eras.at(at(5)), time(1005), "and no date has moved");
        assert_eq!(eras.observe(at(20), time(1050)), None, "a time server's correction");
        assert_eq!((eras.at(at(15)), eras.at(at(25))), (time(1015), time(1055)));
        let year = 400 * 24 * 3600;
        assert_eq!(eras.observe(at(30), time(1060 + year)), Some(year * 1000));
        assert_eq!(eras.at(at(15)), time(1015), "before it was set");
        assert_eq!(eras.at(Moment::START.before(Duration::from_secs(100))), time(900), "before the process began");
        assert_eq!(eras.at(at(40)), time(1070 + year));
        assert_eq!((eras.since, eras.set), (at(30), year * 1000));
        assert_eq!(eras.observe(at(50), time(1080)), Some(-year * 1000));
        assert_eq!((eras.since, eras.set), (at(50), -year * 1000));
        assert_eq!((eras.at(at(15)), eras.at(at(40)), eras.at(at(60))), (time(1015), time(1070 + year), time(1090)));
        for second in 100..100 + 2 * ERAS as i64 {
            eras.observe(at(second as u64), time(second + 2 * (second % 2)));
        }
        assert_eq!(eras.past.len(), ERAS, "the latest are remembered");
    }
}
