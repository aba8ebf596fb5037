//! The record of a completed event, and the coarse time in it.

use std::time::Duration;

use super::hash::KeyHash;
use crate::store::ClaimToken;

/// A completed event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) key: KeyHash,
    /// When the event is forgotten; [`Ticks::ZERO`] once it is.
    expires: Ticks,
    /// When the event was completed, rounded up: a record is never taken for older than it is.
    completed: Ticks,
    pub(super) fingerprint: u32,
    pub(super) tag: u32,
}

const _: () = assert!(size_of::<Record>() == 32);

impl Record {
    pub(super) fn new(key: KeyHash, fingerprint: u32, token: ClaimToken, now: Duration, retention: Duration) -> Self {
        Self {
            key,
            // Never zero, which would read as forgotten.
            expires: Ticks::ceil(now.saturating_add(retention)).max(Ticks::ONE),
            completed: Ticks::ceil(now),
            fingerprint,
            tag: tag(token),
        }
    }

    pub(super) fn expires(&self) -> Ticks {
        self.expires
    }

    pub(super) fn has_expired(&self, now: Ticks) -> bool {
        self.expires <= now
    }

    /// Whether it is at least as old as `age`.
    pub(super) fn has_reached(&self, age: Ticks, now: Ticks) -> bool {
        age == Ticks::ZERO || self.completed.plus(age) <= now
    }

    /// Turns the record into a hole in the log.
    pub(super) fn forget(&mut self) {
        self.expires = Ticks::ZERO;
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.expires == Ticks::ZERO
    }
}

/// Shortens a token to 32 bits, enough to tell the token that completed this very record from any other.
///
/// Every byte counts, since tokens made elsewhere may differ only in a few.
pub(super) fn tag(token: ClaimToken) -> u32 {
    const MULTIPLIER: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    (u128::from_be_bytes(*token.as_bytes()).wrapping_mul(MULTIPLIER) >> 96) as u32
}

/// Coarse time, four bytes wide: tenths of a second since the store was built; the last one, 13 years on, stands for
/// everything after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticks(u32);

const TICK_NANOS: u32 = 100_000_000;
const TICKS_PER_SECOND: u64 = 10;

impl Ticks {
    pub(super) const ZERO: Self = Self(0);
    pub(super) const MAX: Self = Self(u32::MAX);
    pub(super) const ONE: Self = Self(1);

    /// The last tick not after `time`.
    pub(super) fn floor(time: Duration) -> Self {
        Self::saturating(whole_ticks(time))
    }

    /// The first tick not before `time`.
    pub(super) fn ceil(time: Duration) -> Self {
        let begun = u64::from(!time.subsec_nanos().is_multiple_of(TICK_NANOS));
        Self::saturating(whole_ticks(time).saturating_add(begun))
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    fn saturating(ticks: u64) -> Self {
        u32::try_from(ticks).map_or(Self::MAX, Self)
    }
}

fn whole_ticks(time: Duration) -> u64 {
    time.as_secs().saturating_mul(TICKS_PER_SECOND).saturating_add(u64::from(time.subsec_nanos() / TICK_NANOS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_towards_the_requested_side() {
        let time = Duration::from_millis(1_250);
        assert_eq!((Ticks::floor(time), Ticks::ceil(time)), (Ticks(12), Ticks(13)));
        let exact = Duration::from_millis(1_200);
        assert_eq!((Ticks::floor(exact), Ticks::ceil(exact)), (Ticks(12), Ticks(12)));
        assert_eq!(Ticks::ceil(Duration::from_nanos(1)), Ticks::ONE);
    }

    #[test]
    fn the_end_of_time_saturates() {
        assert_eq!(Ticks::floor(Duration::MAX), Ticks::MAX);
        assert_eq!(Ticks::ceil(Duration::MAX), Ticks::MAX);
        assert_eq!(Ticks::MAX.plus(Ticks::ONE), Ticks::MAX);
    }
}
