//! The one connection that writes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Executor, Row as _};
use tokio::sync::Notify;

use super::connection::{Connection, Database};
use super::fault::Fault;
use super::operation::{Operation, Reply};
use super::plan::{Plan, Stored};
use super::record::Record;
use super::statements::{PURGED_AT_ONCE, Statements, statement};
use super::time::Times;
use crate::lock::lock;
use crate::store::batcher::{Answers, BatchHandler};

/// How often traffic purges, unless there is more to purge than goes at once.
const PURGE_EVERY: Duration = Duration::from_secs(10);

/// How often a batch starts over because other processes wrote the same rows.
pub(super) const ATTEMPTS: usize = 8;

pub(super) struct Writer {
    pub(super) connection: Connection,
    /// Notified when an event of the queue may have become due, by this store or a clone of it.
    pub(super) wake: Notify,
    next_purge: Mutex<Instant>,
}

/// How much a purge has deleted.
#[derive(Clone, Copy)]
pub(super) struct Purged {
    pub(super) rows: u64,
    /// Bodies of completed events whose records stay.
    bodies: u64,
}

impl Purged {
    /// Whether there may be more to delete.
    pub(super) fn leaves_more(self) -> bool {
        self.rows.max(self.bodies) >= PURGED_AT_ONCE
    }
}

impl Writer {
    pub(super) fn new(database: &Arc<Database>) -> Self {
        let next_purge = Mutex::new(database.times.monotonic());
        Self { connection: Connection::new(database), wake: Notify::new(), next_purge }
    }

    pub(super) fn statements(&self) -> &Statements {
        &self.connection.database.statements
    }

    pub(super) fn times(&self) -> &Times {
        &self.connection.database.times
    }

    /// Opens the connection, unless it is open.
    pub(super) async fn connect(&self) -> Result<(), Fault> {
        self.connection.acquire().await?.release(Ok(()))
    }

    /// Deletes some expired rows and bodies.
    pub(super) async fn purge(&self) -> Result<Purged, Fault> {
        let mut acquired = self.connection.acquire().await?;
        let purged = self.purge_some(&mut acquired.connection).await;
        acquired.release(purged)
    }

    async fn answer(&self, batch: &[Operation]) -> Answers<Reply> {
        let mut acquired = match self.connection.acquire().await {
            Ok(acquired) => acquired,
            Err(fault) => return Plan::default().into_replies(batch.len(), Err(&fault)),
        };
        let (plan, written) = self.run(&mut acquired.connection, batch).await;
        let purged = match &written {
            Ok(()) if plan.changes().len() > 0 => self.purge_if_due(&mut acquired.connection).await,
            _ => Ok(()),
        };
        // A purge that fails is repeated later.
        let _ = acquired.release(purged.and_then(|()| written.clone()));
        if written.is_ok() && plan.wakes {
            self.wake.notify_waiters();
        }
        plan.into_replies(batch.len(), written.as_ref().copied())
    }

    /// Reads, decides, and writes the changed rows; again, if another process was quicker with one of the rows. A row
    /// that is written already is then found under its own token.
    async fn run<'b>(
        &self,
        connection: &mut SqliteConnection,
        batch: &'b [Operation],
    ) -> (Plan<'b>, Result<(), Fault>) {
        let mut plan = Plan::default();
        for attempt in 0..ATTEMPTS {
            // An attempt before this one may have written a part.
            let fault = |fault: Fault| Err(if attempt > 0 { fault.half_way() } else { fault });
            plan = match self.plan(connection, batch).await {
                Ok(plan) => plan,
                Err(error) => return (plan, fault(error)),
            };
            match self.write(connection, &plan).await {
                Ok(true) => return (plan, Ok(())),
                Ok(false) => {}
                Err(error) => return (plan, fault(error)),
            }
        }
        (plan, Err(Fault::HalfWritten))
    }

    async fn plan<'b>(&self, connection: &mut SqliteConnection, batch: &'b [Operation]) -> Result<Plan<'b>, Fault> {
        let keys = batch.iter().map(|operation| operation.key.clone());
        let rows = connection.fetch_all(self.statements().read(keys)).await?;
        let now = self.times().now();
        let stored = rows.iter().map(|row| Ok((row.try_get("key")?, Record::read(row, &now))));
        Ok(Plan::new(batch, &stored.collect::<Result<Stored, sqlx::Error>>()?, &now))
    }

    /// Returns whether everything that has changed could be written.
    async fn write(&self, connection: &mut SqliteConnection, plan: &Plan<'_>) -> Result<bool, Fault> {
        let changes = plan.changes();
        let expected = changes.len() as u64;
        if expected == 0 {
            return Ok(true);
        }
        if plan.has_arrivals() {
            return self.write_arrivals(connection, plan).await;
        }
        let write = match plan.has_queued {
            true => self.statements().write_queued(changes, self.times().boot_id(), 0),
            false => self.statements().write(changes, self.times().boot_id()),
        };
        Ok(connection.execute(write).await?.rows_affected() == expected)
    }

    /// The same for a batch in which events arrive: writes those and their requests, or nothing at all.
    async fn write_arrivals(&self, connection: &mut SqliteConnection, plan: &Plan<'_>) -> Result<bool, Fault> {
        let (statements, changes) = (self.statements(), plan.changes());
        let expected = changes.len() as u64;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let last: i64 = transaction.fetch_one(statement(&statements.last_arrival)).await?.try_get(0)?;
        let first = last + 1;
        let write = statements.write_queued(changes, self.times().boot_id(), first);
        if transaction.execute(write).await?.rows_affected() != expected {
            transaction.rollback().await?;
            return Ok(false);
        }
        let requests = plan.requests(first);
        transaction.execute(statements.write_requests(&requests)).await?;
        if requests.iter().any(|(_, request)| request.order.is_some()) {
            transaction.execute(statement(&statements.mark_ordered).bind(first)).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    async fn purge_if_due(&self, connection: &mut SqliteConnection) -> Result<(), Fault> {
        let next = *lock(&self.next_purge);
        if self.times().monotonic() >= next && !self.purge_some(connection).await?.leaves_more() {
            *lock(&self.next_purge) = self.times().monotonic() + PURGE_EVERY;
        }
        Ok(())
    }

    async fn purge_some(&self, connection: &mut SqliteConnection) -> Result<Purged, Fault> {
        let now = self.times().now();
        let rows = connection.execute(self.statements().purge(&now)).await?.rows_affected();
        let bodies = match self.statements().purge_bodies(&now) {
            Some(purge) => connection.execute(purge).await?.rows_affected(),
            None => 0,
        };
        Ok(Purged { rows, bodies })
    }
}

impl BatchHandler for Arc<Writer> {
    type Question = Operation;
    type Answer = Reply;

    async fn answer(&self, batch: &[Operation]) -> Answers<Reply> {
        Writer::answer(self, batch).await
    }

    /// Does nothing: the caller of a claim drops a [`ReleaseOnDrop`](super::store::ReleaseOnDrop).
    fn on_abandoned(&self, _: Operation, _: Reply) {}
}
