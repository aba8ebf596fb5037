//! How the database is reached.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::fault::Fault;
use super::statements::{Statement, Statements};
use super::table::Table;
use super::time::Times;
use crate::clock::LONGEST;
use crate::store::{StoreError, StoreErrorKind};

/// How long a batch waits for the lock before its callers ask again. Short: callers that only read wait along.
const BUSY_TIMEOUT: Duration = Duration::from_millis(20);

/// How many pages the log may have before it is written back, 16 MiB of the usual ones, and how much of the database a
/// connection keeps in memory, in KiB. Keys are random, so that every claim writes a page of its own. A longer log
/// writes each page back less often, and a larger cache reads fewer pages first. Checkpoints, and recovery after a
/// crash, take longer.
const LOG_PAGES: &str = "4000";
const CACHE: &str = "-16384";

/// Columns that tables of earlier releases lack, each with its type.
const ADDED_COLUMNS: [(&str, &str); 2] = [("handler_started", "INTEGER"), ("was_due_at", "INTEGER")];

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Connection options for a file, which is created if it is missing.
pub(super) fn file_options(path: &Path) -> SqliteConnectOptions {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    options.pragma("wal_autocheckpoint", LOG_PAGES).pragma("cache_size", CACHE)
}

/// One table in one file: how to connect, its statements, and the clocks that its rows are written by.
pub(super) struct Database {
    options: SqliteConnectOptions,
    /// The options as the pool has them, which handlers connect with.
    pool_options: SqliteConnectOptions,
    pub(super) statements: Statements,
    pub(super) times: Times,
}

impl Database {
    /// Connects with these options, but as durably as SQLite can.
    pub(super) fn new(options: SqliteConnectOptions, statements: Statements, times: Times) -> Self {
        let wal = options.journal_mode(SqliteJournalMode::Wal).busy_timeout(BUSY_TIMEOUT).disable_statement_logging();
        Self { options: wal.clone().synchronous(SqliteSynchronous::Full), pool_options: wal, statements, times }
    }

    pub(super) fn path(&self) -> &Path {
        self.options.get_filename()
    }

    /// Opens a connection as the pool does, and creates nothing.
    pub(super) async fn connect_as_pool(&self) -> Result<SqliteConnection, Fault> {
        let options = self.pool_options.clone().create_if_missing(false);
        options.connect().await.map_err(|error| Fault::from(error).on_opening(self.path()))
    }

    /// Opens a connection, and creates what is missing of the table.
    async fn connect(&self) -> Result<SqliteConnection, Fault> {
        self.try_connect().await.map_err(|fault| fault.on_opening(self.path()))
    }

    async fn try_connect(&self) -> Result<SqliteConnection, Fault> {
        let mut connection = self.options.connect().await?;
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await?;
        match mode.as_str() {
            "wal" => {}
            "memory" => {
                let reason =
                    "every connection to a database in memory opens another database: use a file, or MemoryStore";
                return Err(refused(reason));
            }
            mode => {
                let reason = format!("the database is in journal mode {mode} and cannot be brought into WAL mode");
                return Err(refused(&reason));
            }
        }
        // Safe: the name of the table is quoted.
        connection.execute(AssertSqlSafe(self.statements.schema.clone())).await?;
        add_missing_columns(&mut connection, &self.statements.table).await?;
        Ok(connection)
    }
}

/// Brings a table that an earlier release has made up to date. The database's `user_version` is not used for this: the
/// file may be the application's own.
async fn add_missing_columns(connection: &mut SqliteConnection, table: &Table) -> Result<(), Fault> {
    for (name, column_type) in ADDED_COLUMNS {
        if has_column(connection, table, name).await? {
            continue;
        }
        let added =
            connection.execute(AssertSqlSafe(format!("ALTER TABLE {table} ADD COLUMN {name} {column_type}"))).await;
        // Another process may have been quicker.
        if let Err(error) = added
            && !has_column(connection, table, name).await?
        {
            return Err(error.into());
        }
    }
    Ok(())
}

async fn has_column(connection: &mut SqliteConnection, table: &Table, name: &str) -> Result<bool, sqlx::Error> {
    let columns = format!("SELECT name FROM pragma_table_info('{}')", table.name().replace('\'', "''"));
    let columns = sqlx::query_scalar::<_, String>(AssertSqlSafe(columns)).fetch_all(connection).await?;
    Ok(columns.iter().any(|column| column == name))
}

fn refused(reason: &str) -> Fault {
    sqlx::Error::Configuration(reason.into()).into()
}

/// A connection for one caller at a time. It is opened when it is first needed, and again after a fault.
pub(super) struct Connection {
    pub(super) database: Arc<Database>,
    /// Empty while a caller has the connection, so that it is not used again where a caller was dropped half-way.
    idle: Mutex<Option<SqliteConnection>>,
}

impl Connection {
    pub(super) fn new(database: &Arc<Database>) -> Self {
        Self { database: database.clone(), idle: Mutex::default() }
    }

    /// Waits for the callers before this one.
    pub(super) async fn acquire(&self) -> Result<Acquired<'_>, Fault> {
        let mut idle = self.idle.lock().await;
        let connection = match idle.take() {
            Some(connection) => connection,
            None => self.database.connect().await?,
        };
        Ok(Acquired { idle, connection })
    }

    pub(super) async fn rows(&self, statement: Statement) -> Result<Vec<SqliteRow>, Fault> {
        let mut acquired = self.acquire().await?;
        let rows = acquired.connection.fetch_all(statement).await.map_err(Fault::from);
        acquired.release(rows)
    }

    /// Returns the number of rows that changed.
    pub(super) async fn execute(&self, statement: Statement) -> Result<u64, Fault> {
        let mut acquired = self.acquire().await?;
        let done = acquired.connection.execute(statement).await.map_err(Fault::from);
        Ok(acquired.release(done)?.rows_affected())
    }
}

/// A connection in use. Dropped without a [`release`](Self::release), it is closed.
pub(super) struct Acquired<'a> {
    idle: MutexGuard<'a, Option<SqliteConnection>>,
    pub(super) connection: SqliteConnection,
}

impl Acquired<'_> {
    /// Leaves the connection to the next caller, unless `result` says that it is broken.
    pub(super) fn release<T>(self, result: Result<T, Fault>) -> Result<T, Fault> {
        let Self { mut idle, connection } = self;
        if !matches!(result, Err(Fault::Broken(_))) {
            *idle = Some(connection);
        }
        result
    }
}

/// Asks again while another connection holds the lock, until `wait` is over. A batch that waited instead would delay
/// callers that only read. The last error says whether any of the calls may have taken effect.
pub(super) async fn retry_while_locked<T, F>(wait: Duration, call: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let until = Instant::now() + wait.min(LONGEST);
    let mut pause = FIRST_PAUSE;
    let mut kind = StoreErrorKind::Locked;
    loop {
        match call().await {
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

#[cfg(test)]
mod tests {
    use super::super::time::BodyRetention;
    use super::*;

    /// An answer that was given is on disk, even if the pool's own connections are less durable.
    #[tokio::test]
    async fn connection_is_durable() {
        let directory = std::env::temp_dir().join(format!("tower-webhook-connect-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let careless = SqliteConnectOptions::new()
            .filename(directory.join("careless.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Delete)
            .synchronous(SqliteSynchronous::Off);
        for options in [file_options(&directory.join("own.db")), careless] {
            let statements = Statements::new(&Table::default(), BodyRetention::default());
            let database = Database::new(options, statements, Times::new(None));
            let mut connection = database.connect().await.expect("a connection");
            let mode = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection);
            let mode: String = mode.await.expect("a mode");
            let full = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut connection);
            assert_eq!((mode.as_str(), full.await.expect("a number")), ("wal", 2));
        }
        let _ = std::fs::remove_dir_all(directory);
    }
}
