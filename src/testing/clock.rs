use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use crate::clock::Clock;
use crate::lock::lock;

/// A clock that stands still until a test moves it.
///
/// Clones show the same time, so a test keeps one and gives another away.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_webhook::clock::Clock;
/// use tower_webhook::testing::ManualClock;
///
/// let clock = ManualClock::at_unix(1_700_000_000);
/// let given_away = clock.clone();
/// let before = given_away.monotonic();
///
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(given_away.now(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_060));
/// assert_eq!(given_away.monotonic() - before, Duration::from_secs(60));
///
/// clock.set_wall(SystemTime::UNIX_EPOCH);
/// assert_eq!(given_away.monotonic() - before, Duration::from_secs(60));
/// ```
#[derive(Clone)]
pub struct ManualClock {
    readings: Arc<Mutex<Readings>>,
}

#[derive(Clone, Copy)]
struct Readings {
    wall: SystemTime,
    monotonic: Instant,
}

impl ManualClock {
    /// Creates a clock whose wall clock shows `wall`.
    #[must_use]
    pub fn at(wall: SystemTime) -> Self {
        Self { readings: Arc::new(Mutex::new(Readings { wall, monotonic: Instant::now() })) }
    }

    /// Creates a clock whose wall clock shows this many seconds since the Unix epoch.
    ///
    /// # Panics
    ///
    /// If a [`SystemTime`] cannot hold that time.
    #[must_use]
    pub fn at_unix(seconds: u64) -> Self {
        Self::at(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// Lets time pass, on both readings.
    ///
    /// # Panics
    ///
    /// If a reading cannot hold the new time.
    pub fn advance(&self, time: Duration) {
        let mut readings = self.readings();
        readings.wall += time;
        readings.monotonic += time;
    }

    /// Sets the wall clock, forward or back, as a time service or an operator would: the monotonic reading stays.
    pub fn set_wall(&self, wall: SystemTime) {
        self.readings().wall = wall;
    }

    /// Locks the readings, even after a panic: a test that failed while moving the clock must not fail those that share
    /// it.
    fn readings(&self) -> MutexGuard<'_, Readings> {
        lock(&self.readings)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> SystemTime {
        self.readings().wall
    }

    fn monotonic(&self) -> Instant {
        self.readings().monotonic
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("now", &self.now()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_jumps_alone() {
        let clock = ManualClock::at_unix(1_000);
        let before = clock.monotonic();
        for wall in [10, 1_000_000] {
            let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(wall);
            clock.set_wall(wall);
            assert_eq!((clock.now(), clock.monotonic()), (wall, before));
        }
    }
}
