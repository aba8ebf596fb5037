use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::claim_state::ClaimState;
use super::verdict::CompletionRecord;
use crate::EventKey;
use crate::lock::lock;
use crate::rejection::RejectionKind;
use crate::store::{ClaimToken, Fingerprint};

/// The duplicates that wait for the outcome of the first delivery, by key.
///
/// A delivery without a waiting duplicate costs one atomic load when it settles.
#[derive(Default)]
pub(super) struct Waiters {
    total: AtomicUsize,
    groups: Mutex<HashMap<EventKey, Arc<WaitGroup>>>,
}

/// How the first delivery has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstEnded {
    Completed,
    Failed,
}

/// The duplicates that wait for one key.
struct WaitGroup {
    waiters: AtomicUsize,
    ending: watch::Sender<Option<FirstEnded>>,
    /// The one waiter that asks the store for all others holds this.
    asking: tokio::sync::Mutex<()>,
}

impl Waiters {
    /// Joins the duplicates that wait for `key`.
    pub(super) fn join(&self, key: &EventKey, per_key: usize, in_all: usize) -> Result<Waiter<'_>, RejectionKind> {
        let mut groups = lock(&self.groups);
        let group = groups.get(key).cloned().unwrap_or_default();
        if group.waiters.load(Ordering::Relaxed) >= per_key || self.total.load(Ordering::Relaxed) >= in_all {
            return Err(RejectionKind::TooManyWaiting);
        }
        group.waiters.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::SeqCst);
        groups.entry(key.clone()).or_insert_with(|| group.clone());
        Ok(Waiter { waiters: self, key: key.clone(), group })
    }

    /// Wakes all duplicates that wait for `key`, and tells them how the first delivery ended.
    pub(super) fn ended(&self, key: &EventKey, ending: FirstEnded) {
        if self.total.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(group) = lock(&self.groups).remove(key) {
            group.ending.send_replace(Some(ending));
        }
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self { waiters: AtomicUsize::new(0), ending: watch::Sender::new(None), asking: tokio::sync::Mutex::new(()) }
    }
}

/// One waiting duplicate.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    key: EventKey,
    group: Arc<WaitGroup>,
}

impl Waiter<'_> {
    pub(super) async fn ending(&self) -> FirstEnded {
        let mut endings = self.group.ending.subscribe();
        let ending = endings.wait_for(Option::is_some).await.ok().and_then(|ending| *ending);
        // The channel cannot close: its sender is in `self`. If it did, the sender of the delivery would have to try
        // again.
        ending.unwrap_or(FirstEnded::Failed)
    }

    /// Waits until it is this waiter's turn to ask the store.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.group.asking.lock().await
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut groups = lock(&self.waiters.groups);
        self.waiters.total.fetch_sub(1, Ordering::SeqCst);
        let last = self.group.waiters.fetch_sub(1, Ordering::Relaxed) == 1;
        if last && groups.get(&self.key).is_some_and(|current| Arc::ptr_eq(current, &self.group)) {
            groups.remove(&self.key);
        }
    }
}

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
    record: CompletionRecord,
}

impl PendingCompletions {
    /// The body's fingerprint, if a completion of `key` is pending.
    pub(super) fn get(&self, key: &EventKey) -> Option<Fingerprint> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        lock(&self.keys).get(key).map(|pending| pending.fingerprint)
    }

    /// The record of `key`, if its completion is pending.
    pub(super) fn record(&self, key: &EventKey) -> Option<CompletionRecord> {
        self.get(key)?;
        lock(&self.keys).get(key).map(|pending| pending.record.clone())
    }

    pub(super) fn remember(&self, claim: &ClaimState, record: &CompletionRecord) {
        let (token, fingerprint, record) = (claim.token, claim.fingerprint, record.clone());
        let mut keys = lock(&self.keys);
        keys.insert(claim.key.clone(), Pending { token, fingerprint, record });
        self.count.store(keys.len(), Ordering::Release);
    }

    /// Forgets the completion of this claim, though not one of a delivery that took its claim over.
    pub(super) fn forget(&self, claim: &ClaimState) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut keys = lock(&self.keys);
        if keys.get(&claim.key).is_some_and(|pending| pending.token == claim.token) {
            keys.remove(&claim.key);
            self.count.store(keys.len(), Ordering::Release);
        }
    }
}
