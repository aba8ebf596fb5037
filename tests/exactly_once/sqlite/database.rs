//! A file of the test's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{Sqlite, Transaction};
use tower_webhook::store::SqliteStore;

static FILES: AtomicUsize = AtomicUsize::new(0);

pub(crate) type Tx = Transaction<'static, Sqlite>;

#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) pool: SqlitePool,
    pub(crate) store: SqliteStore,
    _directory: Arc<Directory>,
}

impl Database {
    pub(crate) async fn new() -> Self {
        let directory = Directory::new();
        let options = SqliteConnectOptions::new().filename(directory.0.join("test.db")).create_if_missing(true);
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

/// Gone when dropped.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new() -> Self {
        let name =
            format!("tower-webhook-exactly-once-{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a writable directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
