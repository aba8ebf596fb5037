//! A worker's handler that completes its event in a transaction of its own: while that is open, it delays nobody.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgTransaction};
use tower_webhook::queue::{EventState, Leased, Queue};
use tower_webhook::store::{Claim, Completion, Hold, PostgresStore, Store, StoreErrorKind};

use super::queue::{ACCEPTED, KEPT, accept, complete, lease, lease_one};
use crate::postgres::fixture::{Fixture, LEASE, WEEK, key, shared};

/// Runs the statement that the store lends; how many rows it changed.
async fn enlist(transaction: &mut PgTransaction<'_>, store: &PostgresStore, leased: &Leased) -> u64 {
    let enlistment = store.enlistment().expect("a statement");
    let statement = sqlx::query(AssertSqlSafe(enlistment.sql())).bind(leased.key.as_str());
    let statement = statement.bind(leased.token.as_bytes().as_slice()).bind("by the handler");
    let statement = statement.bind(WEEK.as_millis() as i64).execute(&mut **transaction).await;
    statement.expect("a statement that works").rows_affected()
}

/// Everything here is answered while the transaction is open: whatever waited for it would never be.
#[tokio::test]
async fn open_transaction_delays_neither_other_events_nor_the_questions_about_its_own() {
    let fixture = Fixture::new().await;
    let (held, mut connection) = (key("held"), shared().connect().await);
    assert_eq!(accept(&fixture.store, &held).await, KEPT);
    let leased = lease_one(&fixture.store).await;
    let mut transaction = connection.begin().await.expect("a transaction");
    assert_eq!(enlist(&mut transaction, &fixture.store, &leased).await, 1);

    for n in 0..10 {
        assert_eq!(accept(&fixture.store, &key(&n.to_string())).await, KEPT);
        complete(&fixture.store, &lease_one(&fixture.store).await).await;
    }
    let claim = leased.claim(LEASE);
    assert_eq!(accept(&fixture.store, &held).await, ACCEPTED);
    assert_eq!(fixture.store.renew(&claim).await.expect("an answer"), Hold::Held);
    let is_locked = |answer: Result<Hold, tower_webhook::store::StoreError>| {
        assert_eq!(answer.expect_err("locked").kind(), StoreErrorKind::Locked);
    };
    is_locked(fixture.store.retry(&claim, Duration::ZERO, "flaky").await);
    is_locked(fixture.store.bury(&claim, "hopeless").await);
    is_locked(fixture.store.release(&held, leased.token).await);
    assert_eq!(fixture.store.counts().await.expect("counts").running, 1);
    transaction.commit().await.expect("committed");
    let kept = fixture.store.get(&held).await.expect("an answer").expect("the event");
    assert_eq!((kept.state, kept.summary.as_deref()), (EventState::Completed, Some("by the handler")));
    assert!(lease(&fixture.store, 10).await.is_empty());
    // What the machine asks then.
    assert_eq!(fixture.store.release(&held, leased.token).await.expect("an answer"), Hold::Lost);
    let done = Completion::succeeded("200 OK", WEEK);
    assert_eq!(fixture.store.complete(&claim, &done).await.expect("an answer"), Hold::Held);
    assert_eq!(accept(&fixture.store, &held).await, Claim::Completed { same_body: true });
}

/// The lease is not renewed once the completion is enlisted; the row's lock takes its place.
#[tokio::test]
async fn lapsed_event_in_an_open_transaction_is_leased_to_nobody() {
    let fixture = Fixture::new().await;
    let mut connection = shared().connect().await;
    assert_eq!(accept(&fixture.store, &key("evt_1")).await, KEPT);
    let leased = lease_one(&fixture.store).await;
    fixture.pass(2 * LEASE).await;
    let mut transaction = connection.begin().await.expect("a transaction");
    assert_eq!(enlist(&mut transaction, &fixture.store, &leased).await, 1);
    assert!(lease(&fixture.store, 10).await.is_empty());
    transaction.rollback().await.expect("rolled back");
    let again = lease_one(&fixture.store).await;
    assert_eq!(again.attempt, 2);
    let mut transaction = connection.begin().await.expect("a transaction");
    assert_eq!(enlist(&mut transaction, &fixture.store, &leased).await, 0, "the first worker is fenced");
}
