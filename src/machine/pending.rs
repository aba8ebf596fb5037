use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::claim_state::ClaimState;
use super::verdict::Record;
use crate::EventKey;
use crate::store::{ClaimToken, Fingerprint};

/// Events whose work is done but whose completion the store has not confirmed yet: remembered here meanwhile, so that a
/// duplicate does not run them again. Bounded by the deliveries that may run, because each keeps its admission.
#[derive(Default)]
pub(super) struct PendingCompletions {
    count: AtomicUsize,
    keys: Mutex<HashMap<EventKey, Pending>>,
}

struct Pending {
    token: ClaimToken,
    fingerprint: Fingerprint,
    record: Record,
}

impl PendingCompletions {
    /// The body's fingerprint, if a completion of `key` is pending.
    pub(super) fn get(&self, key: &EventKey) -> Option<Fingerprint> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.lock().get(key).map(|pending| pending.fingerprint)
    }

    /// The record of `key`, if its completion is pending.
    pub(super) fn record(&self, key: &EventKey) -> Option<Record> {
        self.get(key)?;
        self.lock().get(key).map(|pending| pending.record.clone())
    }

    pub(super) fn remember(&self, claim: &ClaimState, record: &Record) {
        let (token, fingerprint, record) = (claim.token, claim.fingerprint, record.clone());
        let mut keys = self.lock();
        keys.insert(claim.key.clone(), Pending { token, fingerprint, record });
        self.count.store(keys.len(), Ordering::Release);
    }

    /// Forgets the completion of this claim, though not one of a delivery that took its claim over.
    pub(super) fn forget(&self, claim: &ClaimState) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut keys = self.lock();
        if keys.get(&claim.key).is_some_and(|pending| pending.token == claim.token) {
            keys.remove(&claim.key);
            self.count.store(keys.len(), Ordering::Release);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EventKey, Pending>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
