use std::time::Duration;

use tokio::time::Instant;

use super::link::{Done, Link, Locked, Route, is_made_already, passes};
use super::plan::{Catalogue, Change};
use super::steps::Schema;
use crate::store::postgres::fault::Fault;

/// Between two tries, while claims have their turn: twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a change is tried that other transactions keep from its lock.
const PATIENCE: Duration = Duration::from_secs(60);

const TABLE_IN_USE: &str = "other transactions hold the table for longer than a minute, and keep migrate from its lock: end those that \
    pg_stat_activity shows as long open, and call migrate again";

const NEEDS_SESSION: &str = "an index is missing on a table that is too large to be locked while it is built, and CREATE INDEX CONCURRENTLY \
    needs a session, which a transaction pooler does not give: name the server itself with PostgresStoreBuilder::direct, or run the \
    statement by hand; PostgresStore::schema_sql has it";

/// Changes the table step by step, each decided by the catalogue.
pub(in super::super) struct Migrator<'a> {
    schema: &'a Schema,
    link: Link<'a>,
}

/// Why a step failed.
struct Failed {
    error: sqlx::Error,
    /// What it was to change, if it got as far as that.
    change: Option<Change>,
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self { error, change: None }
    }
}

impl<'a> Migrator<'a> {
    /// Makes the table complete.
    pub(in super::super) async fn run(schema: &'a Schema, route: Route<'a>) -> Result<(), Fault> {
        // Looked up first, on whatever connection is at hand: most of the time there is nothing to do.
        if let Route::Sessions(pool) | Route::Transactions(pool) = route {
            let row = Link::Transactions(pool).fetch(&schema.catalogue).await?;
            if schema.next_change(&Catalogue::read(&row)?).is_none() {
                return Ok(());
            }
        }
        let mut migrator = Self { schema, link: Link::open(route).await? };
        let migrated = migrator.complete().await;
        migrator.link.close().await;
        migrated
    }

    async fn complete(&mut self) -> Result<(), Fault> {
        let (mut since, mut pause, mut made) = (Instant::now(), FIRST_PAUSE, None);
        loop {
            // Without the lock, which a complete table does not need.
            let row = self.link.fetch(&self.schema.catalogue).await?;
            if self.schema.next_change(&Catalogue::read(&row)?).is_none() {
                return Ok(());
            }
            match self.step().await {
                Ok(Done::Changed) => {
                    (since, pause, made) = (Instant::now(), FIRST_PAUSE, None);
                    continue;
                }
                // However long that takes: another migrator may be building a large index.
                Ok(Done::Busy) => since = Instant::now(),
                Ok(Done::NeedsSession) => return Err(Fault::refused(NEEDS_SESSION)),
                // By hand, since the catalogue was looked at. If the same still misses, it is another table's.
                Err(Failed { error, change }) if is_made_already(&error) && made != change => made = change,
                Err(Failed { error, .. }) if !passes(&error) => return Err(error.into()),
                Err(Failed { error, .. }) if since.elapsed() >= PATIENCE => {
                    return Err(Fault::from(error).with_advice(TABLE_IN_USE));
                }
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes the next change under the lock. What it is to be is decided there: an index that the catalogue showed as invalid before
    /// may be another migrator's, who has finished it since.
    async fn step(&mut self) -> Result<Done, Failed> {
        let Some(mut locked) = self.link.try_lock().await? else { return Ok(Done::Busy) };
        let done = make_next(&mut locked, self.schema).await;
        let unlocked = locked.unlock().await;
        let done = done?;
        unlocked?;
        Ok(done)
    }
}

async fn make_next(locked: &mut Locked<'_>, schema: &Schema) -> Result<Done, Failed> {
    let row = locked.fetch(&schema.catalogue).await?;
    let Some(change) = schema.next_change(&Catalogue::read(&row)?) else { return Ok(Done::Changed) };
    locked.change(&change, &schema.table).await.map_err(|error| Failed { error, change: Some(change) })
}
