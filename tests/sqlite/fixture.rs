//! A directory for one test's database, and what the tests look into it with.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{Sqlite, Transaction};
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, SqliteStore};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// Nothing takes this long; it only turns a hang into a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of its own, removed when dropped.
pub(crate) struct Fixture {
    directory: PathBuf,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // In memory where there is such a thing: few of these tests are about disks.
        let memory = PathBuf::from("/dev/shm");
        let below = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let directory = below.join(format!("tower-webhook-sqlite-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the database");
        Self { directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("webhooks.db")
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path()).await.expect("a store")
    }

    /// The user's own connections to the same database.
    pub(crate) async fn pool(&self) -> SqlitePool {
        pool_at(&self.path()).await
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) async fn pool_at(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    SqlitePoolOptions::new().max_connections(4).connect_with(options).await.expect("a pool")
}

/// A handler's transaction, which has the write lock.
pub(crate) async fn write_lock(pool: &SqlitePool) -> Transaction<'static, Sqlite> {
    pool.begin_with("BEGIN IMMEDIATE").await.expect("a transaction")
}

pub(crate) fn key(id: &str) -> EventKey {
    EventKey::new("/webhooks", None, id)
}

/// A claim by somebody new.
pub(crate) fn claim(key: &EventKey) -> ClaimRequest<'_> {
    ClaimRequest::new(key, ClaimToken::random(), LEASE)
}

pub(crate) fn done() -> Completion<'static> {
    Completion::succeeded("200 OK", DAY)
}

pub(crate) fn is_fresh(claim: Claim) -> bool {
    matches!(claim, Claim::Fresh { .. })
}

/// Tries until it is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
