use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::connection::{Database, file_options};
use super::statements::Statements;
use super::store::SqliteStore;
use super::table::Table;
use super::time::{BodyRetention, Times};
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
    bodies: BodyRetention,
    clock: Option<Arc<dyn Clock>>,
}

impl SqliteStoreBuilder {
    pub(super) fn new() -> Self {
        Self {
            table: Table::default(),
            lock_wait: Duration::from_millis(1500),
            bodies: BodyRetention::default(),
            clock: None,
        }
    }

    /// The table's name; `webhook_events` by default. It is quoted in every statement, so any name will do that is not
    /// SQLite's own.
    ///
    /// # Errors
    ///
    /// If the name is empty, longer than 255 bytes, begins with `sqlite_`, or contains a dot or a control character.
    pub fn table(mut self, name: &str) -> Result<Self, ConfigError> {
        self.table = Table::parse(name)?;
        Ok(self)
    }

    /// How long a call waits while another connection's transaction holds the write lock, until it fails with
    /// [`StoreErrorKind::Locked`](crate::store::StoreErrorKind::Locked), which the sender sees as a 503; 1.5 seconds by
    /// default, a bit less than the layer's claim deadline. With zero the call does not wait; more than ten years are
    /// taken for ten years.
    pub fn lock_wait(mut self, wait: Duration) -> Self {
        self.lock_wait = wait;
        self
    }

    /// How long the head and the body of a completed [queued event](crate::queue) are kept, from its completion on; as
    /// long as its record by default. Afterwards the record alone stays, and tells duplicates until its retention is
    /// over: days of deduplication do not mean days of stored payloads. Such an event [cannot be
    /// requeued](crate::queue::Changed::without_body). Bodies of waiting, running and dead events stay in any case.
    ///
    /// A body whose time is over is not shown any more. It is deleted with the next [purge](SqliteStore::purge), the
    /// one that traffic does included; with zero, in the statement that completes the event. (Completions by
    /// [`COMPLETE_SQL`](crate::store::sqlite::COMPLETE_SQL) leave it to the purge, other than those by
    /// [`complete_in`](crate::WebhookEvent::complete_in).)
    pub fn keep_completed_bodies(mut self, time: Duration) -> Self {
        self.bodies = BodyRetention::of(time);
        self
    }

    /// The clock: leases are by [`Clock::monotonic`], retention is by [`Clock::now`]. The machine's own clocks by
    /// default.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Opens the store in a file, as [`SqliteStore::open`] does.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or created.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        self.connect(file_options(path.as_ref())).await
    }

    /// Opens the store in a pool's database, as [`SqliteStore::new`] does.
    ///
    /// # Errors
    ///
    /// If the pool's database cannot be opened, or is in memory.
    pub async fn build(self, pool: &SqlitePool) -> Result<SqliteStore, StoreError> {
        self.connect((*pool.connect_options()).clone()).await
    }

    async fn connect(self, options: SqliteConnectOptions) -> Result<SqliteStore, StoreError> {
        let database = Database::new(options, Statements::new(&self.table, self.bodies), Times::new(self.clock));
        SqliteStore::connect(database, self.lock_wait).await
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
