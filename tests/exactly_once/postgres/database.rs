//! A database of the test's own on the one server of all of them.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::{PgPool, Postgres, Transaction};
use tower_webhook::store::PostgresStore;

use crate::support::servers::postgres::PostgresServer;

static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);
static DATABASES: AtomicUsize = AtomicUsize::new(0);

pub(crate) type Tx = Transaction<'static, Postgres>;

#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) pool: PgPool,
    pub(crate) store: PostgresStore,
}

impl Database {
    pub(crate) async fn new() -> Self {
        let name = format!("exactly_once_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let create = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}")));
        create.execute(&mut SERVER.connect().await).await.expect("a database");
        Self::over(PgPool::connect_with(SERVER.options().database(&name)).await.expect("a server")).await
    }

    /// On a server of the test's own.
    pub(crate) async fn over(pool: PgPool) -> Self {
        let store = PostgresStore::new(pool.clone());
        store.migrate().await.expect("a table");
        sqlx::query("CREATE TABLE payments (id text NOT NULL)").execute(&pool).await.expect("a table");
        Self { pool, store }
    }

    /// Another way to the same database.
    pub(crate) async fn pool_at(&self, address: SocketAddr) -> PgPool {
        let name = self.pool.connect_options().get_database().expect("a name").to_owned();
        PgPool::connect_with(SERVER.options_at(address).database(&name)).await.expect("a server")
    }

    pub(crate) fn server() -> SocketAddr {
        SERVER.address()
    }

    pub(crate) async fn begin(&self) -> sqlx::Result<Tx> {
        self.pool.begin().await
    }

    /// All leases are over.
    pub(crate) async fn lapse(&self) {
        let lapse = "UPDATE webhook_events SET lease_until = lease_until - interval '1 hour'";
        sqlx::query(lapse).execute(&self.pool).await.expect("a table");
    }
}

crate::exactly_once::ledger::impl_ledger!(Database, Tx);
