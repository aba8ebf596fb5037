//! The source of the receiver's time.
//!
//! There are two readings, which must not be confused. The *wall clock* is compared with the timestamps that senders
//! sign. The *monotonic clock* measures leases and retention, so that a jump of the wall clock can neither end a lease
//! early nor keep one alive.
//!
//! ```
//! use std::time::{Instant, SystemTime};
//! use tower_webhook::clock::Clock;
//!
//! /// A host whose wall clock is corrected by a time service.
//! struct Corrected(std::time::Duration);
//!
//! impl Clock for Corrected {
//!     fn now(&self) -> SystemTime {
//!         SystemTime::now() + self.0
//!     }
//!     fn monotonic(&self) -> Instant {
//!         Instant::now()
//!     }
//! }
//! ```

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::{ConfigError, ConfigErrorKind};

/// Ten years: longer than any lease, retention or process lasts, and short enough to be added to any instant.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A source of time. It is [`SystemClock`] unless a test injects another.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a clock",
    label = "expected a source of the current time",
    note = "a test gives a `testing::ManualClock`, which it moves, and keeps a clone of it; `clock::SystemClock` is the default"
)]
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, which is compared with signed timestamps and shown to people.
    fn now(&self) -> SystemTime;

    /// The monotonic clock, which measures leases and retention. It never goes back.
    fn monotonic(&self) -> Instant;
}

/// The machine's own clocks.
///
/// The monotonic reading is tokio's, so it stands still in a test that calls `tokio::time::pause`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> SystemTime {
        (**self).now()
    }

    fn monotonic(&self) -> Instant {
        (**self).monotonic()
    }
}

/// Validates a duration from a configuration: longer than zero, and short enough to be added to any instant.
pub(crate) fn countable(time: Duration, what: &str) -> Result<Duration, ConfigError> {
    if time.is_zero() || time > LONGEST {
        let message = format!("{what} must be longer than zero and at most ten years");
        return Err(ConfigError::new(ConfigErrorKind::Duration, message));
    }
    Ok(time)
}

/// Milliseconds since 1970, negative before.
pub(crate) fn unix_millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
    }
}

/// The time at this many milliseconds since 1970.
pub(crate) fn from_unix_millis(millis: i64) -> SystemTime {
    let distance = Duration::from_millis(millis.unsigned_abs());
    let time = if millis < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}
