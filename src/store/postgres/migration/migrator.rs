use std::time::Duration;

use tokio::time::Instant;

use super::link::{Done, Link, Route, is_made_already, passes};
use super::plan::Catalogue;
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
            let row = self.link.fetch(&self.schema.catalogue).await?;
            let Some(change) = self.schema.next_change(&Catalogue::read(&row)?) else { return Ok(()) };
            match self.link.change(&change, &self.schema.table).await {
                Ok(Done::Changed) => {
                    (since, pause, made) = (Instant::now(), FIRST_PAUSE, None);
                    continue;
                }
                // However long that takes: another migrator may be building a large index.
                Ok(Done::Busy) => since = Instant::now(),
                Ok(Done::NeedsSession) => return Err(Fault::refused(NEEDS_SESSION)),
                // By another migrator, since the catalogue was looked at. If the same still misses, it is another table's.
                Err(error) if is_made_already(&error) && made.as_ref() != Some(&change) => made = Some(change),
                Err(error) if !passes(&error) => return Err(error.into()),
                Err(error) if since.elapsed() >= PATIENCE => return Err(Fault::from(error).with_advice(TABLE_IN_USE)),
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
