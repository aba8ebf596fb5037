use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqlitePool;
use tokio::time::Instant;

use super::SqliteStoreBuilder;
use super::leases::Leases;
use super::leaving::Leaving;
use super::question::{Answer, Question};
use super::reader::Reader;
use super::writer::Writer;
use crate::clock::LONGEST;
use crate::store::group::Group;
use crate::store::{
    Claim, ClaimRequest, Dialect, Ending, Enlistment, Hold, Store, StoreError, StoreErrorKind, StoreFuture,
};

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Remembers events in a SQLite file: survives restarts and power loss, and several processes on one machine can share it.
///
/// The store writes on a connection of its own, in WAL mode with `synchronous=FULL`: what was answered is on disk. Concurrent calls
/// share one transaction and one flush.
///
/// # One writer
///
/// SQLite lets one connection write at a time. While a handler's transaction is open, a call that has to write waits, and fails
/// with [`StoreErrorKind::Locked`] after [`lock_wait`](SqliteStoreBuilder::lock_wait): new events get a 503, and leases of running ones
/// are not renewed. Keep transactions short; a third of the lease at the very most. Calls that only read are answered all the
/// while: duplicates of completed events, and claims of what is in flight. Where other processes wrote in between, so that a part
/// of a batch may have been written, it is [`StoreErrorKind::TimedOut`] instead.
///
/// # Clocks
///
/// Leases are on the machine's boot clock: a jump of the wall clock moves none, and after a reboot all are over. (Where there is no
/// `/proc`, on the time that has passed since the store was opened, counted from the wall clock's time then.) Retention is on the wall
/// clock, being longer than machines stay up. All processes have to be on one machine, as SQLite's WAL mode demands anyway.
///
/// The boot clock is read from `/proc/uptime`, and has to be the same for all of them. Ordinary containers have the machine's.
/// Under lxcfs (LXC, Incus) it begins with the container, and in a time namespace it may have an offset. Leases of processes
/// with another clock then end too early, so that an event runs twice at once, or too late; and after a restart of such a
/// container, which sets its clock back, its own of before seem to hold on for as long as it had been up. Do not share a file
/// among containers like these, and have them see the machine's `/proc/uptime`.
///
/// Clones share one connection, and two others to look at the [queue](crate::queue::Queue) that this store is, too: one for what
/// takes no time, and one for operators' lists and counts.
#[derive(Clone)]
pub struct SqliteStore {
    group: Group<Arc<Writer>>,
    pub(super) leases: Group<Leases>,
    pub(super) reader: Arc<Reader>,
    /// For looks that may take long, and must not keep workers waiting.
    pub(super) slow_reader: Arc<Reader>,
    lock_wait: Duration,
}

impl SqliteStore {
    /// A store in this file. The file and the table are created if they are missing; the directory is not.
    ///
    /// Its log is written back to the database from 16 MiB on, and each of its three connections keeps up to 16 MiB of the database in
    /// memory. With [`new`](Self::new) the pool's options decide about both.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or created.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder().open(path).await
    }

    /// A store in the database of this pool, so that handlers can complete their events in transactions of their own. The
    /// table is created if it is missing. No connection of the pool is used: the store opens one with the same options. The
    /// database is brought into WAL mode, which lasts, and in which the pool's connections should leave it.
    ///
    /// # Errors
    ///
    /// If the database cannot be opened, or is in memory: every connection would have another one.
    pub async fn new(pool: &SqlitePool) -> Result<Self, StoreError> {
        Self::builder().build(pool).await
    }

    /// A store with another table, patience or clock.
    pub fn builder() -> SqliteStoreBuilder {
        SqliteStoreBuilder::new()
    }

    /// Deletes everything that has expired, and says how many rows that was; and the
    /// [bodies](SqliteStoreBuilder::keep_completed_bodies) of completed events whose time is over. Traffic does the same in small batches, so this is
    /// for operators and for quiet receivers. Events that wait, run or are dead letters do not expire.
    ///
    /// # Errors
    ///
    /// If the database cannot be written.
    pub async fn purge(&self) -> Result<u64, StoreError> {
        let mut all = 0;
        loop {
            let purged = self.unless_locked(|| async { self.writer().purge().await.map_err(|fault| (&fault).into()) });
            let purged = purged.await?;
            all += purged.rows;
            if !purged.leaves_more() {
                return Ok(all);
            }
        }
    }

    /// The statements that create the tables, their indexes and triggers, for teams that run their own migrations. Where they
    /// exist, the store creates nothing. A table of an earlier release gets the columns and indexes that it lacks when the store is opened;
    /// both releases can use it from then on. Making an index of a large table takes some seconds, during which nobody else can write.
    #[must_use]
    pub fn schema_sql(&self) -> &str {
        &self.writer().statements.schema
    }

    pub(super) async fn connect(writer: Writer, lock_wait: Duration) -> Result<Self, StoreError> {
        let group = Group::new(Arc::new(writer));
        let reader = Arc::default();
        let leases = Group::new(Leases::new(&group, &reader));
        let store = Self { group, leases, reader, slow_reader: Arc::default(), lock_wait };
        store.unless_locked(|| async { store.writer().connect().await.map_err(|fault| (&fault).into()) }).await?;
        Ok(store)
    }

    pub(super) fn writer(&self) -> &Writer {
        self.group.engine()
    }

    pub(super) async fn ask(&self, question: Question) -> Result<Answer, StoreError> {
        self.unless_locked(|| self.group.ask(question.clone())).await
    }

    /// Asks again while another connection holds the lock, until the wait is over. Between the questions, and not in one:
    /// a batch that waited would keep those waiting who only read. In the end the error says whether any of the questions may
    /// have taken effect.
    pub(super) async fn unless_locked<T, F>(&self, ask: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        unless_locked_for(self.lock_wait, ask).await
    }
}

/// The same for any wait, as long as it can be counted with.
pub(super) async fn unless_locked_for<T, F>(wait: Duration, ask: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let until = Instant::now() + wait.min(LONGEST);
    let mut pause = FIRST_PAUSE;
    let mut kind = StoreErrorKind::Locked;
    loop {
        match ask().await {
            Err(error) if error.kind() == StoreErrorKind::Locked => {}
            Err(error) if error.kind() == StoreErrorKind::TimedOut => kind = StoreErrorKind::TimedOut,
            answer => return answer,
        }
        if Instant::now() >= until {
            return Err(StoreError::new(kind));
        }
        tokio::time::sleep_until(until.min(Instant::now() + pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Store for SqliteStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let leaving = Leaving::new(&self.group, Question::release(request.key, request.token));
            let answer = self.ask(Question::claim(request)).await;
            leaving.stays();
            Ok(answer?.into_claim())
        })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { Ok(self.ask(Question::renew(claim)).await?.into_hold()) })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            let question = match ending {
                Ending::Complete(completion) => Question::complete(claim, &completion),
                Ending::Release => Question::release(claim.key, claim.token),
                Ending::Retry { after, reason } => Question::retry(claim, after, reason),
                Ending::Bury { reason } => Question::bury(claim, reason),
            };
            Ok(self.ask(question).await?.into_hold())
        })
    }

    fn enlistment(&self) -> Option<Enlistment> {
        Some(Enlistment::new(Dialect::Sqlite, self.writer().statements.complete.clone()))
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.writer().database.path()).finish_non_exhaustive()
    }
}
