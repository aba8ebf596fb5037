//! A dedicated connection, and the batches that it runs.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, Row as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::connector::{Connector, in_transaction};
use super::fault::{Fault, Remedy};
use super::statements::{Statement, statement};
use crate::lock::lock;
use crate::telemetry;

/// How often a statement is repeated that conflicted with another transaction.
const RETRIES: usize = 8;

/// As good as for ever, and nothing overflows by it. The server takes no timeout above 24 days, and refuses the `SET`.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// These settings make every plan the intended one: by index for each row, whatever the table's size and however old
/// its statistics, and made once. A stricter isolation than the default would only make batches fail.
const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; \
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
    SET default_transaction_isolation = 'read committed'; ";

/// How many statements may be open at a time, each on a session of its own. One is enough, but a claim or a settlement
/// that is not answered by its deadline keeps its session, and the next statement gets another one. A commit that waits
/// for a replica may take for ever, and its session with it, whether the store stays connected or not: without a bound,
/// all of the server's sessions would end up so.
const MOST_OPEN: usize = 3;

const UNANSWERED: &str = "the server has not answered the statements before, and the store opens no more of them: \
    pg_stat_activity shows what they wait for; SyncRep is a synchronous replica that is away";

/// How long a statement is waited for after its deadline. The server ends it sooner by itself, unless it has begun to
/// commit.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A statement about a batch of items.
pub(super) trait BatchStatement: Sync {
    type Item: Sync;
    type Outcome: Send;

    /// The outcome of an item for which the statement returns no row.
    const MISSING: Self::Outcome;

    fn query(&self, items: &[&Self::Item]) -> Statement;

    /// Reads the index of a row's item, and the outcome.
    fn read(&self, items: &[&Self::Item], row: &PgRow) -> Result<(usize, Self::Outcome), sqlx::Error>;

    /// Reads the outcome of each item.
    fn read_all(&self, items: &[&Self::Item], rows: &[PgRow]) -> Result<Vec<Self::Outcome>, sqlx::Error> {
        let mut outcomes: Vec<_> = items.iter().map(|_| Self::MISSING).collect();
        for row in rows {
            let (index, outcome) = self.read(items, row)?;
            outcomes[index] = outcome;
        }
        Ok(outcomes)
    }

    /// Called when the deadline passes without an answer: the statement may still take effect. Dropping `_late` closes
    /// the connection, and does not stop the server, which ends by itself every statement that does not wait to commit.
    fn on_late(&self, _items: &[&Self::Item], _late: LateStatement) {}
}

/// A connection of the store's own, which runs one statement at a time. It is made when it is first needed, and kept
/// until it breaks.
pub(super) struct DedicatedConnection {
    name: &'static str,
    connector: Connector,
    /// Set once per session; or the beginning of each transaction, if a pooler may give each one another session.
    settings_sql: Arc<str>,
    deadline: Duration,
    lock_timeout: Duration,
    is_table_locked_sql: Option<Arc<str>>,
    idle: Mutex<Option<PgConnection>>,
    /// One for each statement that was begun and is not answered yet.
    permits: Arc<Semaphore>,
}

/// Runs one statement, and returns the connection that it ran on. It owns all that it needs, so that it can outlive its
/// batch.
type Running = Pin<Box<dyn Future<Output = (PgConnection, Result<Vec<PgRow>, sqlx::Error>)> + Send>>;

/// A statement that was not answered by its deadline. It keeps its permit until it is answered or given up: closing its
/// connection would not end the session, if that waits for a commit.
pub(super) struct LateStatement {
    running: Running,
    permit: OwnedSemaphorePermit,
    wait: Duration,
}

impl DedicatedConnection {
    /// `lock_timeout` ends the wait for another transaction; zero waits until the deadline.
    pub(super) fn new(name: &'static str, connector: &Connector, lock_timeout: Duration) -> Self {
        let [deadline, lock_timeout] = [connector.deadline, lock_timeout].map(|time| time.min(LONGEST_DEADLINE));
        let (deadline_ms, lock_ms) = (deadline.as_millis(), lock_timeout.as_millis());
        // The server gives up when this side does, so that nothing takes effect long after its batch was given up.
        let settings = format!("{SETTINGS}SET statement_timeout = {deadline_ms}; SET lock_timeout = {lock_ms}");
        let settings = match connector.pooled {
            // A process that stops in the middle must not hold rows, nor a server of the pooler's.
            true => format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED; {}; \
                 SET LOCAL idle_in_transaction_session_timeout = {deadline_ms}",
                local(&settings)
            ),
            false => settings,
        };
        Self {
            name,
            connector: connector.clone(),
            settings_sql: settings.into(),
            deadline,
            lock_timeout,
            is_table_locked_sql: None,
            idle: Mutex::new(None),
            permits: Arc::new(Semaphore::new(MOST_OPEN)),
        }
    }

    /// Adds settings, which are `SET` statements.
    pub(super) fn with_settings(mut self, settings: &str) -> Self {
        let settings = if self.connector.pooled { local(settings) } else { settings.to_owned() };
        self.settings_sql = format!("{}; {settings}", self.settings_sql).into();
        self
    }

    /// Tells a lock on the whole table from a lock on a row, by this statement.
    pub(super) fn with_table_lock_check(mut self, is_table_locked_sql: Arc<str>) -> Self {
        self.is_table_locked_sql = Some(is_table_locked_sql);
        self
    }

    /// The deadline of a batch that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Runs a batch in one statement; in several, if that fails because of a row. While the whole table is locked, the
    /// statement is repeated, as long as its wait for the lock can end before the deadline.
    pub(super) async fn run_batch<S: BatchStatement>(
        &self,
        batch: &S,
        items: &[&S::Item],
        until: Instant,
    ) -> Vec<Result<S::Outcome, Fault>> {
        let mut outcomes = Vec::with_capacity(items.len());
        let mut parts = vec![items];
        while let Some(part) = parts.pop() {
            match self.run_part(batch, part, until).await {
                Ok(part) => outcomes.extend(part.into_iter().map(Ok)),
                Err(fault) if fault.remedy == Remedy::CheckTableLock && self.table_is_locked(until).await => {
                    parts.push(part);
                    if Instant::now() + 2 * self.lock_timeout >= until {
                        let fault = fault.into_table_locked();
                        outcomes.extend(parts.drain(..).flatten().map(|_| Err(fault.clone())));
                    }
                }
                Err(fault) if fault.may_pass_with_fewer_rows() && part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(fault) => outcomes.extend(part.iter().map(|_| Err(fault.clone()))),
            }
        }
        outcomes
    }

    async fn run_part<S: BatchStatement>(
        &self,
        batch: &S,
        items: &[&S::Item],
        until: Instant,
    ) -> Result<Vec<S::Outcome>, Fault> {
        let rows = self.run(until, || batch.query(items), |late| batch.on_late(items, late)).await?;
        Ok(batch.read_all(items, &rows)?)
    }

    /// Called after a wait for a lock was given up. The lock may be gone by then, which the next try shows.
    async fn table_is_locked(&self, until: Instant) -> bool {
        let Some(sql) = &self.is_table_locked_sql else { return false };
        let answer = self.fetch_all(until, || statement(sql)).await;
        answer.is_ok_and(|rows| rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
    }

    /// Runs one statement, unless the deadline has passed. When it passes, the connection is dropped: a later answer is
    /// of no use.
    pub(super) async fn fetch_all(&self, until: Instant, query: impl Fn() -> Statement) -> Result<Vec<PgRow>, Fault> {
        self.run(until, query, drop).await
    }

    /// Runs a statement, and repeats it if that can help. All statements of the store are safe to repeat, since each
    /// change goes by a token. `on_late` gets a statement that is not answered by the deadline.
    async fn run(
        &self,
        until: Instant,
        query: impl Fn() -> Statement,
        on_late: impl FnOnce(LateStatement),
    ) -> Result<Vec<PgRow>, Fault> {
        let permit = self.permit(until).await?;
        let mut retries = 0;
        loop {
            if Instant::now() >= until {
                return Err(Fault::timed_out());
            }
            let idle = self.idle().take();
            // A reused connection may have broken while idle. A statement that fails on one is repeated on a new
            // connection; a statement that fails on a new connection is not.
            let may_be_stale = idle.is_some();
            let connection = match idle {
                Some(connection) => connection,
                None => timeout_at(until, self.connect()).await.map_err(|_| Fault::timed_out())??,
            };
            let begin = self.connector.pooled.then(|| self.settings_sql.clone());
            let mut running: Running = Box::pin(fetch_all(connection, begin, query()));
            let Ok((connection, answer)) = timeout_at(until, &mut running).await else {
                on_late(LateStatement::new(running, permit, MOST_OPEN - self.permits.available_permits()));
                return Err(Fault::timed_out());
            };
            let fault = match answer {
                Ok(rows) => {
                    *self.idle() = Some(connection);
                    return Ok(rows);
                }
                Err(error) => Fault::from(error),
            };
            match fault.remedy {
                Remedy::Reconnect if may_be_stale => {}
                Remedy::Reconnect => return Err(fault),
                Remedy::Repeat if retries < RETRIES => {
                    retries += 1;
                    *self.idle() = Some(connection);
                }
                _ => {
                    *self.idle() = Some(connection);
                    return Err(fault);
                }
            }
            telemetry::batch_retried(self.name);
        }
    }

    /// Waits until another statement may be opened.
    async fn permit(&self, until: Instant) -> Result<OwnedSemaphorePermit, Fault> {
        let permit = timeout_at(until, self.permits.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| Fault::refused(UNANSWERED))
    }

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.connector.options(self.name).connect().await?;
        // Through a pooler, the settings would stay on a session that others use in a moment.
        if !self.connector.pooled {
            sqlx::raw_sql(AssertSqlSafe(&*self.settings_sql)).execute(&mut connection).await?;
        }
        Ok(connection)
    }

    fn idle(&self) -> MutexGuard<'_, Option<PgConnection>> {
        lock(&self.idle)
    }
}

impl LateStatement {
    /// `open`: how many statements of the connection are not answered yet, this one included.
    fn new(running: Running, permit: OwnedSemaphorePermit, open: usize) -> Self {
        // Each is waited for longer than those before: while the server hangs, one is given up a minute, and another
        // one begins in its place.
        let wait = LONGEST_WAIT * u32::try_from(open).unwrap_or(1);
        Self { running, permit, wait }
    }

    /// Waits for the server's answer.
    pub(super) async fn answer(self) -> Option<Vec<PgRow>> {
        let Self { running, permit, wait } = self;
        let (connection, rows) = timeout(wait, running).await.ok()?;
        drop(connection);
        drop(permit);
        rows.ok()
    }

    /// Waits in the background, and ignores the answer.
    pub(super) fn ignore(self) {
        tokio::spawn(self.answer());
    }
}

/// Runs a statement; in a transaction of its own, if there is something to `begin` it with.
async fn fetch_all(
    mut connection: PgConnection,
    begin: Option<Arc<str>>,
    query: Statement,
) -> (PgConnection, Result<Vec<PgRow>, sqlx::Error>) {
    let answer = match begin {
        Some(begin) => in_transaction(&mut connection, &begin, query).await,
        None => query.fetch_all(&mut connection).await,
    };
    (connection, answer)
}

/// Makes `SET` statements last for their transaction only.
fn local(settings: &str) -> String {
    settings.replace("SET ", "SET LOCAL ")
}
