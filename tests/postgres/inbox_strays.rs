//! A lease that took effect, and whose answer never came: its events are put back, and do not wait until it ends.

use std::time::Duration;

use tower_webhook::inbox::{Inbox, LeaseRequest};
use tower_webhook::store::{PostgresStore, StoreErrorKind};

use crate::bed::{Bed, WEEK, eventually, key, patient, shared};
use crate::inbox_desk::{KEPT, accept, lease};
use crate::support::proxy::{Proxy, Weather};

async fn is_running(bed: &Bed) -> bool {
    bed.count("SELECT count(*) FROM events WHERE state = 'running'").await == 2
}

/// Events that wait, and a store that reaches the same table through a proxy.
async fn through_a_proxy(deadline: Duration) -> (Bed, Proxy, PostgresStore) {
    let (bed, proxy) = (Bed::new().await, Proxy::before(shared().address()).await);
    let store = patient(&shared().pool_at(proxy.address), &bed.table).deadline(deadline).expect("a deadline").build();
    eventually("connected", async || store.lease(&LeaseRequest::new(10, WEEK)).await.is_ok()).await;
    for id in ["a", "b"] {
        assert_eq!(accept(&bed.store, &key(id)).await, KEPT);
    }
    (bed, proxy, store)
}

#[tokio::test]
async fn lease_that_was_answered_too_late_is_put_back() {
    let (bed, proxy, store) = through_a_proxy(Duration::from_millis(500)).await;
    // On a busy machine it may not even be asked in that time.
    while !is_running(&bed).await {
        proxy.set(Weather::Fair);
        eventually("connected", async || bed.store.waiting(1).await.is_ok()).await;
        proxy.set(Weather::SwallowReplies);
        let late = store.lease(&LeaseRequest::new(10, WEEK)).await.expect_err("no answer");
        assert_eq!(late.kind(), StoreErrorKind::TimedOut);
    }
    proxy.set(Weather::Fair);
    put_back(&bed).await;
}

/// The store asks once more by itself, on another connection, and there is nothing left to lease.
#[tokio::test]
async fn lease_whose_connection_broke_before_the_answer_is_put_back() {
    let (bed, proxy, store) = through_a_proxy(crate::bed::PATIENCE).await;
    proxy.set(Weather::SwallowReplies);
    let leasing = tokio::spawn(async move { store.lease(&LeaseRequest::new(10, WEEK)).await });
    eventually("it took effect", async || is_running(&bed).await).await;
    proxy.cut();
    let leased = leasing.await.expect("no panic").expect("an answer");
    assert!(leased.is_empty(), "{leased:?}");
    put_back(&bed).await;
}

/// As if the events had never been leased.
async fn put_back(bed: &Bed) {
    let waiting = "SELECT count(*) FROM events WHERE state = 'accepted' AND attempts = 0 AND failures IS NULL";
    eventually("put back", async || bed.count(waiting).await == 2).await;
    let leased = lease(&bed.store, 10).await;
    assert_eq!(leased.iter().map(|leased| leased.key.id()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(leased.iter().all(|leased| leased.attempt == 1));
    assert!(lease(&bed.store, 10).await.is_empty());
}
