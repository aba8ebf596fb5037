//! Postgres, against `pgbench` doing the same insert. `synchronous_commit` is on, as it is unless told otherwise.

use std::process::Command;

use sqlx::PgPool;
use tower_webhook::store::PostgresStore;

use crate::servers::postgres::PostgresServer;
use crate::support::load::{self, id};
use crate::support::report::{Report, median};
use crate::{Effort, sockets};

/// The row that a claim writes.
const INSERT: &str = r"\set n random(1, 9000000000000000000)
INSERT INTO webhook_events (key, event_type, state, token, lease_until, received_at, attempts, fingerprint)
VALUES ('16.0:/webhooks/stripe//evt_1NG8Du' || :n, NULL, 'running', decode('00112233445566778899aabbccddeeff', 'hex'),
        clock_timestamp() + interval '10 minutes', clock_timestamp(), 1, 0)
ON CONFLICT (key) DO NOTHING RETURNING key;
";

pub(crate) async fn measure(report: &mut Report, effort: Effort) {
    let server = PostgresServer::start();
    let pool = server.pool();
    let store = PostgresStore::new(pool.clone());
    store.migrate().await.expect("a table");
    for (concurrency, name, operations) in
        [(64, "postgres_64_vs_pgbench", 60_000.0), (1, "postgres_1_vs_pgbench", 3_000.0)]
    {
        let operations = (operations * effort.operations) as usize;
        let mut rates = Vec::new();
        for _ in 0..effort.rounds {
            truncate(&pool).await;
            let ours = load::claims(&store, concurrency, operations).await;
            truncate(&pool).await;
            let theirs = pgbench(&server, concurrency, effort);
            rates.push((ours.per_second, theirs, ours.percentile(0.5)));
        }
        println!("\npostgres, claims per second, {concurrency} at a time");
        println!(
            "  {:<34}{:>10.0}   p50 {:.0} µs",
            "PostgresStore",
            median(rates.iter().map(|rate| rate.0)),
            median(rates.iter().map(|rate| rate.2))
        );
        println!("  {:<34}{:>10.0}", "pgbench, the same insert", median(rates.iter().map(|rate| rate.1)));
        report.number(name, median(rates.iter().map(|rate| rate.0 / rate.1)));
    }
    remembering(report, effort, &pool).await;
    sockets::measure("postgres", effort, &store).await;
}

/// Two tables, one with few events and one with many.
async fn remembering(report: &mut Report, effort: Effort, pool: &PgPool) {
    let many = (1_000_000.0 * effort.remembered) as u64;
    let (few, crowded) = (filled(pool, "few", 10_000).await, filled(pool, "many", many).await);
    let operations = (40_000.0 * effort.operations) as usize;
    let mut rates = Vec::new();
    for _ in 0..effort.rounds {
        let rate = async |store, table| {
            load::claims_and_forget(store, 64, operations, async |_| forget(pool, table).await).await
        };
        rates.push((rate(&few, "few").await, rate(&crowded, "many").await));
    }
    println!("\npostgres, claims per second, 64 at a time");
    println!("  {:<34}{:>10.0}", "10,000 remembered", median(rates.iter().map(|rate| rate.0)));
    println!("  {:<34}{:>10.0}", format!("{many} remembered"), median(rates.iter().map(|rate| rate.1)));
    report.number("postgres_1m_vs_10k", median(rates.iter().map(|rate| rate.0 / rate.1)));
}

/// A table of its own with this many completed events.
async fn filled(pool: &PgPool, table: &str, events: u64) -> PostgresStore {
    let store = PostgresStore::builder(pool.clone()).table(table).expect("a name").build();
    store.migrate().await.expect("a table");
    let keys: Vec<String> = (0..events).map(|n| format!("16.0:/webhooks/stripe//{}", id(u64::MAX - n))).collect();
    let insert = format!(
        "INSERT INTO {table} (key, state, token, lease_until, received_at, processed_at, attempts, summary, fingerprint, expires_at)
         SELECT key, 'completed', decode(md5(key), 'hex'), now(), now(), now(), 1, 'OK', 0, now() + interval '7 days'
         FROM unnest($1::text[]) AS key"
    );
    for chunk in keys.chunks(50_000) {
        sqlx::query(sqlx::AssertSqlSafe(&*insert)).bind(chunk).execute(pool).await.expect("rows");
    }
    sqlx::query(sqlx::AssertSqlSafe(format!("VACUUM ANALYZE {table}"))).execute(pool).await.expect("statistics");
    store
}

/// Takes the claims back, and the room that they took.
async fn forget(pool: &PgPool, table: &str) {
    for statement in [format!("DELETE FROM {table} WHERE state = 'running'"), format!("VACUUM {table}")] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(pool).await.expect("a table");
    }
}

async fn truncate(pool: &PgPool) {
    sqlx::query("TRUNCATE webhook_events").execute(pool).await.expect("a table");
}

/// Transactions per second by the engine's own tool.
fn pgbench(server: &PostgresServer, clients: usize, effort: Effort) -> f64 {
    let script = std::env::temp_dir().join(format!("tower-webhook-pgbench-{}.sql", std::process::id()));
    std::fs::write(&script, INSERT).expect("a writable directory");
    let seconds = (3.0 * effort.operations).max(1.0).to_string();
    let output = Command::new("pgbench")
        .args(["-n", "-M", "prepared", "-j", "2", "-c", &clients.to_string(), "-T", &seconds, "-f"])
        .arg(&script)
        .arg(server.url())
        .output()
        .expect("pgbench: apt-get install postgresql");
    let _ = std::fs::remove_file(script);
    let text = String::from_utf8(output.stdout).expect("text");
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.unwrap_or_else(|| panic!("not what pgbench prints: {text}{}", String::from_utf8_lossy(&output.stderr)))
}
