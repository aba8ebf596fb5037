//! A lease that took effect, and whose answer never came: its events are put back, and do not wait until it ends.

use std::time::Duration;

use tower_webhook::queue::{LeaseRequest, Queue};
use tower_webhook::store::{PostgresStore, StoreErrorKind};

use super::queue::{KEPT, accept, lease};
use crate::postgres::fixture::{Fixture, WEEK, eventually, key, patient, shared};
use crate::support::proxy::{Proxy, Weather};

async fn is_running(fixture: &Fixture) -> bool {
    fixture.count("SELECT count(*) FROM events WHERE state = 'running'").await == 2
}

/// A table, and a store that reaches it through a proxy.
async fn through_a_proxy(deadline: Duration) -> (Fixture, Proxy, PostgresStore) {
    let (fixture, proxy) = (Fixture::new().await, Proxy::before(shared().address()).await);
    let store =
        patient(&shared().pool_at(proxy.address), &fixture.table).deadline(deadline).expect("a deadline").build();
    (fixture, proxy, store)
}

/// Two events that wait. The store's next lease is a single message, unless the machine is very busy: its statement is prepared.
async fn prepare(fixture: &Fixture, store: &PostgresStore) -> bool {
    fixture.run("DELETE FROM events").await;
    let is_prepared = store.lease(&LeaseRequest::new(10, WEEK)).await.is_ok();
    for id in ["a", "b"] {
        assert_eq!(accept(&fixture.store, &key(id)).await, KEPT);
    }
    is_prepared
}

#[tokio::test]
async fn lease_that_was_answered_too_late_is_put_back() {
    let (fixture, proxy, store) = through_a_proxy(Duration::from_millis(500)).await;
    eventually("a lease takes effect and is not answered", async || {
        proxy.set(Weather::Fair);
        if !prepare(&fixture, &store).await {
            return false;
        }
        proxy.set(Weather::SwallowReplies);
        let late = store.lease(&LeaseRequest::new(10, WEEK)).await.expect_err("no answer");
        assert_eq!(late.kind(), StoreErrorKind::TimedOut);
        is_running(&fixture).await
    })
    .await;
    proxy.set(Weather::Fair);
    put_back(&fixture).await;
}

/// The store asks once more by itself, on another connection, and there is nothing left to lease.
#[tokio::test]
async fn lease_whose_connection_broke_before_the_answer_is_put_back() {
    let (fixture, proxy, store) = through_a_proxy(crate::postgres::fixture::PATIENCE).await;
    let took_effect = async || eventually("it took effect", async || is_running(&fixture).await).await;
    let leasing = loop {
        assert!(prepare(&fixture, &store).await);
        proxy.set(Weather::SwallowReplies);
        let store = store.clone();
        let leasing = tokio::spawn(async move { store.lease(&LeaseRequest::new(10, WEEK)).await });
        // It may be that the statement before it was not answered.
        if tokio::time::timeout(Duration::from_secs(5), took_effect()).await.is_ok() {
            break leasing;
        }
        leasing.abort();
        proxy.cut();
    };
    proxy.cut();
    leasing.await.expect("no panic").expect("an answer");
    put_back(&fixture).await;
}

/// The worker has left, and the way to the server breaks before its events are put back.
#[tokio::test]
async fn lease_whose_worker_left_is_put_back_once_the_server_can_be_asked() {
    let (fixture, proxy, store) = through_a_proxy(Duration::from_secs(5)).await;
    eventually("prepared", async || prepare(&fixture, &store).await).await;
    let request = LeaseRequest::new(10, WEEK);
    let mut leasing = Box::pin(store.lease(&request));
    tokio::select! {
        biased;
        _ = &mut leasing => panic!("answered before it was asked"),
        () = std::future::ready(()) => {}
    }
    eventually("it took effect", async || is_running(&fixture).await).await;
    proxy.set(Weather::Cut);
    drop(leasing);
    // The store tries to put them back, and cannot.
    eventually("it cannot be asked", async || store.waiting(1).await.is_err()).await;
    proxy.set(Weather::Fair);
    put_back(&fixture).await;
}

/// As if the events had never been leased.
async fn put_back(fixture: &Fixture) {
    let waiting = "SELECT count(*) FROM events WHERE state = 'accepted' AND attempts = 0 AND failures IS NULL";
    eventually("put back", async || fixture.count(waiting).await == 2).await;
    let leased = lease(&fixture.store, 10).await;
    assert_eq!(leased.iter().map(|leased| leased.key.id()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(leased.iter().all(|leased| leased.attempt == 1));
    assert!(lease(&fixture.store, 10).await.is_empty());
}
