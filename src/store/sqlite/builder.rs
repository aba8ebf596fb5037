use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqlitePool;

use super::SqliteStore;
use super::bodies::Bodies;
use super::connect::Database;
use super::statements::Statements;
use super::table::Table;
use super::time::Times;
use super::writer::Writer;
use crate::ConfigError;
use crate::clock::Clock;
use crate::store::StoreError;

/// Configures a [`SqliteStore`].
///
/// ```no_run
/// use std::time::Duration;
/// use tower_webhook::store::SqliteStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = SqliteStore::builder().table("billing_webhooks")?.lock_wait(Duration::from_millis(800));
/// let store = builder.open("billing.db").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until the store is opened"]
pub struct SqliteStoreBuilder {
    table: Table,
    lock_wait: Duration,
    bodies: Bodies,
    clock: Option<Arc<dyn Clock>>,
}

impl SqliteStoreBuilder {
    pub(super) fn new() -> Self {
        Self { table: Table::default(), lock_wait: Duration::from_millis(1500), bodies: Bodies::default(), clock: None }
    }

    /// The table's name; `webhook_events` by default. It is quoted in every statement, so any name will do that is not
    /// SQLite's own.
    ///
    /// # Errors
    ///
    /// If it is empty, longer than 255 bytes, begins with `sqlite_`, or contains a dot or a control character.
    pub fn table(mut self, name: &str) -> Result<Self, ConfigError> {
        self.table = Table::parse(name)?;
        Ok(self)
    }

    /// How long a call waits while another connection's transaction holds the write lock, until it fails with
    /// [`StoreErrorKind::Locked`](crate::store::StoreErrorKind::Locked), which the sender sees as a 503; 1.5 seconds by default, a bit
    /// less than the layer's claim deadline. Zero does not wait; more than ten years are ten years.
    pub fn lock_wait(mut self, wait: Duration) -> Self {
        self.lock_wait = wait;
        self
    }

    /// How long head and body of a completed event of the [inbox](crate::queue) are kept, from its completion on; as long as its record by
    /// default. Afterwards the record alone stays, and tells duplicates until its retention is over: days of deduplication do not mean days of
    /// stored payloads. Such an event [cannot be requeued](crate::queue::Changed::without_body). Bodies of waiting, running and dead events
    /// stay in any case.
    ///
    /// Nobody is shown a body whose time is over. It is deleted with the next [purge](SqliteStore::purge), the one that traffic does included; with
    /// zero, in the statement that completes the event. (Completions by [`COMPLETE_SQL`](crate::store::sqlite::COMPLETE_SQL) leave it to the
    /// purge, other than those by [`complete_in`](crate::WebhookEvent::complete_in).)
    pub fn keep_completed_bodies(mut self, time: Duration) -> Self {
        self.bodies = Bodies::kept_for(time);
        self
    }

    /// Where time comes from: leases from [`Clock::monotonic`], retention from [`Clock::now`]. The machine's own clocks by default.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// See [`SqliteStore::open`].
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or created.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        self.connect(Database::at(path.as_ref())).await
    }

    /// See [`SqliteStore::new`].
    ///
    /// # Errors
    ///
    /// If the pool's database cannot be opened, or is in memory.
    pub async fn build(self, pool: &SqlitePool) -> Result<SqliteStore, StoreError> {
        self.connect(Database::with((*pool.connect_options()).clone())).await
    }

    async fn connect(self, database: Database) -> Result<SqliteStore, StoreError> {
        let writer = Writer::new(database, Statements::new(&self.table, self.bodies), Times::new(self.clock));
        SqliteStore::connect(writer, self.lock_wait).await
    }
}

impl fmt::Debug for SqliteStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStoreBuilder")
            .field("table", &self.table)
            .field("lock_wait", &self.lock_wait)
            .field("bodies", &self.bodies)
            .finish_non_exhaustive()
    }
}
