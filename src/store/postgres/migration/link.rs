use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Row as _, Transaction};

use super::plan::Change;
use crate::store::postgres::table::TableName;

/// Held while the table is changed, so that one migrator works at a time. Earlier releases hold the same one.
const MIGRATION_LOCK: i64 = i64::from_be_bytes(*b"webhooks");

/// How long a brief change waits for its lock on the table. Every claim queues up behind it for as long, so it is shorter than
/// what a claim waits for.
const LOCK_TIMEOUT: Duration = Duration::from_millis(50);

/// An index on a table that is larger than this blocks claims for too long while it is built without CONCURRENTLY.
const LARGEST_BLOCKED: i64 = 16 * 1024 * 1024;

/// Whatever the role's default is, each statement sees what was committed before it.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// The way to the server.
#[derive(Clone, Copy)]
pub(in super::super) enum Route<'a> {
    /// A connection of the pool is a session.
    Sessions(&'a PgPool),
    /// A connection past the pooler is one.
    Direct(&'a PgConnectOptions),
    /// There are no sessions, only transactions.
    Transactions(&'a PgPool),
}

/// What the migrator talks to the server through.
pub(super) enum Link<'a> {
    /// With settings of the migrator's own, so it is closed and not given back.
    Session(Box<PgConnection>),
    Transactions(&'a PgPool),
}

/// The way to the server while no other migrator is at work. A transaction keeps its session, also behind a pooler.
pub(super) enum Locked<'l> {
    Session(&'l mut PgConnection),
    Transaction(Transaction<'static, Postgres>),
}

/// What came of a change.
pub(super) enum Done {
    Changed,
    /// Another migrator is at work.
    Busy,
    /// The change cannot be made without a session.
    NeedsSession,
}

impl<'a> Link<'a> {
    pub(super) async fn open(route: Route<'a>) -> Result<Self, sqlx::Error> {
        let mut session = match route {
            Route::Sessions(pool) => pool.acquire().await?.detach(),
            Route::Direct(options) => PgConnection::connect_with(options).await?,
            Route::Transactions(pool) => return Ok(Self::Transactions(pool)),
        };
        // An index on a large table may take hours, whatever the role's defaults are.
        let settings = "SET statement_timeout = 0; SET lock_timeout = 0; SET client_min_messages = warning";
        sqlx::raw_sql(settings).execute(&mut session).await?;
        Ok(Self::Session(Box::new(session)))
    }

    pub(super) async fn close(self) {
        if let Self::Session(session) = self {
            // The table is as it is, whether the server hears of this or not.
            let _ = session.close().await;
        }
    }

    /// One row, without a prepared statement: a pooler may not know any.
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
                // Tried, and not waited for: whoever waits has a snapshot, which CONCURRENTLY waits for in turn.
                let is_had = call(session, "pg_try_advisory_lock").await?;
                Ok(is_had.then_some(Locked::Session(session)))
            }
            Self::Transactions(pool) => {
                let mut transaction = pool.begin_with(BEGIN).await?;
                let is_had = call(&mut transaction, "pg_try_advisory_xact_lock").await?;
                Ok(is_had.then_some(Locked::Transaction(transaction)))
            }
        }
    }
}

impl Locked<'_> {
    pub(super) async fn fetch(&mut self, sql: &str) -> Result<PgRow, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(self.connection()).await
    }

    pub(super) async fn change(&mut self, change: &Change, table: &TableName) -> Result<Done, sqlx::Error> {
        match self {
            Self::Session(session) => change_in_session(session, change).await,
            Self::Transaction(transaction) => change_in_transaction(transaction, change, table).await,
        }
    }

    /// Commits what was changed, and gives the lock back. To be called after each change, also after one that failed: others may
    /// have to go first.
    pub(super) async fn unlock(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Session(session) => call(session, "pg_advisory_unlock").await.map(|_| ()),
            // Of a transaction that failed, nothing is committed.
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

async fn change_in_session(session: &mut PgConnection, change: &Change) -> Result<Done, sqlx::Error> {
    match change {
        Change::Brief(sql) => execute(session, brief(sql)).await?,
        Change::Index { sql, invalid } => {
            if let Some(name) = invalid {
                execute(session, format!("DROP INDEX CONCURRENTLY IF EXISTS {name}")).await?;
            }
            execute(session, sql.replacen("INDEX ", "INDEX CONCURRENTLY ", 1)).await?;
        }
    }
    Ok(Done::Changed)
}

async fn change_in_transaction(
    transaction: &mut PgConnection,
    change: &Change,
    table: &TableName,
) -> Result<Done, sqlx::Error> {
    match change {
        Change::Brief(sql) => execute(transaction, brief(sql)).await?,
        Change::Index { sql, invalid } => {
            let size = brief(&format!("SELECT pg_relation_size('{}')", table.to_string().replace('\'', "''")));
            let size: i64 = sqlx::raw_sql(AssertSqlSafe(size)).fetch_one(&mut *transaction).await?.try_get(0)?;
            if size > LARGEST_BLOCKED {
                return Ok(Done::NeedsSession);
            }
            let drop = invalid.as_ref().map(|name| format!("DROP INDEX IF EXISTS {name}; ")).unwrap_or_default();
            execute(transaction, brief(&(drop + sql))).await?;
        }
    }
    Ok(Done::Changed)
}

/// The statements, which give up soon if they do not get their locks. Sent as one query, they are one transaction.
fn brief(sql: &str) -> String {
    format!("SET LOCAL lock_timeout = {}; SET LOCAL client_min_messages = warning; {sql}", LOCK_TIMEOUT.as_millis())
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(|_| ())
}

/// Whether a change that failed so may be made later: another transaction was in its way.
pub(super) fn passes(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("55P03" | "40P01" | "40001"))
}

/// Whether a relation or a column is there that was to be made.
pub(super) fn is_made_already(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("42P07" | "42701"))
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}
