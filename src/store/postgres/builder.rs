//! The options of the store.

use std::fmt;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use super::PostgresStore;
use super::connector::Connector;
use super::statements::Statements;
use super::table::TableName;
use super::values::delay_milliseconds;
use crate::error::{ConfigError, ConfigErrorKind};

/// Configures a [`PostgresStore`].
///
/// ```no_run
/// use std::time::Duration;
/// use tower_webhook::store::PostgresStore;
///
/// # fn example(pool: sqlx::PgPool) -> Result<(), tower_webhook::ConfigError> {
/// let store = PostgresStore::builder(pool)
///     .table("webhooks.events")?
///     .deadline(Duration::from_secs(1))?
///     .purge_every(Duration::from_secs(600))?
///     .build();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct PostgresStoreBuilder {
    connector: Connector,
    table: TableName,
    purge_every: Option<Duration>,
    completed_body_retention: Option<Duration>,
}

impl PostgresStoreBuilder {
    pub(super) fn new(pool: PgPool) -> Self {
        Self {
            connector: Connector { pool, pooled: false, direct: None, deadline: Duration::from_millis(1_500) },
            table: TableName::default(),
            purge_every: Some(Duration::from_secs(60)),
            completed_body_retention: None,
        }
    }

    /// Sets the table, as `table` or `schema.table`; `webhook_events` by default.
    ///
    /// Each part is read as in SQL: folded to lower case, unless it is in double quotes, where it can be anything. The
    /// schema must exist. [`PostgresStore::migrate`] creates the table.
    ///
    /// # Errors
    ///
    /// If the name is not of this form, or too long for Postgres.
    pub fn table(mut self, name: &str) -> Result<Self, ConfigError> {
        self.table = name.parse()?;
        Ok(self)
    }

    /// Sets how long one batch may take, connecting and retrying included; 1.5 seconds by default, which is less than
    /// the layer's own [claim deadline](crate::WebhookLayer::claim_deadline).
    ///
    /// When it passes, all callers in the batch get [`TimedOut`](crate::store::StoreErrorKind::TimedOut), and the store
    /// makes another connection, up to a [limit](super#connections). If the server claims events after that, the store
    /// releases them: it waits a minute or longer for the server's answer, in the background.
    ///
    /// # Errors
    ///
    /// If it is less than a millisecond.
    pub fn deadline(mut self, deadline: Duration) -> Result<Self, ConfigError> {
        self.connector.deadline = at_least_a_millisecond("deadline", deadline)?;
        Ok(self)
    }

    /// Sets how often expired rows are deleted, at most; once a minute by default. Traffic starts the purge, which runs
    /// in the background on a connection of the pool.
    ///
    /// # Errors
    ///
    /// If it is less than a millisecond.
    pub fn purge_every(mut self, interval: Duration) -> Result<Self, ConfigError> {
        self.purge_every = Some(at_least_a_millisecond("purge_every", interval)?);
        Ok(self)
    }

    /// Leaves expired rows to [`PostgresStore::purge`], or to a job of your own.
    pub fn purge_by_hand(mut self) -> Self {
        self.purge_every = None;
        self
    }

    /// Tells the store that the pool goes through a transaction pooler, which gives each transaction another session:
    /// PgBouncer with `pool_mode = transaction`, Supavisor on its transaction port, RDS Proxy. Off by default;
    /// [`PostgresStore::check`] warns where it seems to be missing.
    ///
    /// Each statement becomes a transaction of its own: `BEGIN` and its settings as `SET LOCAL`, the statement, its
    /// parameters, `COMMIT`. That is four round trips to the pooler in place of one. No setting outlasts the
    /// transaction, and no statement stays prepared, [`complete_in`](crate::WebhookEvent::complete_in) included.
    /// Workers are woken by events that their own process accepts, and by their [poll
    /// interval](crate::Worker::poll_every) otherwise, unless there is a [direct](Self::direct) connection.
    ///
    /// Handlers that use such a pool themselves have to adapt their queries: see the [module](super) for how.
    pub fn pooled(mut self) -> Self {
        self.connector.pooled = true;
        self
    }

    /// Names the server itself, past the pooler; not known by default. Where a worker runs, the store keeps one session
    /// there for `LISTEN`, and [`PostgresStore::migrate`] uses another one while it runs.
    pub fn direct(mut self, options: PgConnectOptions) -> Self {
        self.connector.direct = Some(options);
        self
    }

    /// Sets how long an inbox keeps heads and bodies of completed events; by default as long as their records.
    ///
    /// After this time, counted from the completion on the server's clock, [`get`](crate::queue::Queue::get) and
    /// [`requeue`](crate::queue::Queue::requeue) treat them as gone, and the next purge removes them from the table.
    /// The record stays until its retention is over, and still recognises duplicates. With zero, the statement that
    /// completes an event removes them, [`complete_in`](crate::WebhookEvent::complete_in) included;
    /// [`COMPLETE_SQL`](super::COMPLETE_SQL) does not. Waiting, running and dead events keep theirs.
    pub fn keep_completed_bodies(mut self, time: Duration) -> Self {
        self.completed_body_retention = Some(time);
        self
    }

    /// Builds the store. It connects when it is first used.
    #[must_use]
    pub fn build(self) -> PostgresStore {
        let statements = Statements::new(self.table, self.completed_body_retention.map(delay_milliseconds));
        PostgresStore::from_parts(self.connector, statements, self.purge_every)
    }
}

impl fmt::Debug for PostgresStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStoreBuilder")
            .field("table", &format_args!("{}", self.table))
            .field("deadline", &self.connector.deadline)
            .field("purge_every", &self.purge_every)
            .field("completed_body_retention", &self.completed_body_retention)
            .field("pooled", &self.connector.pooled)
            .field("direct", &self.connector.direct.is_some())
            .finish_non_exhaustive()
    }
}

fn at_least_a_millisecond(what: &str, time: Duration) -> Result<Duration, ConfigError> {
    if time < Duration::from_millis(1) {
        return Err(ConfigError::new(
            ConfigErrorKind::Duration,
            format!("{what}: at least a millisecond, not {time:?}"),
        ));
    }
    Ok(time)
}
