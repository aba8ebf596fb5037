//! Answers to leases that come after the one who asked has given up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tower_webhook::inbox::{Inbox, LeaseRequest};
use tower_webhook::store::{RedisStore, StoreErrorKind};
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{WebhookEvent, Worker};

use super::site::{LEASE, PREFIX, Site, accept_all, ids, store_on};
use crate::harness::pool;
use crate::receiver::eventually;
use crate::support::redis_server::RedisServer;

/// A store that soon gives up waiting.
fn hasty(server: &RedisServer) -> RedisStore {
    RedisStore::builder(pool(server)).prefix(PREFIX).timeout(Duration::from_millis(300)).build()
}

/// A lease that would end in an hour: what is leased soon after was put back.
#[tokio::test(flavor = "multi_thread")]
async fn events_that_come_after_the_stores_timeout_are_put_back() {
    let server = RedisServer::start();
    let (store, hasty) = (store_on(&server), hasty(&server));
    let hour = LeaseRequest::new(10, Duration::from_secs(3600));
    assert!(hasty.lease(&hour).await.expect("an answer").is_empty(), "connected before");
    accept_all(&store, (0..5).map(|n| n.to_string())).await;
    server.freeze();
    let error = hasty.lease(&hour).await.expect_err("the server stands still");
    assert_eq!(error.kind(), StoreErrorKind::TimedOut);
    server.thaw();
    let all = Mutex::new(Vec::new());
    eventually("all of them are leased", async || {
        let leased = store.lease(&LeaseRequest::new(10, LEASE)).await.expect("an answer");
        let mut all = all.lock().expect("no panic");
        all.extend(leased);
        all.len() == 5
    })
    .await;
    let mut all = all.into_inner().expect("no panic");
    assert!(all.iter().all(|leased| leased.attempt == 1 && !leased.started), "{all:?}");
    all.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(ids(&all), ["0", "1", "2", "3", "4"]);
}

/// The worker polls while the server stands still again and again. With a single attempt, an event that was leased and never handed over
/// would be a dead letter without one run.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_stands_still_costs_no_event_its_only_attempt() {
    let server = RedisServer::start();
    let site = Site::on(&server);
    let store = hasty(&server);
    let runs: Arc<Mutex<BTreeMap<String, Vec<Option<u32>>>>> = Arc::default();
    let noted = runs.clone();
    let handlers = Router::new().route(
        "/webhooks",
        post(move |event: WebhookEvent| async move {
            noted.lock().expect("no panic").entry(event.id().to_owned()).or_default().push(event.attempt());
        }),
    );
    let worker = Worker::new(store.clone(), handlers)
        .retries(RetryPolicy::new().max_attempts(1))
        .lease(Duration::from_secs(3600))
        .and_then(|worker| worker.poll_every(Duration::from_millis(20)))
        .expect("a configuration");
    let working = tokio::spawn(worker.run(std::future::pending()));
    const EVENTS: usize = 60;
    for n in 0..EVENTS {
        site.deliver(&n.to_string()).await;
        if n % 10 == 9 {
            server.freeze();
            // As long as it takes others to give up.
            for _ in 0..2 {
                assert!(store.counts().await.is_err(), "the server stands still");
            }
            server.thaw();
        }
    }
    eventually("all have run", async || runs.lock().expect("no panic").len() == EVENTS).await;
    eventually("all are completed", async || {
        store.counts().await.is_ok_and(|counts| counts.completed == EVENTS as u64)
    })
    .await;
    working.abort();
    for (id, attempts) in &*runs.lock().expect("no panic") {
        assert_eq!(attempts, &[Some(1)], "{id}");
    }
    let counts = store.counts().await.expect("an answer");
    assert_eq!((counts.dead, counts.waiting, counts.running), (0, 0, 0));
}
