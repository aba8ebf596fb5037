use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

/// The statement with which a handler completes its claim inside a transaction of its own: effect and completion are
/// committed together, or neither is. See [`WebhookEvent::enlist`](crate::WebhookEvent::enlist).
///
/// The statement turns a running claim into a completed record, and changes no row if the token does not hold the
/// claim. Its parameters, in this order: the key (text), the token (16 bytes), the summary (text), the retention in
/// milliseconds (64 bits).
#[derive(Clone, Debug)]
pub struct Enlistment {
    dialect: Dialect,
    sql: Arc<str>,
    prepared: bool,
}

/// The record's summary of an event that its handler's transaction has completed.
pub(crate) const COMMITTED: &str = "committed by the handler";

/// Why an event is released whose handler succeeded without committing its transaction.
pub(crate) const NOT_COMMITTED: &str =
    "the completion was enlisted in a transaction, which was rolled back or never committed";

/// The SQL dialect of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL's, with `$1`.
    Postgres,
    /// SQLite's, with `?1`.
    Sqlite,
}

impl Enlistment {
    /// Creates an enlistment from a statement.
    pub fn new(dialect: Dialect, sql: impl Into<Arc<str>>) -> Self {
        Self { dialect, sql: sql.into(), prepared: true }
    }

    /// Keeps drivers from preparing the statement on the handler's connection. A transaction pooler may give the
    /// session to another client after the transaction.
    #[must_use]
    pub fn unprepared(mut self) -> Self {
        self.prepared = false;
        self
    }

    /// Whether a driver may keep the statement prepared.
    #[must_use]
    pub(crate) const fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Which database can run it.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The statement.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }
}

/// Whether the handler of one claim has enlisted the completion, and how it does.
#[derive(Debug)]
pub(crate) struct EnlistState {
    pub(crate) enlistment: Enlistment,
    pub(crate) retention: Duration,
    enlisted: AtomicBool,
    /// Held during a renewal. One that is committed between a transaction's snapshot and its completion would fail it.
    renewing: Mutex<()>,
}

impl EnlistState {
    pub(crate) fn new(enlistment: Enlistment, retention: Duration) -> Self {
        Self { enlistment, retention, enlisted: AtomicBool::new(false), renewing: Mutex::new(()) }
    }

    /// From here on the lease is not renewed, and only the store knows how the claim ends.
    pub(crate) async fn enlist(&self) {
        // Not on SQLite: the renewal would wait for the write lock, which the handler's transaction has, and the
        // handler for the renewal. Nor is there anything to wait for, since that lock keeps the renewal out until the
        // transaction has ended.
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
