//! A directory for one test's database, and what the tests look into it with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{Sqlite, Transaction};
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, SqliteStore};

use crate::support::directory::Directory;
pub(crate) use crate::support::key;
pub(crate) use crate::support::wait::{PATIENCE, eventually};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A directory of its own.
pub(crate) struct Fixture {
    directory: Directory,
}

impl Fixture {
    /// In memory: few of these tests are about disks.
    pub(crate) fn new() -> Self {
        Self { directory: Directory::in_memory("sqlite") }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory().join("webhooks.db")
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path()).await.expect("a store")
    }

    /// The user's own connections to the same database.
    pub(crate) async fn pool(&self) -> SqlitePool {
        pool_at(&self.path()).await
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
