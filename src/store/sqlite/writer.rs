use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Executor, Row as _};
use tokio::sync::{Mutex, Notify};

use super::connect::Database;
use super::fault::{Fault, is_sound};
use super::leasing::Wanted;
use super::picking;
use super::plan::{Plan, Stored};
use super::question::{Answer, Question};
use super::statements::{self, PURGED_AT_ONCE, Statement, Statements};
use super::time::Times;
use crate::store::group::{Answers, Engine};
use crate::store::queue::Leased;

/// How often traffic purges, unless there is more to purge than goes at once.
const PURGE_EVERY: Duration = Duration::from_secs(10);

/// How often a batch starts over because other processes wrote the same rows.
const ATTEMPTS: usize = 8;

/// The one that writes, on a connection of its own.
pub(super) struct Writer {
    pub(super) database: Database,
    pub(super) statements: Statements,
    pub(super) times: Times,
    /// Told when an event of the inbox may have become due, by this store or a clone of it.
    pub(super) stirred: Notify,
    session: Mutex<Session>,
}

/// What lasts from one batch to the next.
struct Session {
    /// None before the first batch, and after a fault: the next one connects again. Also while a batch is under way, so that nobody
    /// goes on where one was dropped half-way.
    connection: Option<SqliteConnection>,
    next_purge: Instant,
}

/// How much a purge has deleted.
#[derive(Clone, Copy)]
pub(super) struct Purged {
    pub(super) rows: u64,
    /// Of completed events whose records stay.
    bodies: u64,
}

impl Purged {
    /// Whether there may be more to delete.
    pub(super) fn leaves_more(self) -> bool {
        self.rows.max(self.bodies) >= PURGED_AT_ONCE
    }
}

impl Writer {
    pub(super) fn new(database: Database, statements: Statements, times: Times) -> Self {
        let session = Session { connection: None, next_purge: times.monotonic() };
        Self { database, statements, times, stirred: Notify::new(), session: Mutex::new(session) }
    }

    /// Connects, unless it is connected.
    pub(super) async fn connect(&self) -> Result<(), Fault> {
        let mut session = self.session.lock().await;
        let connection = self.connection(&mut session).await?;
        session.connection = Some(connection);
        Ok(())
    }

    /// Deletes some of what has expired, and says how much.
    pub(super) async fn purge(&self) -> Result<Purged, Fault> {
        let mut session = self.session.lock().await;
        let mut connection = self.connection(&mut session).await?;
        let purged = self.purge_some(&mut connection).await;
        if is_sound(&purged) {
            session.connection = Some(connection);
        }
        purged
    }

    /// Runs a statement of an operator, and says how many rows it changed.
    pub(super) async fn change(&self, statement: Statement) -> Result<u64, Fault> {
        let mut session = self.session.lock().await;
        let mut connection = self.connection(&mut session).await?;
        let changed = connection.execute(statement).await.map_err(Fault::from);
        if is_sound(&changed) {
            session.connection = Some(connection);
        }
        Ok(changed?.rows_affected())
    }

    /// Takes what is due. On the connection of the batches, so as not to wait for their locks nor they for its.
    pub(super) async fn lease(&self, wanted: &Wanted) -> Result<Vec<Leased>, Fault> {
        let mut session = self.session.lock().await;
        let mut connection = self.connection(&mut session).await?;
        let leased = self.take_due(&mut connection, wanted).await;
        if is_sound(&leased) {
            session.connection = Some(connection);
        }
        leased
    }

    /// Again, if all that was taken could not be read: there may be others behind.
    async fn take_due(&self, connection: &mut SqliteConnection, wanted: &Wanted) -> Result<Vec<Leased>, Fault> {
        let leases = &self.statements.leases;
        for _ in 0..ATTEMPTS {
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
            let now = self.times.now();
            let picked = picking::pick(&mut transaction, &leases.pick, wanted, &now).await?;
            let taken = leases.take(&mut transaction, &picked, wanted, &now).await?;
            transaction.commit().await?;
            if !taken.events.is_empty() || taken.unreadable == 0 {
                return Ok(taken.events);
            }
        }
        Ok(Vec::new())
    }

    async fn connection(&self, session: &mut Session) -> Result<SqliteConnection, Fault> {
        match session.connection.take() {
            Some(connection) => Ok(connection),
            None => self.database.connect(&self.statements).await,
        }
    }

    async fn answer(&self, batch: &[Question]) -> Answers<Answer> {
        let mut session = self.session.lock().await;
        let mut connection = match self.connection(&mut session).await {
            Ok(connection) => connection,
            Err(fault) => return Plan::of_nothing().into_answers(batch.len(), Err(&fault)),
        };
        let (plan, written) = self.run(&mut connection, batch).await;
        let purged = match &written {
            Ok(()) if plan.changes().len() > 0 => self.purge_if_due(&mut connection, &mut session.next_purge).await,
            _ => Ok(()),
        };
        if is_sound(&written) && is_sound(&purged) {
            session.connection = Some(connection);
        }
        if written.is_ok() && plan.stirs() {
            self.stirred.notify_waiters();
        }
        plan.into_answers(batch.len(), written.as_ref().copied())
    }

    /// Reads, decides, and writes what has changed; again, if another process was quicker with one of the rows. What is written
    /// already is then found under its own token.
    async fn run<'b>(&self, connection: &mut SqliteConnection, batch: &'b [Question]) -> (Plan<'b>, Result<(), Fault>) {
        let mut plan = Plan::of_nothing();
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

    async fn plan<'b>(&self, connection: &mut SqliteConnection, batch: &'b [Question]) -> Result<Plan<'b>, Fault> {
        let keys = batch.iter().map(|question| question.key.clone());
        let rows = connection.fetch_all(self.statements.read(keys)).await?;
        let now = self.times.now();
        let stored = rows.iter().map(|row| statements::parse(row, &now)).collect::<Result<Stored, _>>()?;
        Ok(Plan::new(batch, &stored, &now))
    }

    /// Whether everything that has changed could be written.
    async fn write(&self, connection: &mut SqliteConnection, plan: &Plan<'_>) -> Result<bool, Fault> {
        let changes = plan.changes();
        let expected = changes.len() as u64;
        if expected == 0 {
            return Ok(true);
        }
        let boot = self.times.boot();
        let write = match plan.queues() {
            _ if plan.arrived() > 0 => return self.keep(connection, plan).await,
            true => self.statements.write_queued(changes, boot, 0),
            false => self.statements.write(changes, boot),
        };
        Ok(connection.execute(write).await?.rows_affected() == expected)
    }

    /// The same for a batch in which events arrive: those and their parcels, or nothing at all.
    async fn keep(&self, connection: &mut SqliteConnection, plan: &Plan<'_>) -> Result<bool, Fault> {
        let changes = plan.changes();
        let expected = changes.len() as u64;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let last: i64 = transaction.fetch_one(self.statements.last_arrival()).await?.try_get(0)?;
        let write = self.statements.write_queued(changes, self.times.boot(), last + 1);
        if transaction.execute(write).await?.rows_affected() != expected {
            transaction.rollback().await?;
            return Ok(false);
        }
        let parcels = plan.parcels(last + 1);
        let is_ordered = parcels.iter().any(|(_, parcel)| parcel.order.is_some());
        transaction.execute(self.statements.keep(parcels.into_iter())).await?;
        if is_ordered {
            transaction.execute(self.statements.fall_in(last + 1)).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    async fn purge_if_due(&self, connection: &mut SqliteConnection, next: &mut Instant) -> Result<(), Fault> {
        if self.times.monotonic() >= *next && !self.purge_some(connection).await?.leaves_more() {
            *next = self.times.monotonic() + PURGE_EVERY;
        }
        Ok(())
    }

    async fn purge_some(&self, connection: &mut SqliteConnection) -> Result<Purged, Fault> {
        let now = self.times.now();
        let rows = connection.execute(self.statements.purge(&now)).await?.rows_affected();
        let bodies = match self.statements.purge_bodies(&now) {
            Some(purge) => connection.execute(purge).await?.rows_affected(),
            None => 0,
        };
        Ok(Purged { rows, bodies })
    }
}

impl Engine for Arc<Writer> {
    type Question = Question;
    type Answer = Answer;

    async fn answer(&self, batch: &[Question]) -> Answers<Answer> {
        Writer::answer(self, batch).await
    }

    /// A claim's caller sees to that itself: [`Leaving`](super::leaving::Leaving).
    fn unheard(&self, _: Question, _: Answer) {}
}
