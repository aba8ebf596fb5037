//! Brings the table to the schema of this release, while receivers and workers of this and of earlier releases use it.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Row as _, Transaction};
use tokio::time::Instant;

use super::connector::Connector;
use super::fault::Fault;
use super::schema::{Change, Schema};
use super::table::TableName;

/// The first pause between two tries, which lets claims have their turn. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a change is repeated that does not get its lock because of other transactions.
const PATIENCE: Duration = Duration::from_secs(60);

const TABLE_IN_USE: &str = "other transactions hold the table for longer than a minute, and keep migrate from its \
    lock: end those that pg_stat_activity shows as long open, and call migrate again";

const NEEDS_SESSION: &str = "an index is missing on a table that is too large to be locked while it is built, and \
    CREATE INDEX CONCURRENTLY needs a session, which a transaction pooler does not give: name the server itself with \
    PostgresStoreBuilder::direct, or run the statement by hand; PostgresStore::schema_sql has it";

/// Held while the table is changed, so that one migrator works at a time. Earlier releases hold the same one.
const MIGRATION_LOCK: i64 = i64::from_be_bytes(*b"webhooks");

/// How long a brief change waits for its lock on the table. Every claim queues up behind it for as long, so this is
/// shorter than the time that a claim waits for a lock.
const LOCK_TIMEOUT: Duration = Duration::from_millis(50);

/// An index on a table that is larger than this blocks claims for too long while it is built without CONCURRENTLY.
const LARGEST_BLOCKED: i64 = 16 * 1024 * 1024;

/// Each statement sees what was committed before it, whatever the role's default isolation is.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Changes the table step by step, each decided by the catalogue.
pub(super) struct Migrator<'a> {
    schema: &'a Schema,
    connection: MigrationConnection<'a>,
}

/// Why a step failed.
struct Failed {
    error: sqlx::Error,
    /// The change that failed, if the step got as far as that.
    change: Option<Change>,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self { error, change: None }
    }
}

impl<'a> Migrator<'a> {
    /// Makes the table complete.
    pub(super) async fn run(schema: &'a Schema, connector: &'a Connector) -> Result<(), Fault> {
        // A connection of the pool reads the catalogue first: most of the time there is nothing to do.
        if connector.direct.is_none() {
            let row = MigrationConnection::Transactions(&connector.pool).fetch(&schema.catalogue_sql).await?;
            if schema.next_change(&row)?.is_none() {
                return Ok(());
            }
        }
        let mut migrator = Self { schema, connection: MigrationConnection::open(connector).await? };
        let migrated = migrator.complete().await;
        migrator.connection.close().await;
        migrated
    }

    async fn complete(&mut self) -> Result<(), Fault> {
        let (mut since, mut pause, mut existing) = (Instant::now(), FIRST_PAUSE, None);
        loop {
            // Read without the lock, which a complete table does not need.
            let row = self.connection.fetch(&self.schema.catalogue_sql).await?;
            if self.schema.next_change(&row)?.is_none() {
                return Ok(());
            }
            match self.step().await {
                Ok(Outcome::Done) => {
                    (since, pause, existing) = (Instant::now(), FIRST_PAUSE, None);
                    continue;
                }
                // There is no limit to this wait: another migrator may be building a large index.
                Ok(Outcome::Busy) => since = Instant::now(),
                Ok(Outcome::NeedsSession) => return Err(Fault::refused(NEEDS_SESSION)),
                // The change was made by hand since the catalogue was read. If it is missing once more, a
                // relation of another table has the name.
                Err(Failed { error, change }) if exists_already(&error) && existing != change => existing = change,
                Err(Failed { error, .. }) if !may_pass(&error) => return Err(error.into()),
                Err(Failed { error, .. }) if since.elapsed() >= PATIENCE => {
                    return Err(Fault::from(error).with_advice(TABLE_IN_USE));
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes the next change under the lock, and chooses it there: an index that the catalogue showed as invalid before
    /// may be another migrator's, which has finished it since.
    async fn step(&mut self) -> Result<Outcome, Failed> {
        let Some(mut locked) = self.connection.try_lock().await? else { return Ok(Outcome::Busy) };
        let outcome = make_next(&mut locked, self.schema).await;
        let unlocked = locked.unlock().await;
        let outcome = outcome?;
        unlocked?;
        Ok(outcome)
    }
}

async fn make_next(locked: &mut Locked<'_>, schema: &Schema) -> Result<Outcome, Failed> {
    let row = locked.fetch(&schema.catalogue_sql).await?;
    let Some(change) = schema.next_change(&row)? else { return Ok(Outcome::Done) };
    locked.change(&change, &schema.table).await.map_err(|error| Failed { error, change: Some(change) })
}

enum MigrationConnection<'a> {
    /// A session with settings of the migrator's own. It is closed, and not returned to the pool.
    Session(Box<PgConnection>),
    /// A pooler gives no sessions, only transactions.
    Transactions(&'a PgPool),
}

/// A connection that holds the migrators' lock. A transaction keeps its session, also behind a pooler.
enum Locked<'l> {
    Session(&'l mut PgConnection),
    Transaction(Transaction<'static, Postgres>),
}

/// The outcome of a change.
enum Outcome {
    /// The change was made, or none was missing any more.
    Done,
    /// Another migrator is at work.
    Busy,
    /// The change cannot be made without a session.
    NeedsSession,
}

impl<'a> MigrationConnection<'a> {
    async fn open(connector: &'a Connector) -> Result<Self, sqlx::Error> {
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

    async fn close(self) {
        if let Self::Session(session) = self {
            // The migration is over, whether the server receives this or not.
            let _ = session.close().await;
        }
    }

    /// Fetches one row, without a prepared statement, which a pooler may not know.
    async fn fetch(&mut self, sql: &str) -> Result<PgRow, sqlx::Error> {
        let query = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::Session(session) => query.fetch_one(&mut **session).await,
            Self::Transactions(pool) => query.fetch_one(*pool).await,
        }
    }

    /// Takes the lock; `None` if another migrator has it.
    async fn try_lock(&mut self) -> Result<Option<Locked<'_>>, sqlx::Error> {
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
    async fn fetch(&mut self, sql: &str) -> Result<PgRow, sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(self.connection()).await
    }

    async fn change(&mut self, change: &Change, table: &TableName) -> Result<Outcome, sqlx::Error> {
        match self {
            Self::Session(session) => change_in_session(session, change).await,
            Self::Transaction(transaction) => change_in_transaction(transaction, change, table).await,
        }
    }

    /// Commits the change, and releases the lock. Called after each change, also after one that failed: another
    /// migrator may have to go first.
    async fn unlock(self) -> Result<(), sqlx::Error> {
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
    Ok(Outcome::Done)
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
    Ok(Outcome::Done)
}

/// Makes statements give up soon if they do not get their locks. Sent as one query, they are one transaction.
fn brief(sql: &str) -> String {
    format!("SET LOCAL lock_timeout = {}; SET LOCAL client_min_messages = warning; {sql}", LOCK_TIMEOUT.as_millis())
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(|_| ())
}

/// Whether a change that failed with this error may succeed later: another transaction was in its way.
fn may_pass(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("55P03" | "40P01" | "40001"))
}

/// Whether a change failed because its relation or its column exists already.
fn exists_already(error: &sqlx::Error) -> bool {
    matches!(code(error).as_deref(), Some("42P07" | "42701"))
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}
