use std::future::Future;
use std::pin::Pin;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::fault::Fault;
use super::operation::Operation;
use super::operators;
use super::record::{self, Record};
use super::statements::statement;
use super::store::SqliteStore;
use crate::EventKey;
use crate::store::queue::{
    Change, Changed, EventState, Filter, LeaseRequest, Leased, OwnedLeaseRequest, Page, Queue, QueueCounts,
    QueuedEvent, StoredRequest,
};
use crate::store::record::Verb;
use crate::store::{Claim, ClaimRequest, Hold, StoreError, StoreFuture};

/// Events survive restarts and power loss: an event that was answered [`Claim::Fresh`] is on disk. Workers in any
/// number of processes on the machine can lease from one file.
///
/// # Clocks
///
/// Due times and leases are on the boot clock: a jump of the wall clock neither holds an event up nor runs it early.
/// After a reboot every lease is over and everything that waits is due, retries included.
///
/// # Waking
///
/// A worker is woken by what happens through the same store or a clone of it. Events that another process accepts, or
/// another store on the same file, are found when the worker [looks](crate::Worker::poll_every).
///
/// # Locks
///
/// While a handler's transaction holds SQLite's write lock, no event is accepted and none is leased; looking is
/// possible. A worker with nothing to do takes no lock. [`requeue`](Queue::requeue), [`discard`](Queue::discard) and
/// [`forget`](Queue::forget) change a thousand events at a time: if one fails half-way, the events that were changed
/// stay so, and the call can be repeated.
///
/// # Large backlogs
///
/// However many events wait, a lease finds those that have been due the longest at once, also those of some endpoints,
/// or of types that have room: events of other kinds in front cost it nothing. With thousands of kinds waiting behind
/// those that have no room, it takes some microseconds for each kind.
///
/// An event that this version cannot read becomes a dead letter, and is reported.
///
/// The requests of one lease are 4 MiB at the most, unless the first alone is larger.
impl Queue for SqliteStore {
    /// Stores the event even if the caller leaves before the answer: the event may be waiting already, and the sender's
    /// retry finds it.
    fn enqueue<'a>(&'a self, claim: &'a ClaimRequest<'a>, request: &'a StoredRequest) -> StoreFuture<'a, Claim> {
        Box::pin(async move { Ok(self.run(Operation::enqueue(claim, request)).await?.into_claim()) })
    }

    /// Waits for no lock: in WAL mode a reader never does.
    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Option<Claim>> {
        Box::pin(async move {
            let enqueue = Operation::new(Verb::Enqueue, claim);
            let read = || self.writer().statements().read([enqueue.key.clone()].into_iter());
            let (rows, now) = (self.query(&self.reader, read).await?, self.writer().times().now());
            let stored = rows.first().map(|row| Record::read(row, &now)).transpose();
            let stored = stored.map_err(|unreadable| StoreError::corrupt(unreadable.to_string()))?;
            // An answer that changes the record is one that would store the event.
            let (reply, changed) = record::decide(stored.as_ref(), &enqueue, &now);
            Ok(changed.is_none().then(|| reply.into_claim()))
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> StoreFuture<'a, Vec<Leased>> {
        Box::pin(async move {
            let request = OwnedLeaseRequest::new(request);
            Ok(self.retry_while_locked(|| self.leases.ask(request.clone())).await?.take())
        })
    }

    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { Ok(self.run(Operation::new(Verb::Start, claim)).await?.into_hold()) })
    }

    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.writer().wake.notified())
    }

    fn waiting(&self, up_to: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let statements = self.writer().statements();
            let limit = i64::try_from(up_to).unwrap_or(i64::MAX);
            let rows = self.query(&self.reader, || statement(&statements.count_waiting).bind(limit)).await?;
            Ok(number(&rows)?.unsigned_abs())
        })
    }

    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> StoreFuture<'a, Vec<QueuedEvent>> {
        Box::pin(async move {
            let (statements, now) = (self.writer().statements(), self.writer().times().now());
            let list = || operators::list(statements, filter, page, &now);
            let rows = self.query(&self.slow_reader, list).await?;
            // An event that cannot be read must not hide the others.
            Ok(rows.iter().filter_map(|row| operators::read_listed(row, &now).ok().flatten()).collect())
        })
    }

    fn get<'a>(&'a self, key: &'a EventKey) -> StoreFuture<'a, Option<QueuedEvent>> {
        Box::pin(async move {
            let (statements, now) = (self.writer().statements(), self.writer().times().now());
            let rows = self.query(&self.reader, || operators::get(statements, key, &now)).await?;
            Ok(rows.first().map_or(Ok(None), |row| operators::read_whole(row, &now)).map_err(Fault::from)?)
        })
    }

    fn change<'a>(&'a self, filter: &'a Filter, change: Change) -> StoreFuture<'a, Changed> {
        Box::pin(async move {
            let (statements, states) = (self.writer().statements(), filter.states(change.states()));
            let mut without_body = 0;
            if matches!(change, Change::Requeue { .. }) && states.contains(&EventState::Completed) {
                let now = self.writer().times().now();
                let count = || operators::count_without_body(statements, filter, &now);
                without_body = number(&self.query(&self.slow_reader, count).await?)?.unsigned_abs();
            }
            let last = number(&self.query(&self.slow_reader, || statement(&statements.last_arrival)).await?)?;
            let mut events = 0;
            for state in states {
                events += self.change_all(filter, change, state, last).await?;
            }
            self.writer().wake.notify_waiters();
            Ok(Changed::new(events).without_body(without_body))
        })
    }

    fn counts(&self) -> StoreFuture<'_, QueueCounts> {
        Box::pin(async move {
            let (statements, now) = (self.writer().statements(), self.writer().times().now());
            let rows = self.query(&self.slow_reader, || operators::counts(statements, &now)).await?;
            Ok(operators::read_counts(&rows, &now).map_err(Fault::from)?)
        })
    }
}

/// The number in the only row.
fn number(rows: &[SqliteRow]) -> Result<i64, Fault> {
    Ok(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
}
