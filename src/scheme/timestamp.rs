use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::rejection::{Rejection, RejectionKind};

/// How far a signed timestamp may be from now, in both directions and inclusive.
///
/// ```
/// use std::time::Duration;
/// use tower_webhook::scheme::{self, Tolerance};
///
/// let paddle = scheme::paddle("pdl_ntfset_…")?.tolerance(Duration::from_secs(60));
/// let replayable = scheme::stripe("whsec_…")?.tolerance(Tolerance::InsecureUnchecked);
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// At most this far, in whole seconds. Zero means the same second.
    Within(Duration),
    /// Any timestamp is accepted: a captured delivery can be replayed until its record's retention ends.
    InsecureUnchecked,
}

impl Default for Tolerance {
    /// Five minutes.
    fn default() -> Self {
        Self::Within(Duration::from_secs(300))
    }
}

impl From<Duration> for Tolerance {
    fn from(allowed: Duration) -> Self {
        Self::Within(allowed)
    }
}

impl Tolerance {
    /// Whether the tolerance rejects a timestamp with a digit more or less. Such a timestamp is off by at least nine
    /// tenths of the time since 1970, far more than three years.
    pub(super) fn detects_moved_digits(self) -> bool {
        matches!(self, Self::Within(allowed) if allowed < Duration::from_secs(100_000_000))
    }

    /// The time for which one timestamp is accepted: from as far in the future as allowed to as far in the past. Time
    /// is compared in whole seconds, so the last of them counts to its end.
    #[must_use]
    pub fn window(self) -> Option<Duration> {
        match self {
            Self::Within(allowed) => Some(Duration::from_secs(allowed.as_secs().saturating_mul(2).saturating_add(1))),
            Self::InsecureUnchecked => None,
        }
    }

    /// Checks `timestamp`, in unix seconds, against `now`.
    ///
    /// # Errors
    /// A [`Rejection`] that says by how much the timestamp is outside the tolerance.
    pub fn check(self, timestamp: u64, now: SystemTime) -> Result<(), Rejection> {
        let Self::Within(allowed) = self else { return Ok(()) };
        let now = now.duration_since(UNIX_EPOCH).map_err(|_| RejectionKind::Early)?.as_secs();
        let distance = now.abs_diff(timestamp);
        match distance.saturating_sub(allowed.as_secs()) {
            0 => Ok(()),
            excess if timestamp < now => Err(Rejection::stale(excess)),
            excess => Err(Rejection::early(excess)),
        }
    }
}

/// The unit of a timestamp since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimestampUnit {
    Seconds,
    Millis,
}

impl TimestampUnit {
    pub(super) fn write(self, unix_millis: u128) -> String {
        match self {
            Self::Seconds => (unix_millis / 1_000).to_string(),
            Self::Millis => unix_millis.to_string(),
        }
    }

    /// Parses and checks a timestamp.
    pub(super) fn read(self, text: &[u8], tolerance: Tolerance, now: SystemTime) -> Result<SystemTime, Rejection> {
        let time = self.parse(text).ok_or(self.malformed())?;
        tolerance.check(time.as_secs(), now)?;
        UNIX_EPOCH.checked_add(time).ok_or(self.malformed())
    }

    /// Whether an unchecked timestamp has this shape: a whole number, and with as many digits as today's if `exact`.
    pub(super) fn is_plausible(self, text: &[u8], exact: bool) -> bool {
        let today = if self == Self::Seconds { 10 } else { 13 };
        let digits = if exact { text } else { text.strip_prefix(b"-").unwrap_or(text) };
        let length = if exact { today..=today } else { 1..=15 };
        length.contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
    }

    /// Accepts only digits without a leading zero: the MAC covers the text, so one moment must have one spelling.
    /// Twelve digits of seconds reach beyond the year 30000.
    fn parse(self, text: &[u8]) -> Option<Duration> {
        let longest = if self == Self::Seconds { 12 } else { 15 };
        let canonical = (1..=longest).contains(&text.len()) && (text[0] != b'0' || text.len() == 1);
        if !canonical || !text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number = text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        Some(if self == Self::Seconds { Duration::from_secs(number) } else { Duration::from_millis(number) })
    }

    const fn malformed(self) -> Rejection {
        let detail = match self {
            Self::Seconds => "the timestamp must be a number of unix seconds, and not of milliseconds",
            Self::Millis => "the timestamp must be a number of unix milliseconds",
        };
        Rejection::malformed(detail)
    }
}
