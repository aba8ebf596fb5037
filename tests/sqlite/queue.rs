//! What the tests of the inbox are written in.

use std::time::Duration;

use sqlx::SqlitePool;
use tower_webhook::EventKey;
use tower_webhook::queue::{LeaseRequest, Leased, Order, Queue, StoredRequest};
use tower_webhook::store::{Completion, Hold, SqliteStore, Store};
use tower_webhook::testing::ManualClock;

use crate::sqlite::fixture::{Fixture, LEASE, claim, is_fresh, key};

pub(crate) const NOW: u64 = 1_700_000_000;

pub(crate) fn stored_request(body: &str) -> StoredRequest {
    StoredRequest::new("POST / HTTP/1.1", body.to_owned(), std::time::UNIX_EPOCH + Duration::from_secs(NOW))
}

pub(crate) async fn accept(store: &SqliteStore, id: &str) -> EventKey {
    accept_in(store, id, None).await
}

pub(crate) async fn accept_in(store: &SqliteStore, id: &str, order: Option<Order>) -> EventKey {
    let (key, stored_request) = (key(id), stored_request(id));
    let stored_request = order.map_or(stored_request.clone(), |order| stored_request.ordered(order));
    assert!(is_fresh(store.enqueue(&claim(&key), &stored_request).await.expect("an answer")), "{id}");
    key
}

pub(crate) async fn lease(store: &SqliteStore, limit: usize) -> Vec<Leased> {
    store.lease(&LeaseRequest::new(limit, LEASE)).await.expect("an answer")
}

pub(crate) async fn lease_one(store: &SqliteStore) -> Leased {
    let mut leased = lease(store, 1).await;
    assert_eq!(leased.len(), 1, "something is due");
    leased.remove(0)
}

pub(crate) async fn complete(store: &SqliteStore, leased: &Leased, retention: Duration) {
    let done = Completion::succeeded("200 OK", retention);
    assert_eq!(store.complete(&leased.claim(LEASE), &done).await.expect("an answer"), Hold::Held);
}

pub(crate) async fn complete_in(connection: &mut sqlx::SqliteConnection, leased: &Leased) {
    let completed = sqlx::query(tower_webhook::store::sqlite::COMPLETE_SQL)
        .bind(leased.key.as_str())
        .bind(&leased.token.as_bytes()[..])
        .bind("200 OK")
        .bind(1_000_000_i64)
        .execute(connection);
    assert_eq!(completed.await.expect("a change").rows_affected(), 1);
}

pub(crate) async fn count(pool: &SqlitePool, table: &'static str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
        .fetch_one(pool)
        .await
        .expect("a number")
}

pub(crate) async fn at(fixture: &Fixture, clock: &ManualClock) -> SqliteStore {
    SqliteStore::builder().clock(clock.clone()).open(fixture.path()).await.expect("a store")
}
