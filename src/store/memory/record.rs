//! What is kept of a completed event.

use std::time::Duration;

use super::hash::KeyHash;
use super::ticks::Ticks;
use crate::store::ClaimToken;

/// One completed event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) key: KeyHash,
    /// When it is forgotten; [`Ticks::ZERO`] once it is.
    expires: Ticks,
    /// When it was completed, rounded up: a record is never taken for older than it is.
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

    /// Leaves a hole in the log.
    pub(super) fn forget(&mut self) {
        self.expires = Ticks::ZERO;
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.expires == Ticks::ZERO
    }
}

/// 32 bits of a token, enough to know the one that completed this very record from one that did not.
///
/// Every byte counts, since tokens made elsewhere may differ only in a few.
pub(super) fn tag(token: ClaimToken) -> u32 {
    const MULTIPLIER: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    (u128::from_be_bytes(*token.as_bytes()).wrapping_mul(MULTIPLIER) >> 96) as u32
}
