//! How long an event waits for an idle worker: from the answer to its acceptance until its handler runs. The worker is on a
//! store of its own, as one in another process is.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use deadpool_redis::{Config, Runtime};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower_webhook::queue::Queue;
use tower_webhook::store::{PostgresStore, RedisStore};
use tower_webhook::{WebhookEvent, Worker};

use crate::Effort;
use crate::events::accept_new;
use crate::stores::Stores;
use crate::support::report::{Report, median};

pub(crate) async fn measure(report: &mut Report, effort: Effort, stores: &Stores) {
    let events = (400.0 * effort.operations).max(20.0) as usize;
    println!("\npick-up by an idle worker on a store of its own");
    stores.empty().await;
    let elsewhere = PostgresStore::new(stores.pool.clone());
    one(report, "postgres", &stores.postgres, elsewhere, events).await;
    let pool = Config::from_url(stores.redis_url()).create_pool(Some(Runtime::Tokio1)).expect("a pool");
    one(report, "redis", &stores.redis, RedisStore::new(pool), events).await;
}

async fn one(report: &mut Report, name: &str, inbox: &impl Queue, elsewhere: impl Queue, events: usize) {
    let (tell, mut told) = mpsc::unbounded_channel();
    let handler = async move |_: WebhookEvent| tell.send(Instant::now()).expect("the bench listens");
    let handlers = Router::new().route("/webhooks", post(handler));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(Worker::new(elsewhere, handlers).run(async { _ = stopped.await }));
    let mut times = Vec::new();
    for n in 0..events {
        // Idle for some time, and never in step with the worker's polling.
        tokio::time::sleep(Duration::from_micros(10_000 + (n as u64 * 777) % 9_000)).await;
        accept_new(inbox).await;
        let accepted = Instant::now();
        let begun = told.recv().await.expect("it runs");
        times.push(begun.saturating_duration_since(accepted).as_secs_f64() * 1e3);
    }
    drop(stop);
    worker.await.expect("no panic");
    let p50 = median(times.iter().copied());
    times.sort_by(f64::total_cmp);
    println!("  {name:<14} p50 {p50:>6.2} ms, p99 {:>6.2} ms", times[times.len() * 99 / 100]);
    report.number(&format!("pickup_p50_ms_{name}"), p50);
}
