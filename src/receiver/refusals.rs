//! Which refusals an operator is told of, and how often.

use std::sync::{Mutex, PoisonError};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::clock::Clock;
use crate::rejection::RejectionKind;
use crate::throttle::Throttle;

/// Counts refusals by endpoint and kind: a forger must not be able to flood the log.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashTable<Endpoint>>);

/// The refusals of one endpoint.
struct Endpoint {
    name: Box<str>,
    by_kind: [Throttle; RejectionKind::COUNT],
}

impl Refusals {
    /// Counts a refusal. Returns how many of its kind the operator is to be told of now, if it is time.
    pub(super) fn count(&self, endpoint: &str, kind: RejectionKind, clock: &dyn Clock) -> Option<u64> {
        if !kind.is_of_the_request() {
            return None;
        }
        // Endpoints are named by the application, not by senders: nobody can make their hashes collide.
        let hash = |name: &str| xxh3_64(name.as_bytes());
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = endpoints.entry(hash(endpoint), |known| *known.name == *endpoint, |known| hash(&known.name));
        let known = known.or_insert_with(|| Endpoint { name: endpoint.into(), by_kind: Default::default() });
        known.into_mut().by_kind[kind as usize].count(clock.monotonic())
    }
}
