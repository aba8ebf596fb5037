//! Events per second out of Postgres, by a worker and by what is usually written: one `SELECT … FOR UPDATE SKIP LOCKED LIMIT 1`
//! per event, the handler inside of its transaction, on as many connections as the worker has handlers.

use std::time::Instant;

use axum::Router;
use axum::routing::post;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tower_webhook::{WebhookEvent, Worker};

use crate::Effort;
use crate::events::accepts;
use crate::stores::Stores;
use crate::support::report::{Report, median};

/// What a worker runs at once unless told otherwise.
const CONCURRENCY: usize = 64;

pub(crate) async fn measure(report: &mut Report, effort: Effort, stores: &Stores) {
    let events = (20_000.0 * effort.operations) as usize;
    stores.sql("CREATE TABLE jobs (id bigserial PRIMARY KEY, body bytea NOT NULL, done_at timestamptz)").await;
    stores.sql("CREATE INDEX jobs_open ON jobs (id) WHERE done_at IS NULL").await;
    let options = PgPoolOptions::new().max_connections(CONCURRENCY as u32).min_connections(CONCURRENCY as u32);
    let pool = options.connect_with((*stores.pool.connect_options()).clone()).await.expect("connections");
    let mut rates = Vec::new();
    for _ in 0..effort.rounds {
        stores.empty().await;
        accepts(&stores.postgres, 64, events).await;
        stores.sql("VACUUM ANALYZE webhook_events").await;
        let ours = drain(stores).await;
        stores.sql("TRUNCATE jobs").await;
        stores
            .sql(&format!("INSERT INTO jobs (body) SELECT repeat('x', 1024)::bytea FROM generate_series(1, {events})"))
            .await;
        stores.sql("VACUUM ANALYZE jobs").await;
        let theirs = one_by_one(&pool, events).await;
        rates.push((ours, theirs));
    }
    println!("\npostgres, events drained per second, {CONCURRENCY} handlers at a time");
    println!("  {:<34}{:>10.0}", "Worker", median(rates.iter().map(|rate| rate.0)));
    println!("  {:<34}{:>10.0}", "SKIP LOCKED LIMIT 1 per event", median(rates.iter().map(|rate| rate.1)));
    report.number("drain_postgres_vs_single", median(rates.iter().map(|rate| rate.0 / rate.1)));
}

async fn drain(stores: &Stores) -> f64 {
    let handlers = Router::new().route("/webhooks", post(async |_: WebhookEvent| {}));
    let worker = Worker::new(stores.postgres.clone(), handlers);
    let begun = Instant::now();
    let drained = worker.run_until_idle().await;
    drained as f64 / begun.elapsed().as_secs_f64()
}

async fn one_by_one(pool: &PgPool, events: usize) -> f64 {
    let begun = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENCY {
        let pool = pool.clone();
        workers.spawn(async move {
            let mut done = 0;
            loop {
                let mut tx = pool.begin().await.expect("a transaction");
                let next = "SELECT id, body FROM jobs WHERE done_at IS NULL ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1";
                let job: Option<(i64, Vec<u8>)> = sqlx::query_as(next).fetch_optional(&mut *tx).await.expect("a row");
                let Some((id, body)) = job else { return done };
                std::hint::black_box(body);
                let finish = "UPDATE jobs SET done_at = now() WHERE id = $1";
                sqlx::query(finish).bind(id).execute(&mut *tx).await.expect("an update");
                tx.commit().await.expect("a commit");
                done += 1;
            }
        });
    }
    let done: usize = workers.join_all().await.into_iter().sum();
    assert_eq!(done, events);
    events as f64 / begun.elapsed().as_secs_f64()
}
