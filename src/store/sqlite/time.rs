//! Two clocks in one row: leases on the machine's boot clock, everything that people read on the wall clock.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clock::{Clock, LONGEST, SystemClock, unix_millis};

/// One reading of both clocks, in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Now {
    /// Since the Unix epoch.
    pub(super) wall: i64,
    /// Since the boot.
    pub(super) since_boot: i64,
    /// The id of the boot. A lease of another boot has lapsed with the process that held it.
    pub(super) boot_id: Arc<str>,
}

/// Reads both clocks.
///
/// The boot clock is the same for every process on the machine, no jump of the wall clock moves it, and it runs on
/// while the machine sleeps. Where it cannot be read, a store counts on from the wall clock's time at which it was
/// opened.
pub(super) struct Times {
    clock: Arc<dyn Clock>,
    boot_id: Arc<str>,
    opened: Instant,
    since_boot_at_opening: i64,
    /// Whether leases follow the kernel's clock rather than an injected one.
    by_kernel: bool,
}

impl Times {
    /// Reads the machine's own clocks, or an injected one.
    pub(super) fn new(injected: Option<Arc<dyn Clock>>) -> Self {
        let by_kernel = injected.is_none();
        let clock = injected.unwrap_or_else(|| Arc::new(SystemClock));
        let opened = clock.monotonic();
        match (boot_id(), uptime()) {
            (Some(boot_id), Some(uptime)) => Self { boot_id, since_boot_at_opening: uptime, opened, by_kernel, clock },
            _ => Self {
                boot_id: "".into(),
                since_boot_at_opening: wall_millis(&*clock),
                opened,
                by_kernel: false,
                clock,
            },
        }
    }

    pub(super) fn now(&self) -> Now {
        let passed = || self.since_boot_at_opening + millis(self.monotonic().saturating_duration_since(self.opened));
        let since_boot = self.by_kernel.then(uptime).flatten().unwrap_or_else(passed);
        Now { wall: wall_millis(&*self.clock), since_boot, boot_id: self.boot_id.clone() }
    }

    /// The id of the current boot.
    pub(super) fn boot_id(&self) -> &Arc<str> {
        &self.boot_id
    }

    pub(super) fn monotonic(&self) -> Instant {
        self.clock.monotonic()
    }
}

/// Converts a duration to milliseconds, rounded up, and to ten years at the most, so that it can be added to any time.
pub(super) fn millis(duration: Duration) -> i64 {
    duration.min(LONGEST).as_nanos().div_ceil(1_000_000) as i64
}

/// How long heads and bodies of completed events are kept: milliseconds from the completion on, or as long as the
/// record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BodyRetention(Option<i64>);

impl BodyRetention {
    pub(super) fn of(time: Duration) -> Self {
        Self(Some(millis(time)))
    }

    /// Whether the statement that completes an event removes its body.
    pub(super) fn end_at_once(self) -> bool {
        self.0 == Some(0)
    }

    /// The time on the wall clock up to which the bodies of completed events are gone; `None`, if none are.
    pub(super) fn gone_by(self, now: &Now) -> Option<i64> {
        self.0.map(|kept| now.wall - kept)
    }
}

/// The wall clock: not before 1970, and early enough for any duration to be added to it.
fn wall_millis(clock: &dyn Clock) -> i64 {
    unix_millis(clock.now()).clamp(0, 1 << 50)
}

fn boot_id() -> Option<Arc<str>> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = id.trim();
    (!id.is_empty()).then(|| id.into())
}

fn uptime() -> Option<i64> {
    parse_uptime(&fs::read_to_string("/proc/uptime").ok()?)
}

/// `350735.47 234388.90`: seconds since the boot, and what the processors idled of it.
fn parse_uptime(text: &str) -> Option<i64> {
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1000.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn durations_are_rounded_up_and_capped() {
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_millis(7)), 7);
        assert_eq!(millis(Duration::MAX), LONGEST.as_millis() as i64);
    }

    #[test]
    fn wall_clock_before_1970_is_at_1970() {
        struct At(SystemTime);

        impl Clock for At {
            fn now(&self) -> SystemTime {
                self.0
            }

            fn monotonic(&self) -> Instant {
                Instant::now()
            }
        }

        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(wall_millis(&At(epoch - Duration::from_secs(1))), 0);
        assert_eq!(wall_millis(&At(epoch + Duration::from_millis(1_700_000_000_123))), 1_700_000_000_123);
        assert_eq!(wall_millis(&At(epoch + Duration::from_secs(1 << 45))), 1 << 50);
    }

    #[test]
    fn uptime_is_read_as_the_kernel_writes_it() {
        assert_eq!(parse_uptime("350735.47 234388.90\n"), Some(350_735_470));
        for nonsense in ["", "x 1", "-1.0 2", "NaN 1"] {
            assert_eq!(parse_uptime(nonsense), None, "{nonsense:?}");
        }
    }
}
