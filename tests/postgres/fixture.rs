//! Tables on the server that most tests share, and what looks into them from outside.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row};
use tower_webhook::EventKey;
use tower_webhook::store::{ClaimRequest, ClaimToken, PostgresStore, PostgresStoreBuilder};

pub(crate) use crate::support::key;
use crate::support::servers::pgbouncer::Pgbouncer;
use crate::support::servers::postgres::{PostgresServer, Settings};
pub(crate) use crate::support::wait::{PATIENCE, eventually};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// A table of a test's own.
pub(crate) struct Fixture {
    pub(crate) pool: PgPool,
    pub(crate) table: String,
    pub(crate) store: PostgresStore,
}

impl Fixture {
    /// On the shared server.
    pub(crate) async fn new() -> Self {
        Self::on(shared()).await
    }

    pub(crate) async fn on(server: &PostgresServer) -> Self {
        Self::over(server.pool()).await
    }

    pub(crate) async fn over(pool: PgPool) -> Self {
        let table = new_table();
        let store = patient(&pool, &table).build();
        store.migrate().await.expect("a table");
        Self { pool, table, store }
    }

    /// On the shared server. The store reaches it through a pooler, and the test past it.
    pub(crate) async fn pooled() -> Self {
        let table = new_table();
        let store = patient(&pooler().pool(shared()), &table).pooled().build();
        store.migrate().await.expect("a table");
        Self { pool: shared().pool(), table, store }
    }

    /// Another instance on the same table.
    pub(crate) fn another(&self) -> PostgresStore {
        patient(&self.pool, &self.table).build()
    }

    /// A claim that holds for as long as any test runs.
    pub(crate) fn claim<'a>(&self, key: &'a EventKey, token: ClaimToken) -> ClaimRequest<'a> {
        ClaimRequest::new(key, token, WEEK)
    }

    /// Runs `sql`, with `events` standing for the table; how many rows it changed.
    pub(crate) async fn run(&self, sql: &str) -> u64 {
        let statement = sqlx::raw_sql(AssertSqlSafe(self.about(sql)));
        statement.execute(&self.pool).await.expect("a statement that works").rows_affected()
    }

    /// One number.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        let statement = sqlx::query(AssertSqlSafe(self.about(sql)));
        statement.fetch_one(&self.pool).await.expect("a statement that works").get(0)
    }

    /// How the row of `key` is.
    pub(crate) async fn state(&self, key: &EventKey) -> Option<String> {
        let statement = sqlx::query(AssertSqlSafe(self.about("SELECT state FROM events WHERE key = $1")));
        let row = statement.bind(key.as_str()).fetch_optional(&self.pool).await.expect("a statement that works");
        row.map(|row| row.get(0))
    }

    /// Everything that was to end within this time has ended.
    pub(crate) async fn pass(&self, time: Duration) {
        self.run(&shift(time)).await;
    }

    pub(crate) fn about(&self, sql: &str) -> String {
        sql.replace("events", &self.table)
    }
}

fn new_table() -> String {
    static TABLES: AtomicU32 = AtomicU32::new(0);
    format!("events_{}", TABLES.fetch_add(1, Ordering::Relaxed))
}

/// A statement for [`Fixture::run`] that brings every end nearer.
pub(crate) fn shift(time: Duration) -> String {
    let by = format!("interval '{} milliseconds'", time.as_millis());
    let columns = ["lease_until", "expires_at", "due_at", "was_due_at", "body_until"];
    let shifted = columns.map(|column| format!("{column} = {column} - {by}"));
    format!("UPDATE events SET {}", shifted.join(", "))
}

/// A busy machine is not what most tests are about.
pub(crate) fn patient(pool: &PgPool, table: &str) -> PostgresStoreBuilder {
    let store = PostgresStore::builder(pool.clone()).table(table).expect("a name");
    store.deadline(PATIENCE).expect("a deadline").purge_by_hand()
}

/// The server for tests that leave it alone. It ends with the process.
pub(crate) fn shared() -> &'static PostgresServer {
    static SERVER: LazyLock<PostgresServer> =
        LazyLock::new(|| PostgresServer::start_with(Settings::default().set("fsync=off").set("max_connections=300")));
    &SERVER
}

/// A pooler before the shared server. It ends with the process.
pub(crate) fn pooler() -> &'static Pgbouncer {
    static POOLER: LazyLock<Pgbouncer> = LazyLock::new(|| Pgbouncer::before(shared()));
    &POOLER
}

/// Runs a statement of the test's own; how many rows it changed.
pub(crate) async fn run_on(connection: &mut PgConnection, sql: String) -> u64 {
    let statement = sqlx::raw_sql(AssertSqlSafe(sql));
    statement.execute(connection).await.expect("a statement that works").rows_affected()
}
