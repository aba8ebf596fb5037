//! A directory for one test's database, and what the tests look into it with.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, SqliteStore};

pub const LEASE: Duration = Duration::from_secs(30);
pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// A directory of its own, removed when dropped.
pub struct Bed {
    directory: PathBuf,
}

impl Bed {
    pub fn new() -> Self {
        // In memory where there is such a thing: what is tested here is not the disk.
        let memory = PathBuf::from("/dev/shm");
        Self::below(&if memory.is_dir() { memory } else { std::env::temp_dir() })
    }

    pub fn below(directory: &Path) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = directory.join(format!("tower-webhook-sqlite-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the database");
        Self { directory }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join("webhooks.db")
    }

    pub async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.path()).await.expect("a store")
    }

    /// The user's own connections to the same database.
    pub async fn pool(&self) -> SqlitePool {
        let options = SqliteConnectOptions::new().filename(self.path()).create_if_missing(true);
        SqlitePoolOptions::new().max_connections(4).connect_with(options).await.expect("a pool")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn key(id: &str) -> EventKey {
    EventKey::new("/webhooks", None, id)
}

pub fn claim(key: &EventKey) -> ClaimRequest<'_> {
    ClaimRequest::new(key, ClaimToken::random(), LEASE)
}

pub fn done() -> Completion<'static> {
    Completion::succeeded("200 OK", DAY)
}

pub fn is_fresh(claim: Claim) -> bool {
    matches!(claim, Claim::Fresh { .. })
}
