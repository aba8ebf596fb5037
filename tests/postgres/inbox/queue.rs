//! What the tests of the inbox share.

use std::time::{Duration, SystemTime};

use tower_webhook::EventKey;
use tower_webhook::queue::{LeaseRequest, Leased, Order, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, PostgresStore, Store, StoreError};

use crate::postgres::fixture::{LEASE, WEEK};

pub(crate) const ACCEPTED: Claim = Claim::Accepted { same_body: true };
pub(crate) const KEPT: Claim = Claim::Fresh { attempt: None };

pub(crate) fn stored_request(key: &EventKey) -> StoredRequest {
    let received_at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    StoredRequest::new("POST /webhooks", format!("the body of {}", key.id()), received_at)
}

pub(crate) async fn try_accept(store: &PostgresStore, key: &EventKey) -> Result<Claim, StoreError> {
    store.enqueue(&ClaimRequest::new(key, ClaimToken::random(), LEASE), &stored_request(key)).await
}

pub(crate) async fn accept(store: &PostgresStore, key: &EventKey) -> Claim {
    try_accept(store, key).await.expect("an answer")
}

pub(crate) async fn accept_ordered(store: &PostgresStore, key: &EventKey, order: Order) {
    let request = ClaimRequest::new(key, ClaimToken::random(), LEASE);
    assert_eq!(store.enqueue(&request, &stored_request(key).ordered(order)).await.expect("an answer"), KEPT);
}

pub(crate) async fn lease(store: &PostgresStore, limit: usize) -> Vec<Leased> {
    store.lease(&LeaseRequest::new(limit, LEASE)).await.expect("an answer")
}

/// The only event that is to be leased.
pub(crate) async fn lease_one(store: &PostgresStore) -> Leased {
    let mut leased = lease(store, 10).await;
    assert_eq!(leased.len(), 1, "{leased:?}");
    leased.remove(0)
}

pub(crate) async fn complete(store: &PostgresStore, leased: &Leased) {
    let done = Completion::succeeded("200 OK", WEEK);
    assert_eq!(store.complete(&leased.claim(LEASE), &done).await.expect("an answer"), Hold::Held);
}
