use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use crate::store::{Dialect, Enlistment};

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
        // Not on SQLite: the renewal would wait for the write lock, which the handler's transaction has, and the handler for the
        // renewal. Nor is there anything to wait for, since that lock keeps the renewal out until the transaction has ended.
        let _no_renewal = match self.enlistment.dialect() {
            Dialect::Sqlite => None,
            Dialect::Postgres => Some(self.renewing.lock().await),
        };
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
