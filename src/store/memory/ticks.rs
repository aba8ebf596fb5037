//! Coarse time, four bytes wide.

use std::time::Duration;

/// Tenths of a second since the store was built; the last one, 13 years on, stands for everything after it.
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
    fn rounds_towards_the_side_that_was_asked_for() {
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
