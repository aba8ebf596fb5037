//! A failover to a replica that has confirmed every event.

use std::sync::Mutex;
use std::time::Duration;

use tower_webhook::queue::{LeaseRequest, Queue};
use tower_webhook::store::{Claim, Completion, Hold, RedisStore, Store, StoreError};

use super::fixture::{LEASE, PREFIX, RETENTION, accept, accept_all, ids, lease};
use crate::redis::receiver::{eventually, key};
use crate::redis::sentinel;
use crate::support::servers::redis::RedisServer;

#[tokio::test(flavor = "multi_thread")]
async fn accepted_events_outlive_their_primary_and_completed_ones_stay_so() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    let sentinel = RedisServer::sentinel_of(&primary);
    let builder = || RedisStore::builder(sentinel::pool(&sentinel)).prefix(PREFIX);
    let store = builder().replicas(1).replica_timeout(Duration::from_secs(30)).build();
    accept_all(&store, (0..20).map(|n| n.to_string())).await;
    for leased in &lease(&store, 5).await {
        let hold = store.complete(&leased.claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
        assert_eq!(hold.expect("an answer"), Hold::Held);
    }
    primary.kill();
    replica.wait_until(&["INFO", "replication"], "role:master");

    // The same store: it follows the Sentinel by itself.
    let rest = answered(async || store.lease(&LeaseRequest::new(100, LEASE)).await).await;
    let expected: Vec<_> = (5..20).map(|n| n.to_string()).collect();
    assert_eq!(ids(&rest), expected);
    let other = builder().build();
    for (id, completed) in [("0", true), ("19", false)] {
        let duplicate = answered(async || accept(&other, &key(id), "test.event").await).await;
        assert_eq!(matches!(duplicate, Claim::Completed { .. }), completed, "{id}: {duplicate:?}");
        assert_eq!(matches!(duplicate, Claim::Accepted { .. }), !completed, "{id}: {duplicate:?}");
    }
}

/// The first answer that is no error.
async fn answered<T>(ask: impl AsyncFn() -> Result<T, StoreError>) -> T {
    let answer = Mutex::new(None);
    eventually("an answer", async || {
        let now = ask().await.ok();
        let mut answer = answer.lock().expect("no panic");
        *answer = now;
        answer.is_some()
    })
    .await;
    answer.into_inner().expect("no panic").expect("an answer")
}
