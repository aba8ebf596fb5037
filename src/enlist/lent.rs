use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use crate::store::Enlistment;

/// What a claim has of its store, where it can be completed in the handler's own transaction.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(super) enlistment: Enlistment,
    pub(super) retention: Duration,
    enlisted: AtomicBool,
    /// Held during a renewal. One that is committed between a transaction's snapshot and its completion would fail it.
    renewing: Mutex<()>,
}

impl Lent {
    pub(crate) fn new(enlistment: Enlistment, retention: Duration) -> Self {
        Self { enlistment, retention, enlisted: AtomicBool::new(false), renewing: Mutex::new(()) }
    }

    /// From here on the lease is not renewed, and only the store knows how the claim ends.
    pub(super) async fn enlist(&self) {
        let _no_renewal = self.renewing.lock().await;
        self.enlisted.store(true, Ordering::Release);
    }

    pub(crate) fn is_enlisted(&self) -> bool {
        self.enlisted.load(Ordering::Acquire)
    }

    /// Ready when the lease may be renewed, and as long as the guard lives; never, once the completion is enlisted.
    pub(crate) async fn renewable(&self) -> MutexGuard<'_, ()> {
        let turn = self.renewing.lock().await;
        if self.is_enlisted() {
            drop(turn);
            return std::future::pending().await;
        }
        turn
    }
}
