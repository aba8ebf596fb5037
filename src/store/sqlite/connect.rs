use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};

use super::fault::Fault;
use super::schema;
use super::statements::Statements;
use super::table::Table;

/// How long a batch waits for the lock before its questions are asked again. Short: whoever only reads waits along.
const PATIENCE: Duration = Duration::from_millis(20);

/// How many pages the log may have before it is written back, 16 MiB of the usual ones, and how much of the database a connection keeps
/// in memory, in KiB. Keys come in no order, so that every claim is on a page of its own: the longer the log, the more of them share the
/// way back, and what is not in memory has to be read first. It costs a longer pause whenever the log is written back, and some time
/// when it is read after a crash.
const LOG_PAGES: &str = "4000";
const CACHE: &str = "-16384";

/// How to reach the database.
pub(super) struct Database {
    options: SqliteConnectOptions,
}

impl Database {
    /// A file, which is created if it is missing.
    pub(super) fn at(path: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        Self::with(options.pragma("wal_autocheckpoint", LOG_PAGES).pragma("cache_size", CACHE))
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
        self.try_connect(statements).await.map_err(|fault| fault.opening(self.path()))
    }

    async fn try_connect(&self, statements: &Statements) -> Result<SqliteConnection, Fault> {
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
        add_missing_columns(&mut connection, &statements.table).await?;
        Ok(connection)
    }

    pub(super) fn path(&self) -> &Path {
        self.options.get_filename()
    }
}

/// Brings a table that an earlier release has made up to date. The database's `user_version` is not used for this: the file may be the
/// application's own.
async fn add_missing_columns(connection: &mut SqliteConnection, table: &Table) -> Result<(), Fault> {
    for (name, column_type) in schema::ADDED_COLUMNS {
        if has_column(connection, table, name).await? {
            continue;
        }
        let added = connection.execute(AssertSqlSafe(schema::add_column(table, name, column_type))).await;
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
    let columns = sqlx::query_scalar::<_, String>(AssertSqlSafe(schema::columns(table))).fetch_all(connection).await?;
    Ok(columns.iter().any(|column| column == name))
}

fn refused(why: &str) -> Fault {
    sqlx::Error::Configuration(why.into()).into()
}

#[cfg(test)]
mod tests {
    use super::super::bodies::Bodies;
    use super::*;

    /// Whatever the pool's own connections are set to: an answer that was given is on disk.
    #[tokio::test]
    async fn connection_is_durable() {
        let directory = std::env::temp_dir().join(format!("tower-webhook-connect-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let careless = SqliteConnectOptions::new()
            .filename(directory.join("careless.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Delete)
            .synchronous(SqliteSynchronous::Off);
        let statements = Statements::new(&Table::default(), Bodies::default());
        for database in [Database::at(&directory.join("own.db")), Database::with(careless)] {
            let mut connection = database.connect(&statements).await.expect("a connection");
            let mode: String =
                sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await.expect("a mode");
            let full: i64 =
                sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut connection).await.expect("a number");
            assert_eq!((mode.as_str(), full), ("wal", 2));
        }
        let _ = std::fs::remove_dir_all(directory);
    }
}
