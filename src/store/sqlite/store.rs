use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqlitePool, SqliteRow};
use tokio::runtime::Handle;

use super::connection::{Connection, Database, retry_while_locked};
use super::lease::LeaseHandler;
use super::operation::{Operation, Reply};
use super::operators::CHANGED_AT_ONCE;
use super::statements::Statement;
use super::writer::Writer;
use super::{SqliteStoreBuilder, operators};
#[cfg(doc)]
use crate::store::StoreErrorKind;
use crate::store::batcher::Batcher;
use crate::store::queue::{Change, EventState, Filter};
use crate::store::record::Verb;
use crate::store::{Claim, ClaimRequest, Dialect, Ending, Enlistment, Hold, Store, StoreError, StoreFuture};

/// Remembers events in a SQLite file: survives restarts and power loss, and several processes on one machine can share
/// it.
///
/// The store writes on a connection of its own, in WAL mode with `synchronous=FULL`: an answer that was given is on
/// disk. Concurrent calls share one transaction and one flush.
///
/// # One writer
///
/// SQLite lets one connection write at a time. While a handler's transaction is open, a call that has to write waits,
/// and fails with [`StoreErrorKind::Locked`] after [`lock_wait`](SqliteStoreBuilder::lock_wait): new events get a 503,
/// and leases of running ones are not renewed. Keep transactions short; a third of the lease at the very most. Calls
/// that only read are answered all the while: duplicates of completed events, and claims of events in flight. Where
/// other processes wrote in between, so that a part of a batch may have been written, the error is
/// [`StoreErrorKind::TimedOut`] instead.
///
/// # Clocks
///
/// Leases are on the machine's boot clock: a jump of the wall clock moves none, and after a reboot all are over. (Where
/// there is no `/proc`, leases are on the time that has passed since the store was opened, counted from the wall
/// clock's time then.) Retention is on the wall clock, being longer than machines stay up. All processes have to be on
/// one machine, as SQLite's WAL mode demands anyway.
///
/// The boot clock is read from `/proc/uptime`, and has to be the same for all of them. Ordinary containers have the
/// machine's. Under lxcfs (LXC, Incus) it begins with the container, and in a time namespace it may have an offset.
/// Leases of processes with another clock then end too early, so that an event runs twice at once, or too late. After a
/// restart of such a container, which sets its clock back, the leases that it took before seem to hold for as long as
/// it had been up. Do not share a file among containers like these, and have them see the machine's `/proc/uptime`.
///
/// Clones share one connection that writes, and two that read the [queue](crate::queue::Queue) that this store is, too:
/// one for workers, and one for operators' lists and counts.
///
/// ```no_run
/// use sqlx::SqlitePool;
/// use tower_webhook::store::SqliteStore;
/// use tower_webhook::{WebhookLayer, scheme};
///
/// # async fn example(pool: SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// // A file of its own.
/// let store = SqliteStore::open("/var/lib/receiver/events.db").await?;
/// // Or the database that the handlers write to, so that they can complete their events in their own transactions.
/// let store = SqliteStore::new(&pool).await?;
/// let layer = WebhookLayer::new(scheme::stripe("whsec_…")?, store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    operations: Batcher<Arc<Writer>>,
    pub(super) leases: Batcher<LeaseHandler>,
    pub(super) reader: Arc<Connection>,
    /// For queries that may take long, and must not delay workers.
    pub(super) slow_reader: Arc<Connection>,
    lock_wait: Duration,
}

impl SqliteStore {
    /// Configures a store with another table, lock wait or clock.
    pub fn builder() -> SqliteStoreBuilder {
        SqliteStoreBuilder::new()
    }

    /// Opens a store in this file. The file and the table are created if they are missing; the directory is not.
    ///
    /// Its log is written back to the database from 16 MiB on, and each of its three connections keeps up to 16 MiB of
    /// the database in memory. With [`new`](Self::new) the pool's options decide about both.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or created.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder().open(path).await
    }

    /// Opens a store in the database of this pool, so that handlers can complete their events in transactions of their
    /// own. The table is created if it is missing. No connection of the pool is used: the store opens its own with the
    /// same options. The database is brought into WAL mode, which lasts, and in which the pool's connections should
    /// leave it.
    ///
    /// # Errors
    ///
    /// If the database cannot be opened, or is in memory: every connection would have another one.
    pub async fn new(pool: &SqlitePool) -> Result<Self, StoreError> {
        Self::builder().build(pool).await
    }

    /// Deletes everything that has expired, and the [bodies](super::SqliteStoreBuilder::keep_completed_bodies) of
    /// completed events whose time is over. Returns the number of rows that it deleted. Traffic does the same in small
    /// batches, so this is for operators and for quiet receivers. Events that wait, run or are dead letters do not
    /// expire.
    ///
    /// # Errors
    ///
    /// If the database cannot be written.
    pub async fn purge(&self) -> Result<u64, StoreError> {
        let mut rows = 0;
        loop {
            let purged = self.retry_while_locked(|| async { Ok(self.writer().purge().await?) }).await?;
            rows += purged.rows;
            if !purged.leaves_more() {
                return Ok(rows);
            }
        }
    }

    /// The statements that create the tables, their indexes and triggers, for teams that run their own migrations.
    /// Where they exist, the store creates nothing. A table of an earlier release gets the columns and indexes that it
    /// lacks when the store is opened; both releases can use it from then on. Making an index of a large table takes
    /// some seconds, during which no other connection can write.
    #[must_use]
    pub fn schema_sql(&self) -> &str {
        &self.writer().statements().schema
    }

    pub(super) async fn connect(database: Database, lock_wait: Duration) -> Result<Self, StoreError> {
        let database = Arc::new(database);
        let operations = Batcher::new(Arc::new(Writer::new(&database)));
        let [reader, slow_reader] = [(); 2].map(|()| Arc::new(Connection::new(&database)));
        let leases = Batcher::new(LeaseHandler::new(&operations, &reader));
        let store = Self { operations, leases, reader, slow_reader, lock_wait };
        store.retry_while_locked(|| async { Ok(store.writer().connect().await?) }).await?;
        Ok(store)
    }

    pub(super) fn writer(&self) -> &Writer {
        self.operations.handler()
    }

    pub(super) async fn run(&self, operation: Operation) -> Result<Reply, StoreError> {
        self.retry_while_locked(|| self.operations.ask(operation.clone())).await
    }

    pub(super) async fn retry_while_locked<T, F>(&self, call: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        retry_while_locked(self.lock_wait, call).await
    }

    /// Changes the events in one state, some at a time: claims get a turn in between.
    pub(super) async fn change_all(
        &self,
        filter: &Filter,
        change: Change,
        state: EventState,
        last: i64,
    ) -> Result<u64, StoreError> {
        let mut all = 0;
        loop {
            let changed = self.retry_while_locked(|| async {
                let (statements, now) = (self.writer().statements(), self.writer().times().now());
                let statement = operators::change(statements, filter, change, state, last, &now);
                Ok(self.writer().connection.execute(statement).await?)
            });
            let changed = changed.await?;
            all += changed;
            if changed < CHANGED_AT_ONCE {
                return Ok(all);
            }
        }
    }

    pub(super) async fn query(
        &self,
        reader: &Connection,
        query: impl Fn() -> Statement,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        self.retry_while_locked(|| async { Ok(reader.rows(query()).await?) }).await
    }
}

impl Store for SqliteStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let release = Operation::settle(request, &Ending::Release);
            let guard = ReleaseOnDrop { operations: &self.operations, release: Some(release) };
            let reply = self.run(Operation::new(Verb::Claim, request)).await;
            guard.disarm();
            Ok(reply?.into_claim())
        })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { Ok(self.run(Operation::new(Verb::Renew, claim)).await?.into_hold()) })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { Ok(self.run(Operation::settle(claim, &ending)).await?.into_hold()) })
    }

    fn enlistment(&self) -> Option<Enlistment> {
        Some(Enlistment::new(Dialect::Sqlite, self.writer().statements().complete.clone()))
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.reader.database.path()).finish_non_exhaustive()
    }
}

/// Releases a claim's token if the caller is gone before the reply has come: no other caller knows that the token holds
/// the claim.
///
/// The release is enqueued before the same token can ask anything else, and batches keep the order, so it does not undo
/// a later claim of that token.
pub(super) struct ReleaseOnDrop<'a> {
    operations: &'a Batcher<Arc<Writer>>,
    release: Option<Operation>,
}

impl ReleaseOnDrop<'_> {
    /// Keeps the token: the reply has come.
    fn disarm(mut self) {
        self.release = None;
    }
}

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        // Without a runtime no batch can run, and the lease ends by itself.
        if let Some(release) = self.release.take()
            && Handle::try_current().is_ok()
        {
            self.operations.tell(release);
        }
    }
}
