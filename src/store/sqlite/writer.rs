use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::Executor;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::Mutex;

use super::connect::Database;
use super::fault::Fault;
use super::plan::{Plan, Stored};
use super::question::{Answer, Question};
use super::statements::{self, PURGED_AT_ONCE, Statements};
use super::time::Times;
use crate::store::group::{Answers, Engine};

/// How often traffic purges, unless there is more to purge than goes at once.
const PURGE_EVERY: Duration = Duration::from_secs(10);

/// How often a batch starts over because other processes wrote the same rows.
const ATTEMPTS: usize = 8;

/// The one that writes, on a connection of its own.
pub(super) struct Writer {
    pub(super) database: Database,
    pub(super) statements: Statements,
    pub(super) times: Times,
    session: Mutex<Session>,
}

/// What lasts from one batch to the next.
struct Session {
    /// None before the first batch, and after a fault: the next one connects again. Also while a batch is under way, so that nobody
    /// goes on where one was dropped half-way.
    connection: Option<SqliteConnection>,
    next_purge: Instant,
}

impl Writer {
    pub(super) fn new(database: Database, statements: Statements, times: Times) -> Self {
        let session = Session { connection: None, next_purge: times.monotonic() };
        Self { database, statements, times, session: Mutex::new(session) }
    }

    /// Connects, unless it is connected.
    pub(super) async fn connect(&self) -> Result<(), Fault> {
        let mut session = self.session.lock().await;
        let connection = self.connection(&mut session).await?;
        session.connection = Some(connection);
        Ok(())
    }

    /// Deletes some expired rows and says how many; fewer than [`PURGED_AT_ONCE`] if there are no more.
    pub(super) async fn purge(&self) -> Result<u64, Fault> {
        let mut session = self.session.lock().await;
        let mut connection = self.connection(&mut session).await?;
        let purged = self.purge_some(&mut connection).await;
        if is_sound(&purged) {
            session.connection = Some(connection);
        }
        purged
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
        let written = connection.execute(self.statements.write(changes, self.times.boot())).await?;
        Ok(written.rows_affected() == expected)
    }

    async fn purge_if_due(&self, connection: &mut SqliteConnection, next: &mut Instant) -> Result<(), Fault> {
        if self.times.monotonic() >= *next && self.purge_some(connection).await? < PURGED_AT_ONCE {
            *next = self.times.monotonic() + PURGE_EVERY;
        }
        Ok(())
    }

    async fn purge_some(&self, connection: &mut SqliteConnection) -> Result<u64, Fault> {
        Ok(connection.execute(self.statements.purge(&self.times.now())).await?.rows_affected())
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

/// Whether the connection can be used again.
fn is_sound<T>(done: &Result<T, Fault>) -> bool {
    !matches!(done, Err(Fault::Broken(_)))
}
