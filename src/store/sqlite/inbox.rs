use std::future::Future;
use std::pin::Pin;
use std::time::UNIX_EPOCH;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::SqliteStore;
use super::fault::Fault;
use super::leasing::Wanted;
use super::operating::{self, CHANGED_AT_ONCE};
use super::question::Question;
use super::reader::Reader;
use super::record;
use super::statements;
use super::viewing::{self, Fragment};
use crate::EventKey;
use crate::store::queue::{
    Change, Changed, EventState, Filter, LeaseRequest, Leased, Page, Queue, QueueCounts, QueuedEvent, StoredRequest,
};
use crate::store::{Claim, ClaimRequest, Hold, StoreError, StoreFuture};

/// Events survive restarts and power loss: an event that was answered [`Claim::Fresh`] is on disk. Workers in any number of
/// processes on the machine can lease from one file.
///
/// # Clocks
///
/// When an event is due, and until when it is leased, is on the boot clock: a jump of the wall clock neither holds an event
/// up nor runs it early. After a reboot every lease is over and everything that waits is due, retries included.
///
/// # Waking
///
/// A worker is woken by what happens through the same store or a clone of it. What another process accepts, or another store on the
/// same file, is found when the worker [looks](crate::Worker::poll_every).
///
/// # Locks
///
/// While a handler's transaction holds SQLite's write lock, nothing is accepted and nothing leased; looking is possible. A worker
/// with nothing to do takes no lock. [`requeue`](Queue::requeue), [`discard`](Queue::discard) and
/// [`forget`](Queue::forget) change a thousand events at a time: if one fails half-way, what was changed stays so, and it can be
/// asked again.
///
/// # Large backlogs
///
/// However many events wait, a lease finds those that have been due the longest at once, also those of some endpoints, or of types that have
/// room: events of other kinds in front cost it nothing. With thousands of kinds waiting behind those that have no room, it takes some
/// microseconds for each kind.
///
/// An event that this version cannot read becomes a dead letter, and is reported.
///
/// A lease holds 4 MiB of parcels at the most, or one that is larger.
impl Queue for SqliteStore {
    /// Not taken back if the caller leaves before the answer: the event may be waiting already, and the sender's retry finds it.
    fn enqueue<'a>(&'a self, claim: &'a ClaimRequest<'a>, request: &'a StoredRequest) -> StoreFuture<'a, Claim> {
        Box::pin(async move { Ok(self.ask(Question::accept(claim, request)).await?.into_claim()) })
    }

    /// Waits for no lock: in WAL mode a look never does.
    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Option<Claim>> {
        Box::pin(async move {
            let (writer, nothing) = (self.writer(), StoredRequest::new("", "", UNIX_EPOCH));
            let accept = Question::accept(claim, &nothing);
            let rows = self.unless_locked(|| async {
                let rows = self.reader.rows(writer, writer.statements.read([accept.key.clone()].into_iter())).await;
                rows.map_err(|fault| (&fault).into())
            });
            let (rows, now) = (rows.await?, writer.times.now());
            let stored = rows.first().map(|row| statements::parse(row, &now)).transpose().map_err(unreadable)?;
            let stored = stored.map(|(_, record)| record).transpose();
            let stored = stored.map_err(|unreadable| StoreError::corrupt(unreadable.to_string()))?;
            match record::decide(stored.as_ref(), &accept, &now) {
                (answer, None) => Ok(Some(answer.into_claim())),
                // It would be written, and is not.
                (_, Some(_)) => Ok(None),
            }
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> StoreFuture<'a, Vec<Leased>> {
        Box::pin(async move {
            let wanted = Wanted::new(request);
            Ok(self.unless_locked(|| self.leases.ask(wanted.clone())).await?.take())
        })
    }

    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { Ok(self.ask(Question::start(claim)).await?.into_hold()) })
    }

    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.writer().stirred.notified())
    }

    fn waiting(&self, up_to: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let rows = self.look(&self.reader, &viewing::waiting(&self.writer().statements.table, up_to)).await?;
            let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(unreadable)?;
            Ok(count.unsigned_abs())
        })
    }

    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> StoreFuture<'a, Vec<QueuedEvent>> {
        Box::pin(async move {
            let now = self.writer().times.now();
            let list = viewing::list(&self.writer().statements.table, filter, page, &now);
            let rows = self.look(&self.slow_reader, &list).await?;
            // One that cannot be read must not hide the others.
            Ok(rows.iter().filter_map(|row| viewing::read_listed(row, &now).ok().flatten()).collect())
        })
    }

    fn get<'a>(&'a self, key: &'a EventKey) -> StoreFuture<'a, Option<QueuedEvent>> {
        Box::pin(async move {
            let (statements, now) = (&self.writer().statements, self.writer().times.now());
            let rows = self.look(&self.reader, &viewing::get(&statements.table, statements.bodies, key, &now)).await?;
            rows.first().map_or(Ok(None), |row| viewing::read_whole(row, &now)).map_err(unreadable)
        })
    }

    fn change<'a>(&'a self, filter: &'a Filter, change: Change) -> StoreFuture<'a, Changed> {
        Box::pin(async move {
            let counts_bodies = matches!(change, Change::Requeue { .. })
                && viewing::states(filter, change.states()).contains(&EventState::Completed);
            let without_body = if counts_bodies { self.count_without_body(filter).await? } else { 0 };
            Ok(Changed::new(self.change_matching(change, filter).await?).without_body(without_body))
        })
    }

    fn counts(&self) -> StoreFuture<'_, QueueCounts> {
        Box::pin(async move {
            let now = self.writer().times.now();
            let rows = self.look(&self.slow_reader, &viewing::counts(&self.writer().statements.table, &now)).await?;
            viewing::read_counts(&rows, &now).map_err(unreadable)
        })
    }
}

impl SqliteStore {
    async fn look(&self, reader: &Reader, fragment: &Fragment) -> Result<Vec<SqliteRow>, StoreError> {
        self.unless_locked(|| async {
            let rows = reader.rows(self.writer(), fragment.clone().statement()).await;
            rows.map_err(|fault| (&fault).into())
        })
        .await
    }

    async fn change_matching(&self, change: Change, filter: &Filter) -> Result<u64, StoreError> {
        let writer = self.writer();
        let (table, bodies) = (&writer.statements.table, writer.statements.bodies);
        let last = self.last_arrival().await?;
        let mut all = 0;
        for state in viewing::states(filter, change.states()) {
            loop {
                let changed = self.unless_locked(|| async {
                    let now = writer.times.now();
                    let matching = match change {
                        Change::Requeue { .. } => viewing::requeuable(table, bodies, filter, state, &now),
                        Change::Discard { .. } | Change::Forget => viewing::matching(filter, state, &now),
                    };
                    let statement = operating::change(table, bodies, change, matching, last, &now).statement();
                    writer.change(statement).await.map_err(|fault| (&fault).into())
                });
                let changed = changed.await?;
                all += changed;
                if changed < CHANGED_AT_ONCE {
                    break;
                }
            }
        }
        writer.stirred.notify_waiters();
        Ok(all)
    }

    async fn count_without_body(&self, filter: &Filter) -> Result<u64, StoreError> {
        let (statements, now) = (&self.writer().statements, self.writer().times.now());
        let count = viewing::without_body(&statements.table, statements.bodies, filter, &now);
        let rows = self.look(&self.slow_reader, &count).await?;
        let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0)).map_err(unreadable)?;
        Ok(count.unsigned_abs())
    }

    async fn last_arrival(&self) -> Result<i64, StoreError> {
        let rows = self.unless_locked(|| async {
            let statement = self.writer().statements.last_arrival();
            self.slow_reader.rows(self.writer(), statement).await.map_err(|fault| (&fault).into())
        });
        rows.await?.first().map_or(Ok(0), |row| row.try_get(0)).map_err(unreadable)
    }
}

fn unreadable(error: sqlx::Error) -> StoreError {
    (&Fault::from(error)).into()
}
