//! A file of the test's own.

use std::sync::Arc;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{Sqlite, Transaction};
use tower_webhook::store::SqliteStore;

use crate::support::directory::Directory;

pub(crate) type Tx = Transaction<'static, Sqlite>;

#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) pool: SqlitePool,
    pub(crate) store: SqliteStore,
    _directory: Arc<Directory>,
}

impl Database {
    pub(crate) async fn new() -> Self {
        let directory = Directory::new("exactly-once");
        let options = SqliteConnectOptions::new().filename(directory.path().join("test.db")).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.expect("a file");
        let store = SqliteStore::new(&pool).await.expect("a store");
        sqlx::query("CREATE TABLE payments (id TEXT NOT NULL)").execute(&pool).await.expect("a table");
        Self { pool, store, _directory: Arc::new(directory) }
    }

    pub(crate) async fn begin(&self) -> sqlx::Result<Tx> {
        self.pool.begin_with("BEGIN IMMEDIATE").await
    }

    /// All leases are over.
    pub(crate) async fn lapse(&self) {
        sqlx::query("UPDATE webhook_events SET lease_until = 0").execute(&self.pool).await.expect("a table");
    }
}

crate::exactly_once::ledger::impl_ledger!(Database, Tx);
