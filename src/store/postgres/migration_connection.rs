//! The connection of a migration, the migrators' lock, and how a change is made under it.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Row as _, Transaction};

use super::connector::Connector;
use super::schema::Change;
use super::table::TableName;

/// Held while the table is changed, so that one migrator works at a time. Earlier releases hold the same one.
const MIGRATION_LOCK: i64 = i64::from_be_bytes(*b"webhooks");

/// How long a brief change waits for its lock on the table. Every claim queues up behind it for as long, so this is
/// shorter than the time that a claim waits for a lock.
const LOCK_TIMEOUT: Duration = Duration::from_millis(50);

/// An index on a table that is larger than this blocks claims for too long while it is built without CONCURRENTLY.
const LARGEST_BLOCKED: i64 = 16 * 1024 * 1024;

/// Each statement sees what was committed before it, whatever the role's default isolation is.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

pub(super) enum MigrationConnection<'a> {
    /// A session with settings of the migrator's own. It is closed, and not returned to the pool.
    Session(Box<PgConnection>),
    /// A pooler gives no sessions, only transactions.
    Transactions(&'a PgPool),
}

/// A connection that holds the migrators' lock. A transaction keeps its session, also behind a pooler.
pub(super) enum Locked<'l> {
    Session(&'l mut PgConnection),
    Transaction(Transaction<'static, Postgres>),
}

/// The outcome of a change.
pub(super) enum Outcome {
    Changed,
    /// Another migrator is at work.
    Busy,
    /// The change cannot be made without a session.
    NeedsSession,
}

impl<'a> MigrationConnection<'a> {
    pub(super) async fn open(connector: &'a Connector) -> Result<Self, sqlx::Error> {
        let mut session = match &connector.direct {
            Some(direct) => PgConnection::connect_with(direct).await?,
            None if connector.pooled => return Ok(Self::Transactions(&connector.pool)),
            None => connector.pool.acquire().await?.detach(),
        };
        // An index on a large table may take hours, whatever the role's defaults are.
        let settings = "SET statement_timeout = 0; SET lock_timeout = 0; SET client_min_messages = warning";
        sqlx::raw_sql(settings).execute(&mut session).await?;
        Ok(Self::Session(Box::new(session)))
    }

    pub(super) async fn close(self) {
        if let Self::Session(session) = self {
            // The migration is over, whether the server receives this or not.
            let _ = session.close().await;
        }
    }

    /// Fetches one row, without a prepared statement, which a pooler may not know.
    pub(super) async fn fetch(&mut self, sql: &str) -> Result<PgRow, sqlx::Error> {
        let query = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::Session(session) => query.fetch_one(&mut **session).await,
            Self::Transactions(pool) => query.fetch_one(*pool).await,
        }
    }

    /// Takes the lock; `None` if another migrator has it.
    pub(super) async fn try_lock(&mut self) -> Result<Option<Locked<'_>>, sqlx::Error> {
        match self {
            Self::Session(session) => {
                // Tried and not waited for: a session that waits has a snapshot, for which CONCURRENTLY waits in turn.
                let has_lock = call(session, "pg_try_advisory_lock").await?;
                Ok(has_lock.then_some(Locked::Session(session)))
            }
            Self::Transactions(pool) => {
                let mut transaction = pool.begin_with(BEGIN).await?;
                let has_lock = call(&mut transaction, "pg_try_advisory_xact_lock").await?;
                Ok(has_lock.then_some(Locked::Transaction(transaction)))
            }
        }
    }
}

impl Locked<'_> {
    pub(super) async fn fetch(&mut self, sql: &str) -> Result<PgRow, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(self.connection()).await
    }

    pub(super) async fn change(&mut self, change: &Change, table: &TableName) -> Result<Outcome, sqlx::Error> {
        match self {
            Self::Session(session) => change_in_session(session, change).await,
            Self::Transaction(transaction) => change_in_transaction(transaction, change, table).await,
        }
    }

    /// Commits the change, and releases the lock. Called after each change, also after one that failed: another migrator
    /// may have to go first.
    pub(super) async fn unlock(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Session(session) => call(session, "pg_advisory_unlock").await.map(|_| ()),
            // A transaction that failed commits nothing.
            Self::Transaction(transaction) => transaction.commit().await,
        }
    }

    fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Session(session) => session,
            Self::Transaction(transaction) => transaction,
        }
    }
}

/// Calls a function of the migrators' lock.
async fn call(connection: &mut PgConnection, function: &str) -> Result<bool, sqlx::Error> {
    let sql = format!("SELECT {function}({MIGRATION_LOCK})");
    sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(connection).await?.try_get(0)
}

async fn change_in_session(session: &mut PgConnection, change: &Change) -> Result<Outcome, sqlx::Error> {
    match change {
        Change::Brief(sql) => execute(session, brief(sql)).await?,
        Change::Index { sql, invalid } => {
            if let Some(name) = invalid {
                execute(session, format!("DROP INDEX CONCURRENTLY IF EXISTS {name}")).await?;
            }
            execute(session, sql.replacen("INDEX ", "INDEX CONCURRENTLY ", 1)).await?;
        }
    }
    Ok(Outcome::Changed)
}

async fn change_in_transaction(
    transaction: &mut PgConnection,
    change: &Change,
    table: &TableName,
) -> Result<Outcome, sqlx::Error> {
    match change {
        Change::Brief(sql) => execute(transaction, brief(sql)).await?,
        Change::Index { sql, invalid } => {
            let size = brief(&format!("SELECT pg_relation_size('{}')", table.to_string().replace('\'', "''")));
            let size: i64 = sqlx::raw_sql(AssertSqlSafe(size)).fetch_one(&mut *transaction).await?.try_get(0)?;
            if size > LARGEST_BLOCKED {
                return Ok(Outcome::NeedsSession);
            }
            let drop = invalid.as_ref().map(|name| format!("DROP INDEX IF EXISTS {name}; ")).unwrap_or_default();
            execute(transaction, brief(&(drop + sql))).await?;
        }
    }
    Ok(Outcome::Changed)
}

/// Makes statements give up soon if they do not get their locks. Sent as one query, they are one transaction.
fn brief(sql: &str) -> String {
    format!("SET LOCAL lock_timeout = {}; SET LOCAL client_min_messages = warning; {sql}", LOCK_TIMEOUT.as_millis())
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(|_| ())
}

/// Whether a change that failed with this error may succeed later: another transaction was in its way.
pub(super) fn may_pass(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("55P03" | "40P01" | "40001"))
}

/// Whether a change failed because its relation or its column exists already.
pub(super) fn exists_already(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("42P07" | "42701"))
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}
