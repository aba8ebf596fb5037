use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};

use super::fault::Fault;
use super::statements::Statements;

/// How long a batch waits for the lock before its questions are asked again. Short: whoever only reads waits along.
const PATIENCE: Duration = Duration::from_millis(20);

/// How to reach the database.
pub(super) struct Database {
    options: SqliteConnectOptions,
}

impl Database {
    /// A file, which is created if it is missing.
    pub(super) fn at(path: &Path) -> Self {
        Self::with(SqliteConnectOptions::new().filename(path).create_if_missing(true))
    }

    /// As somebody else opens it, but as durable as it gets.
    pub(super) fn with(options: SqliteConnectOptions) -> Self {
        let options = options
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(PATIENCE)
            .disable_statement_logging();
        Self { options }
    }

    /// A new connection, with the table there.
    pub(super) async fn connect(&self, statements: &Statements) -> Result<SqliteConnection, Fault> {
        let mut connection = self.options.connect().await?;
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await?;
        match mode.as_str() {
            "wal" => {}
            "memory" => {
                return Err(refused(
                    "a database in memory is another one on every connection: use a file, or MemoryStore",
                ));
            }
            mode => {
                return Err(refused(&format!(
                    "the database is in journal mode {mode} and cannot be brought into WAL mode"
                )));
            }
        }
        // Safe: the name of the table is quoted.
        connection.execute(AssertSqlSafe(statements.schema.clone())).await?;
        Ok(connection)
    }

    pub(super) fn path(&self) -> &Path {
        self.options.get_filename()
    }
}

fn refused(why: &str) -> Fault {
    sqlx::Error::Configuration(why.into()).into()
}
