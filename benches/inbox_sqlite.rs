//! What a lease costs on SQLite while a million events of another kind wait in front:
//! `cargo bench --bench inbox_sqlite --features sqlite`.
//!
//! `--quick` has fewer of them, to try the bench itself. `target/bench/inbox_sqlite.json` gets the figures.

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use support::report::{Report, median};
use tower_webhook::EventKey;
use tower_webhook::queue::{KindLimits, LeaseRequest, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, SqliteStore, Store};

const BATCH: usize = 10;
const LEASE: Duration = Duration::from_secs(600);

/// Events of `/b` that have been due since long ago.
const BACKLOG: &str = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1) \
    INSERT INTO webhook_events (key, event_type, state, token, boot, received_at, attempts, fingerprint, expires_at, version, arrival, \
    endpoint, due_at) SELECT '2.0:/b//' || n, 'slow', 'accepted', randomblob(16), one.boot, one.received_at, 0, 0, one.expires_at, 1, \
    one.arrival + n, '/b', 0 FROM n, (SELECT boot, received_at, expires_at, arrival FROM webhook_events LIMIT 1) AS one";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (many, rounds) = if quick { (20_000, 1) } else { (1_000_000, 5) };
    let (alone, crowded) = (Database::new("alone", 0).await, Database::new("crowded", many).await);
    let mut report = Report::default();
    println!(
        "\nsqlite, leasing {BATCH} events, in microseconds: nothing else waiting, and {many} of another kind in front"
    );
    let (only_a, no_slow) = (["/a".into()], KindLimits::new(BATCH).with("slow", 0));
    for name in ["endpoint", "type"] {
        let mut request = LeaseRequest::new(BATCH, LEASE);
        match name {
            "endpoint" => request.endpoints = &only_a,
            _ => request.per_type = Some(&no_slow),
        }
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push((alone.lease(&request).await, crowded.lease(&request).await));
        }
        let (alone, crowded) = (median(times.iter().map(|time| time.0)), median(times.iter().map(|time| time.1)));
        println!("  {:<34}{alone:>10.0}{crowded:>10.0}", format!("by {name}"));
        report.number(&format!("sqlite_lease_by_{name}_us"), crowded);
    }
    report.print_and_write("inbox_sqlite");
}

struct Database {
    directory: PathBuf,
    store: SqliteStore,
}

impl Database {
    async fn new(name: &str, backlog: i64) -> Self {
        let directory = std::env::temp_dir().join(format!("tower-webhook-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("events.db");
        let store = SqliteStore::open(&path).await.expect("a store");
        let database = Self { directory, store };
        database.accept(1).await;
        let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(path)).await.expect("a pool");
        if backlog > 0 {
            sqlx::query(BACKLOG).bind(backlog).execute(&pool).await.expect("a backlog");
        }
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&pool).await.expect("a checkpoint");
        database
    }

    async fn accept(&self, events: usize) {
        for _ in 0..events {
            let key = EventKey::new("/a", None, &ClaimToken::random().to_string());
            let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE).event_type(Some("quick"));
            let stored_request = StoredRequest::new("head", vec![b'x'; 1024], SystemTime::now());
            let answer = self.store.enqueue(&claim, &stored_request).await.expect("an answer");
            assert!(matches!(answer, Claim::Fresh { .. }));
        }
    }

    /// The median of several leases, in microseconds. What was leased is completed, outside of the timing.
    async fn lease(&self, request: &LeaseRequest<'_>) -> f64 {
        let mut times = Vec::new();
        for _ in 0..15 {
            self.accept(BATCH).await;
            let begun = Instant::now();
            let leased = self.store.lease(request).await.expect("events");
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            assert_eq!(leased.len(), BATCH);
            for event in leased {
                let done = Completion::succeeded("OK", LEASE);
                let completed = self.store.complete(&event.claim(LEASE), &done).await.expect("an answer");
                assert_eq!(completed, Hold::Held);
            }
        }
        median(times.into_iter())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
