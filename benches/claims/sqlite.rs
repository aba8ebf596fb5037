//! SQLite, against one transaction per claim.

use std::path::PathBuf;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqliteConnection};
use tower_webhook::store::{ClaimToken, SqliteStore};

use crate::Effort;
use crate::support::load;
use crate::support::report::{Report, median};

pub(crate) async fn measure(report: &mut Report, effort: Effort) {
    let directory = Directory::new();
    let path = directory.0.join("events.db");
    let store = SqliteStore::open(&path).await.expect("a store");
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let mut by_hand = options.connect().await.expect("a connection");
    let mut log = options.connect().await.expect("a connection");
    let operations = (20_000.0 * effort.operations) as usize;
    let mut rates = Vec::new();
    for _ in 0..effort.rounds {
        let few = operations / 20;
        let ours = rate(&mut log, operations, load::claims(&store, 64, operations)).await;
        let single = rate(&mut log, few, singles(&mut by_hand, few)).await;
        let alone = rate(&mut log, few, load::claims(&store, 1, few)).await;
        rates.push((ours, single, alone));
    }
    println!("\nsqlite, claims per second");
    println!("  {:<34}{:>10.0}", "SqliteStore, 64 at a time", median(rates.iter().map(|rate| rate.0)));
    println!("  {:<34}{:>10.0}", "one transaction per claim", median(rates.iter().map(|rate| rate.1)));
    println!("  {:<34}{:>10.0}", "SqliteStore, one at a time", median(rates.iter().map(|rate| rate.2)));
    report.number("sqlite_64_vs_single", median(rates.iter().map(|rate| rate.0 / rate.1)));
}

/// How many per second, with what is in the log written back: nobody leaves that to the next.
async fn rate<T>(log: &mut SqliteConnection, operations: usize, work: impl Future<Output = T>) -> f64 {
    let begun = std::time::Instant::now();
    work.await;
    let (is_busy, ..): (i64, i64, i64) =
        sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(log).await.expect("an empty log");
    assert_eq!(is_busy, 0);
    operations as f64 / begun.elapsed().as_secs_f64()
}

/// The same row, as one would write it by hand.
async fn singles(connection: &mut SqliteConnection, operations: usize) {
    for _ in 0..operations {
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await.expect("the lock");
        sqlx::query(
            "INSERT INTO webhook_events
                 (key, state, token, boot, lease_until, received_at, attempts, fingerprint, expires_at, version)
             VALUES ($1, 'running', $2, '', 0, 0, 1, 0, 9000000000000, 1) ON CONFLICT DO NOTHING",
        )
        .bind(load::new_key().as_str())
        .bind(ClaimToken::random().as_bytes().as_slice())
        .execute(&mut *connection)
        .await
        .expect("a row");
        sqlx::query("COMMIT").execute(&mut *connection).await.expect("the commit");
    }
}

/// Gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tower-webhook-claims-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a writable directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
