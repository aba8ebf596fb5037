use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::Executor;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::Mutex;

use super::connect::Database;
use super::fault::Fault;
use super::plan::{Plan, Stored};
use super::question::{Answer, Question};
use super::statements::{self, LARGEST, PURGED_AT_ONCE, Statements};
use super::time::Times;
use crate::store::group::{Answers, Engine};

/// How often traffic purges, unless there is more to purge than goes at once.
const PURGE_EVERY: Duration = Duration::from_secs(10);

/// The one that writes, on a connection of its own.
pub(super) struct Writer {
    pub(super) database: Database,
    pub(super) statements: Statements,
    pub(super) times: Times,
    session: Mutex<Session>,
}

/// What lasts from one batch to the next.
struct Session {
    /// None before the first batch, and after a fault: the next one connects again. Also while a batch is under way, so that one that is
    /// dropped half-way takes its transaction with it.
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
        let purged = connection.execute(self.statements.purge(&self.times.now())).await;
        session.connection = Some(connection);
        Ok(purged?.rows_affected())
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
        let mut transaction =
            Transaction { writer: self, connection: &mut connection, next_purge: &mut session.next_purge };
        let (plan, written) = transaction.run(batch).await;
        if written.is_err() {
            transaction.roll_back().await;
        }
        if !matches!(written, Err(Fault::Broken(_))) {
            session.connection = Some(connection);
        }
        plan.into_answers(batch.len(), written.as_ref().copied())
    }
}

impl Engine for Arc<Writer> {
    type Question = Question;
    type Answer = Answer;

    async fn answer(&self, batch: &[Question]) -> Answers<Answer> {
        Writer::answer(self, batch).await
    }

    fn unheard(&self, question: Question, answer: Answer) {
        let Some(release) = question.after_unheard(answer) else { return };
        let writer = self.clone();
        // If it fails the lease ends by itself.
        tokio::spawn(async move { writer.answer(&[release]).await });
    }
}

/// One batch on the connection.
struct Transaction<'a> {
    writer: &'a Writer,
    connection: &'a mut SqliteConnection,
    next_purge: &'a mut Instant,
}

impl Transaction<'_> {
    /// Reads, decides and writes. Without the lock first, since a batch that changes nothing needs none; SQLite refuses to write upon what
    /// is no longer the newest state, and then all is done again with the lock.
    async fn run<'b>(&mut self, batch: &'b [Question]) -> (Plan<'b>, Result<(), Fault>) {
        let plan = match self.plan(batch, "BEGIN").await {
            Ok(plan) => plan,
            Err(fault) => return (Plan::of_nothing(), Err(fault)),
        };
        match self.write(&plan).await {
            Err(Fault::Locked) => self.roll_back().await,
            written => return (plan, written),
        }
        match self.plan(batch, "BEGIN IMMEDIATE").await {
            Ok(plan) => {
                let written = self.write(&plan).await;
                (plan, written)
            }
            Err(fault) => (plan, Err(fault)),
        }
    }

    async fn plan<'b>(&mut self, batch: &'b [Question], begin: &'static str) -> Result<Plan<'b>, Fault> {
        self.execute(begin).await?;
        let mut rows = Vec::new();
        for questions in batch.chunks(LARGEST) {
            let read = self.writer.statements.read(questions.iter().map(|question| question.key.clone()));
            rows.extend(self.connection.fetch_all(read).await?);
        }
        let now = self.writer.times.now();
        let stored = rows.iter().map(|row| statements::parse(row, &now)).collect::<Result<Stored, _>>()?;
        Ok(Plan::new(batch, &stored, &now))
    }

    async fn write(&mut self, plan: &Plan<'_>) -> Result<(), Fault> {
        let (now, changes) = (self.writer.times.now(), plan.changes().collect::<Vec<_>>());
        for rows in changes.chunks(LARGEST) {
            self.connection.execute(self.writer.statements.write(rows, &now)).await?;
        }
        if !plan.is_read_only() && self.writer.times.monotonic() >= *self.next_purge {
            let purged = self.connection.execute(self.writer.statements.purge(&now)).await?;
            if purged.rows_affected() < PURGED_AT_ONCE {
                *self.next_purge = self.writer.times.monotonic() + PURGE_EVERY;
            }
        }
        self.execute("COMMIT").await
    }

    /// Fails when there is no transaction to roll back, and when the connection is not used again anyway.
    async fn roll_back(&mut self) {
        let _ = self.execute("ROLLBACK").await;
    }

    async fn execute(&mut self, statement: &'static str) -> Result<(), Fault> {
        self.connection.execute(sqlx::query(statement)).await?;
        Ok(())
    }
}
