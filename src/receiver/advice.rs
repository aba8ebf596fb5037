//! Advice for the operator of an endpoint at which nothing has failed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::xxh3_64;

use crate::EventKey;
use crate::store::BodyHashes;
use crate::telemetry::{self, Delivered};
use crate::throttle::Throttles;

/// Hints for the operator, each at most once a minute per endpoint.
#[derive(Default)]
pub(super) struct Advice {
    throttles: Throttles<Hint>,
    bodies: RecentBodies,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Hint {
    SlowAnswer,
    BodyUnderTwoIds,
}

impl Advice {
    /// The handler took longer than the sender waits.
    pub(super) fn answered_late(&self, took: Duration, waits: Duration, about: &Delivered<'_>, now: Instant) {
        let endpoint = about.endpoint.unwrap_or_default();
        if let Some(count) = self.throttles.count(endpoint, Hint::SlowAnswer, now) {
            telemetry::answered_late(took, waits, about, count);
        }
    }

    /// Notes that a body came under this key. Returns whether it came under another id of the same endpoint and tenant
    /// within the last minutes.
    ///
    /// `event_type` is the type of an event whose id contains it: two types may share their bytes.
    pub(super) fn is_body_of_another_id(
        &self,
        key: &EventKey,
        event_type: Option<&str>,
        hashes: BodyHashes,
        at: SystemTime,
    ) -> bool {
        let event_type = event_type.map_or(0, |event_type| xxh3_64(event_type.as_bytes()));
        self.bodies.note(xxh3_64(key.scope().as_bytes()) ^ event_type, hashes, at)
    }

    /// One body came under two ids.
    pub(super) fn body_under_two_ids(&self, key: &EventKey, scheme: &str, id_is_signed: bool, now: Instant) {
        if let Some(count) = self.throttles.count(key.endpoint(), Hint::BodyUnderTwoIds, now) {
            telemetry::body_under_two_ids(key, scheme, id_is_signed, count);
        }
    }
}

/// As many bodies are remembered, or fewer: a newer one may take the place of another.
const SLOTS: usize = 256;

/// For how long a body is remembered.
const MINUTES: u16 = 10;

/// The bodies that came last, each with the key that it came under. An entry is one number, so that no lock is needed:
/// 32 bits of the body's hash, 16 bits of the key's, and the minute.
///
/// It is for hints only: a body may be forgotten early, and two keys may be taken for one.
struct RecentBodies([AtomicU64; SLOTS]);

impl Default for RecentBodies {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS])
    }
}

impl RecentBodies {
    /// Notes a body, and returns whether it came under another key of the same scope before.
    fn note(&self, scope: u64, hashes: BodyHashes, at: SystemTime) -> bool {
        let minute = (at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 60) as u16;
        let (body, key) = (hashes.body ^ scope, hashes.key as u16);
        let entry = (body & 0xffff_ffff_0000_0000) | u64::from(key) << 16 | u64::from(minute);
        let slot = &self.0[body as usize % SLOTS];
        // Not one step: of two deliveries at the same moment, one may be missed.
        let before = slot.load(Ordering::Relaxed);
        slot.store(entry, Ordering::Relaxed);
        let (same_body, same_key) = ((before ^ entry) >> 32 == 0, (before >> 16) as u16 == key);
        same_body && !same_key && minute.wrapping_sub(before as u16) <= MINUTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(id: &str, body: &str) -> BodyHashes {
        BodyHashes::of(&EventKey::new("/hook", None, id), body.as_bytes())
    }

    fn minute(minute: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000 + 60 * minute)
    }

    #[test]
    fn body_under_another_key_is_noticed_for_some_minutes() {
        let bodies = RecentBodies::default();
        for (id, at, noticed) in [("a", 0, false), ("a", 1, false), ("b", 2, true), ("a", 3, true), ("b", 14, false)] {
            assert_eq!(bodies.note(7, hashes(id, "x"), minute(at)), noticed, "{id} at minute {at}");
        }
    }

    #[test]
    fn other_bodies_and_other_scopes_are_none_of_its() {
        let bodies = RecentBodies::default();
        assert!(!bodies.note(7, hashes("a", "x"), minute(0)));
        assert!(!bodies.note(8, hashes("b", "x"), minute(0)));
        for n in 0..10_000 {
            assert!(!bodies.note(7, hashes(&format!("id_{n}"), &format!("body {n}")), minute(0)));
        }
    }

    #[test]
    fn clock_that_goes_back_gives_no_hint() {
        let bodies = RecentBodies::default();
        bodies.note(7, hashes("a", "x"), minute(30));
        assert!(!bodies.note(7, hashes("b", "x"), minute(0)));
    }
}
