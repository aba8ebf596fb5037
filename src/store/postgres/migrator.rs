//! Brings the table to the schema of this release, while receivers and workers of this and of earlier releases use it.

use std::time::Duration;

use tokio::time::Instant;

use super::connector::Connector;
use super::fault::Fault;
use super::migration_connection::{Locked, MigrationConnection, Outcome, exists_already, may_pass};
use super::schema::{Change, Schema};

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
                Ok(Outcome::Changed) => {
                    (since, pause, existing) = (Instant::now(), FIRST_PAUSE, None);
                    continue;
                }
                // There is no limit to this wait: another migrator may be building a large index.
                Ok(Outcome::Busy) => since = Instant::now(),
                Ok(Outcome::NeedsSession) => return Err(Fault::refused(NEEDS_SESSION)),
                // Somebody has made the change by hand since the catalogue was read. If it is missing once more, a
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
    let Some(change) = schema.next_change(&row)? else { return Ok(Outcome::Changed) };
    locked.change(&change, &schema.table).await.map_err(|error| Failed { error, change: Some(change) })
}
