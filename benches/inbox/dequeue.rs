//! What leasing a batch costs on Postgres: with a thousand events waiting and with a million, beside a million events of another kind,
//! and with an old snapshot that keeps a million events in the index that ended since.

use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;
use tower_webhook::queue::{KindLimits, LeaseRequest, Queue};
use tower_webhook::store::{Completion, PostgresStore};

use crate::Effort;
use crate::events::accepts;
use crate::stores::Stores;
use crate::support::report::{Report, median};

const BATCH: usize = 10;

pub(crate) async fn measure(report: &mut Report, effort: Effort, stores: &Stores) {
    let many = (1_000_000.0 * effort.operations) as usize;
    let (few, crowded) = (stores.table("few_waiting").await, stores.table("many_waiting").await);
    accepts(&few, 64, 1_000).await;
    accepts(&crowded, 64, many).await;
    for table in ["few_waiting", "many_waiting"] {
        stores.sql(&format!("VACUUM ANALYZE {table}")).await;
    }
    let mut rounds = Vec::new();
    for _ in 0..effort.rounds * 4 {
        let few = lease_one_batch(&few).await;
        let crowded = lease_one_batch(&crowded).await;
        rounds.push((few, crowded));
    }
    println!("\npostgres, leasing {BATCH} events");
    println!("  {:<34}{:>10.0} µs", "1,000 waiting", median(rounds.iter().map(|round| round.0)));
    println!("  {:<34}{:>10.0} µs", format!("{many} waiting"), median(rounds.iter().map(|round| round.1)));
    report.number("dequeue_1m_vs_1k", median(rounds.iter().map(|round| round.1 / round.0)));
}

/// Beside so many due events of `/b`, what is leased for `/a`, and what is leased of other types, in milliseconds.
pub(crate) async fn measure_other_kinds(report: &mut Report, effort: Effort, stores: &Stores) {
    let many = (1_000_000.0 * effort.operations) as usize;
    let store = stores.table("other_kinds").await;
    due(stores, "other_kinds", many).await;
    stores.sql("VACUUM ANALYZE other_kinds").await;
    let endpoints = ["/a".into()];
    let full = KindLimits::new(BATCH).with("t", 0);
    let mut of_a = LeaseRequest::new(BATCH, Duration::from_secs(600));
    of_a.endpoints = &endpoints;
    let mut of_others = LeaseRequest::new(BATCH, Duration::from_secs(600));
    of_others.per_type = Some(&full);
    println!("\npostgres, leasing {BATCH} events beside {many} due ones of another kind");
    for (name, what, request) in [
        ("lease_other_endpoint_1m_ms", "another endpoint", of_a),
        ("lease_full_type_1m_ms", "a type without room", of_others),
    ] {
        let mut times = Vec::new();
        for round in 0..effort.rounds * 20 {
            let keys = format!("'2.0:/a//{name} {round} ' || n, 'other'");
            insert(stores, "other_kinds", &keys, "'/a'", BATCH).await;
            let begun = Instant::now();
            let leased = store.lease(&request).await.expect("events");
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            assert_eq!(leased.len(), BATCH);
        }
        let time = median(times.into_iter());
        println!("  {what:<34}{time:>10.2} ms");
        report.number(name, time);
    }
}

/// What an empty lease costs, in milliseconds, with so many events that ended while a snapshot was open.
pub(crate) async fn measure_old_snapshot(report: &mut Report, effort: Effort, stores: &Stores) {
    let many = (1_000_000.0 * effort.operations) as usize;
    let store = stores.table("old_snapshot").await;
    due(stores, "old_snapshot", many).await;
    let mut backup = stores.pool.begin().await.expect("a transaction");
    let open = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    sqlx::raw_sql(open).execute(&mut *backup).await.expect("a snapshot");
    stores.sql("UPDATE old_snapshot SET state = 'running', due_at = due_at + interval '30 s'").await;
    stores.sql("UPDATE old_snapshot SET state = 'completed', due_at = NULL").await;
    // The server tells how many rows are dead a second later; the first leases find out how much they cost.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut times = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        let _ = store.lease(&LeaseRequest::new(BATCH, Duration::from_secs(600))).await;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    backup.rollback().await.expect("the end of the snapshot");
    let (first, worst) = (times[0], times[100..].iter().copied().fold(0.0, f64::max));
    let time = median(times[100..].iter().copied());
    println!("\npostgres, leasing nothing, {many} events ended since an old snapshot");
    println!("  first {first:.1} ms, then {time:.2} ms, {worst:.1} ms at the most");
    report.number("lease_old_snapshot_1m_ms", time);
}

/// Has so many events of `/b` be due.
async fn due(stores: &Stores, table: &str, many: usize) {
    insert(stores, table, "'2.0:/b//' || n, 't'", "'/b'", many).await;
}

async fn insert(stores: &Stores, table: &str, key_and_type: &str, endpoint: &str, many: usize) {
    let sql = format!(
        "INSERT INTO {table} (key, event_type, state, token, lease_until, received_at, attempts, fingerprint, arrival, endpoint,
                              due_at, head, body)
         SELECT {key_and_type}, 'accepted', '', now(), now(), 0, 0, nextval('{table}_arrivals'), {endpoint},
                now() - interval '1 minute' + n * interval '1 microsecond', 'head', repeat('x', 200)::bytea
           FROM generate_series(1, {many}) n"
    );
    sqlx::query(AssertSqlSafe(sql)).execute(&stores.pool).await.expect("events");
}

/// The median of several leases, in microseconds. What was leased is completed, outside of the timing, and as many accepted.
async fn lease_one_batch(inbox: &PostgresStore) -> f64 {
    let mut times = Vec::new();
    for _ in 0..15 {
        let begun = Instant::now();
        let leased = inbox.lease(&LeaseRequest::new(BATCH, Duration::from_secs(600))).await.expect("events");
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        assert_eq!(leased.len(), BATCH);
        for event in &leased {
            let done = Completion::succeeded("OK", Duration::from_secs(600));
            let _ = tower_webhook::store::Store::complete(inbox, &event.claim(Duration::from_secs(600)), &done).await;
        }
        accepts(inbox, BATCH, BATCH).await;
    }
    median(times.into_iter())
}
