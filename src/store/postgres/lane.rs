use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, Row as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::access::{Access, in_transaction};
use super::fault::{Fault, Remedy};
use super::late::{Late, Running};
use super::schema::Statements;
use crate::telemetry;

/// How often a batch that met another transaction is asked again.
const RETRIES: usize = 8;

/// As good as for ever, and nothing overflows by it. The server takes no timeout above 24 days, and refuses the `SET`.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// What makes every plan the one it is meant to be: by index for each row, whatever the table's size and however old its
/// statistics, and made once. Isolation above the default would only make batches fail.
const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; \
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
    SET default_transaction_isolation = 'read committed'; ";

/// How many connections a lane has at the most. It needs one; but a claim or a settlement that is not answered by its deadline keeps
/// its connection, and the next statement has another one. A commit that waits for a replica may take for ever, and its session with
/// it, whether the store stays connected or not: without a bound, all of the server's sessions would be such ones.
const MOST_CONNECTIONS: usize = 3;

const UNANSWERED: &str = "the server leaves as many statements unanswered as this store leaves open at a time: pg_stat_activity shows what they wait for, SyncRep for example, a replica that is away";

/// A connection of the store's own, which runs one statement at a time: made when it is needed, kept until it breaks.
pub(super) struct Lane {
    name: &'static str,
    access: Access,
    /// Of a session, which is told them once; or what begins each transaction, if the server may be another one every time.
    settings: Arc<str>,
    deadline: Duration,
    lock_timeout: Duration,
    /// Asks whether the whole table is locked.
    table_lock: Option<Arc<str>>,
    kept: Mutex<Option<PgConnection>>,
    /// One for each statement that was begun and is not answered yet.
    places: Arc<Semaphore>,
}

/// A statement that asks for many rows at once.
pub(super) trait Sheet: Sync {
    /// What is asked of one row.
    type Row: Sync;
    type Outcome: Send;

    fn query(&self, rows: &[&Self::Row]) -> Query<'static, Postgres, PgArguments>;

    /// What the statement said of each of `rows`.
    fn read(&self, rows: &[&Self::Row], answer: &[PgRow]) -> Result<Vec<Self::Outcome>, sqlx::Error>;

    /// The deadline is over and the server has not answered yet: the statement may still take effect. Dropping `_late` closes its
    /// connection, and does not stop the server; which ends by itself whatever does not wait to commit.
    fn overdue(&self, _rows: &[&Self::Row], _late: Late) {}
}

/// Of `all`, the one that `row` is about, by the number in its first column.
pub(super) fn place<'a, T>(all: &'a mut [T], row: &PgRow) -> Result<&'a mut T, sqlx::Error> {
    let number: i64 = row.try_get(0)?;
    let place = usize::try_from(number - 1).ok().and_then(|at| all.get_mut(at));
    place.ok_or_else(|| sqlx::Error::Decode("an answer to what was not asked".into()))
}

impl Lane {
    /// `lock_timeout` ends the wait for another transaction.
    pub(super) fn new(name: &'static str, access: &Access, deadline: Duration, lock_timeout: Duration) -> Self {
        let [deadline, lock_timeout] = [deadline, lock_timeout].map(|time| time.min(LONGEST_DEADLINE));
        let (deadline_ms, lock_ms) = (deadline.as_millis(), lock_timeout.as_millis());
        // The server gives up when this side does, so that nothing takes effect long after its batch was given up.
        let settings = format!("{SETTINGS}SET statement_timeout = {deadline_ms}; SET lock_timeout = {lock_ms}");
        let settings = match access.pooled {
            // A process that stops in the middle must not hold rows, and a server of the pooler's.
            true => format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED; {}; SET LOCAL idle_in_transaction_session_timeout = {deadline_ms}",
                local(&settings)
            ),
            false => settings,
        };
        let access = access.clone();
        Self {
            name,
            access,
            settings: settings.into(),
            deadline,
            lock_timeout,
            table_lock: None,
            kept: Mutex::new(None),
            places: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
        }
    }

    /// The same, with settings of its own, which are `SET` statements.
    pub(super) fn with(mut self, settings: &str) -> Self {
        let settings = if self.access.pooled { local(settings) } else { settings.to_owned() };
        self.settings = format!("{}; {settings}", self.settings).into();
        self
    }

    /// The same, and a lock on the whole table is told from one on a row.
    pub(super) fn telling_table_locks(mut self, statements: &Statements) -> Self {
        self.table_lock = Some(statements.table_lock.clone());
        self
    }

    /// By when a batch that is begun now has to be answered.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// What `sheet` says of every row, in one statement; in several, if that fails because of a row. While the whole table is
    /// locked, the same statement is asked as long as there is time for its wait to end before the deadline.
    pub(super) async fn ask<S: Sheet>(
        &self,
        sheet: &S,
        rows: &[&S::Row],
        until: Instant,
    ) -> Vec<Result<S::Outcome, Fault>> {
        let mut outcomes = Vec::with_capacity(rows.len());
        let mut parts = vec![rows];
        while let Some(part) = parts.pop() {
            let said = self.ask_part(sheet, part, until).await;
            match said {
                Ok(said) => outcomes.extend(said.into_iter().map(Ok)),
                Err(fault) if fault.remedy == Remedy::Blocked && self.table_is_locked(until).await => {
                    parts.push(part);
                    if Instant::now() + 2 * self.lock_timeout >= until {
                        let fault = fault.of_the_table();
                        outcomes.extend(parts.drain(..).flatten().map(|_| Err(fault.clone())));
                    }
                }
                Err(fault) if fault.is_of_a_row() && part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(fault) => outcomes.extend(part.iter().map(|_| Err(fault.clone()))),
            }
        }
        outcomes
    }

    /// Asked after a wait for a lock was given up. The lock may be gone by now; then the next try shows it.
    async fn table_is_locked(&self, until: Instant) -> bool {
        let Some(sql) = &self.table_lock else { return false };
        let answer = self.run_until(until, || sqlx::query(AssertSqlSafe(sql.clone()))).await;
        answer.is_ok_and(|rows| rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
    }

    async fn ask_part<S: Sheet>(&self, sheet: &S, part: &[&S::Row], until: Instant) -> Result<Vec<S::Outcome>, Fault> {
        let answer = self.run(until, || sheet.query(part), |late| sheet.overdue(part, late)).await?;
        Ok(sheet.read(part, &answer)?)
    }

    /// Runs one statement, unless it is too late. Past the deadline the connection is dropped: whatever the server still says on
    /// it is of no use.
    pub(super) async fn run_until(
        &self,
        until: Instant,
        query: impl Fn() -> Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, Fault> {
        self.run(until, query, drop).await
    }

    /// Runs a statement, again if that can help. What this store asks is safe to repeat: everything is done by token. A statement
    /// that is not answered by the deadline is handed to `overdue`.
    async fn run(
        &self,
        until: Instant,
        query: impl Fn() -> Query<'static, Postgres, PgArguments>,
        overdue: impl FnOnce(Late),
    ) -> Result<Vec<PgRow>, Fault> {
        let place = self.place(until).await?;
        let mut retries = 0;
        loop {
            if Instant::now() >= until {
                return Err(Fault::timed_out());
            }
            let kept = self.kept().take();
            // One that broke while it was idle must not cost anybody a delivery.
            let may_be_stale = kept.is_some();
            let connection = match kept {
                Some(connection) => connection,
                None => timeout_at(until, self.connect()).await.map_err(|_| Fault::timed_out())??,
            };
            let begin = self.access.pooled.then(|| self.settings.clone());
            let mut running: Running = Box::pin(fetch_all(connection, begin, query()));
            let Ok((connection, answer)) = timeout_at(until, &mut running).await else {
                overdue(Late::new(running, place, MOST_CONNECTIONS - self.places.available_permits()));
                return Err(Fault::timed_out());
            };
            let fault = match answer {
                Ok(answer) => {
                    *self.kept() = Some(connection);
                    return Ok(answer);
                }
                Err(error) => Fault::from(error),
            };
            match fault.remedy {
                Remedy::Reconnect if may_be_stale => {}
                Remedy::Reconnect => return Err(fault),
                Remedy::Again if retries < RETRIES => {
                    retries += 1;
                    *self.kept() = Some(connection);
                }
                _ => {
                    *self.kept() = Some(connection);
                    return Err(fault);
                }
            }
            telemetry::batch_retried(self.name);
        }
    }

    /// Waits until there is room for another statement, as long as it is not too late.
    async fn place(&self, until: Instant) -> Result<OwnedSemaphorePermit, Fault> {
        let place = timeout_at(until, self.places.clone().acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or_else(|| Fault::refused(UNANSWERED))
    }

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.access.options(self.name).connect().await?;
        // A pooler would pass them on to a server, which others use in a moment.
        if !self.access.pooled {
            sqlx::raw_sql(AssertSqlSafe(&*self.settings)).execute(&mut connection).await?;
        }
        Ok(connection)
    }

    fn kept(&self) -> MutexGuard<'_, Option<PgConnection>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a statement; in a transaction of its own, if there is something to `begin` it with.
async fn fetch_all(
    mut connection: PgConnection,
    begin: Option<Arc<str>>,
    query: Query<'static, Postgres, PgArguments>,
) -> (PgConnection, Result<Vec<PgRow>, sqlx::Error>) {
    let answer = match begin {
        Some(begin) => in_transaction(&mut connection, &begin, query).await,
        None => query.fetch_all(&mut connection).await,
    };
    (connection, answer)
}

/// `SET` statements for as long as a transaction lasts.
fn local(settings: &str) -> String {
    settings.replace("SET ", "SET LOCAL ")
}
