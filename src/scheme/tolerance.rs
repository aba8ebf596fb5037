use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::rejection::{Rejection, RejectionKind};

/// How far a signed timestamp may be from now, both ways and inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// At most this far, in whole seconds; zero means the very second.
    Within(Duration),
    /// Any timestamp passes: a captured delivery can be replayed until its record's retention ends.
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
    /// Whether a timestamp with a digit more or less would be noticed: three years is far from a tenth of now.
    pub(super) fn notices_digits(self) -> bool {
        matches!(self, Self::Within(allowed) if allowed < Duration::from_secs(100_000_000))
    }

    /// For how long one timestamp passes: from as far in the future as allowed to as far in the past. Time is compared in
    /// whole seconds, so the last of them counts to its end.
    #[must_use]
    pub fn window(self) -> Option<Duration> {
        match self {
            Self::Within(allowed) => Some(Duration::from_secs(allowed.as_secs().saturating_mul(2).saturating_add(1))),
            Self::InsecureUnchecked => None,
        }
    }

    /// Whether `timestamp`, in unix seconds, passes at `now`.
    ///
    /// # Errors
    /// A [`Rejection`] that says by how much it does not.
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
