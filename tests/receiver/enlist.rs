//! What the layer makes of a completion that was put into the handler's own transaction. Here the transaction is played: the
//! test "commits" by completing in the store behind the layer's back. The SQL stores' tests have real ones.

use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::enlist::EnlistErrorKind;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{
    Claim, ClaimRequest, ClaimToken, Completion, Dialect, Enlistment, Hold, MemoryStore, Store,
};
use tower_webhook::{EventKey, HandlerError, Outcome, WebhookEvent, WebhookLayer};

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Faulty, Verb};
use crate::support::{Answer, Receiver};

const LEASE: Duration = Duration::from_secs(30);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// A receiver whose handler waits, on a store that lends a statement.
fn receiver() -> ControlledReceiver {
    receiver_on(Dialect::Postgres, |layer| layer)
}

fn receiver_on(dialect: Dialect, configure: impl Fn(WebhookLayer) -> WebhookLayer) -> ControlledReceiver {
    let store = Faulty::new(MemoryStore::new()).lends(Enlistment::new(dialect, "UPDATE …"));
    let receiver = ControlledReceiver::on_faulty(store, configure);
    receiver.handler.hold();
    receiver
}

/// A delivery whose handler has enlisted its completion and does not go on yet.
async fn enlisted(receiver: &ControlledReceiver) -> (tokio::task::JoinHandle<Answer>, WebhookEvent) {
    let delivery = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    event.enlist().await.expect("the store lends a statement");
    (delivery, event)
}

/// What the handler's transaction does when it is committed.
async fn commit(store: &MemoryStore, event: &WebhookEvent) {
    let claim = ClaimRequest::new(event.key(), event.token(), LEASE);
    let hold = store.complete(&claim, &Completion::succeeded("by the transaction", WEEK)).await;
    assert_eq!(hold.expect("memory does not fail"), Hold::Held);
}

async fn end(receiver: &ControlledReceiver, delivery: tokio::task::JoinHandle<Answer>, status: u16) -> Answer {
    receiver.handler.answers(status);
    receiver.handler.go();
    delivery.await.expect("no panic")
}

#[tokio::test(start_paused = true)]
async fn statement_comes_with_its_parameters() {
    let receiver = receiver();
    let delivery = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    let enlisted = event.enlist().await.expect("the store lends a statement");
    assert_eq!((enlisted.dialect, enlisted.sql), (Dialect::Postgres, "UPDATE …"));
    assert_eq!((enlisted.key, enlisted.token), (event.key().as_str(), event.token()));
    assert_eq!(enlisted.retention_ms, WEEK.as_millis() as i64);
    commit(&receiver.store.inner, &event).await;
    assert_eq!(end(&receiver, delivery, 200).await.outcome, Some(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn committed_completion_stands_whatever_the_handler_answers() {
    for status in [200, 204, 500, 503, 404] {
        let receiver = receiver();
        let (delivery, event) = enlisted(&receiver).await;
        commit(&receiver.store.inner, &event).await;
        let answer = end(&receiver, delivery, status).await;
        assert_eq!((answer.status.as_u16(), answer.outcome), (status, Some(Outcome::Completed)));
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
        assert_eq!(receiver.handler.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn success_without_a_commit_is_a_500_and_the_retry_runs() {
    let receiver = receiver();
    let (delivery, _) = enlisted(&receiver).await;
    let answer = end(&receiver, delivery, 200).await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Released)));
    receiver.handler.hold_no_more();
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn failure_after_a_rollback_is_passed_on_and_the_retry_runs() {
    let receiver = receiver();
    let (delivery, _) = enlisted(&receiver).await;
    let answer = end(&receiver, delivery, 502).await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::BAD_GATEWAY, Some(Outcome::Released)));
    assert_eq!(receiver.store.held(), (0, 0));
}

/// There is nothing to retry, so nothing is released: the reason is kept.
#[tokio::test(start_paused = true)]
async fn permanent_failure_after_a_rollback_completes_as_failed() {
    let store = Faulty::new(MemoryStore::new()).lends(Enlistment::new(Dialect::Sqlite, "UPDATE …"));
    let receiver = Receiver::on(store.clone(), |event: WebhookEvent| async move {
        event.enlist().await?;
        Err::<(), _>(HandlerError::permanent("no such account"))
    });
    let answer = receiver.deliver(&receiver.event("evt_1")).await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Failed)));
    assert_eq!(store.inner.failure(&EventKey::new("/webhooks", None, "evt_1")).as_deref(), Some("no such account"));
}

#[tokio::test(start_paused = true)]
async fn zombies_answer_is_a_503_and_the_newer_owner_is_left_alone() {
    for status in [200, 500] {
        let receiver = receiver();
        let (delivery, event) = enlisted(&receiver).await;
        tokio::time::sleep(2 * LEASE).await;
        let newer = ClaimRequest::new(event.key(), ClaimToken::random(), LEASE);
        assert!(
            matches!(receiver.store.inner.claim(&newer).await, Ok(Claim::Fresh { .. })),
            "not renewed once enlisted"
        );
        let answer = end(&receiver, delivery, status).await;
        assert_eq!(answer.rejection(), Some(RejectionKind::ClaimLost));
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        let done = Completion::succeeded("newer", WEEK);
        assert_eq!(receiver.store.inner.complete(&newer, &done).await.expect("memory does not fail"), Hold::Held);
    }
}

/// The row is locked by a transaction that was leaked, or the store is away: nobody knows, so nothing is acknowledged.
#[tokio::test(start_paused = true)]
async fn store_that_cannot_say_makes_it_a_503() {
    for verb in [Verb::Release, Verb::Complete] {
        let receiver = receiver();
        let (delivery, event) = enlisted(&receiver).await;
        commit(&receiver.store.inner, &event).await;
        receiver.store.breaks(verb, Fault::Fail);
        let answer = end(&receiver, delivery, 200).await;
        assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable));
        receiver.store.heal(verb);
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "it was committed");
    }
}

/// A transaction that was dropped is rolled back a moment later: until then nobody can tell.
#[tokio::test(start_paused = true)]
async fn record_that_is_locked_for_a_moment_is_asked_for_again() {
    for (committed, expected) in [(true, Outcome::Completed), (false, Outcome::Released)] {
        let receiver = receiver();
        let (delivery, event) = enlisted(&receiver).await;
        if committed {
            commit(&receiver.store.inner, &event).await;
            receiver.store.breaks_times(Verb::Complete, Fault::Locked, 3);
        }
        receiver.store.breaks_times(Verb::Release, Fault::Locked, 3);
        assert_eq!(end(&receiver, delivery, 200).await.outcome, Some(expected));
    }
}

/// Not for ever, though.
#[tokio::test(start_paused = true)]
async fn record_that_stays_locked_makes_it_a_503() {
    let receiver = receiver();
    let (delivery, _) = enlisted(&receiver).await;
    receiver.store.breaks(Verb::Release, Fault::Locked);
    assert_eq!(end(&receiver, delivery, 200).await.rejection(), Some(RejectionKind::StoreUnavailable));
}

/// A renewal would collide with the transaction's snapshot.
#[tokio::test(start_paused = true)]
async fn lease_is_renewed_until_the_completion_is_enlisted() {
    let receiver = receiver();
    let delivery = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    tokio::time::sleep(3 * LEASE).await;
    let before = receiver.store.calls(Verb::Renew);
    assert!(before >= 6, "{before} renewals");
    event.enlist().await.expect("the store lends a statement");
    let enlisted = receiver.store.calls(Verb::Renew);
    tokio::time::sleep(3 * LEASE).await;
    assert_eq!(receiver.store.calls(Verb::Renew), enlisted);
    commit(&receiver.store.inner, &event).await;
    assert_eq!(end(&receiver, delivery, 200).await.outcome, Some(Outcome::Completed));
}

/// One that is under way is waited for.
#[tokio::test(start_paused = true)]
async fn renewal_under_way_ends_before_the_completion_is_enlisted() {
    let receiver = receiver();
    let delivery = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    receiver.store.breaks(Verb::Renew, Fault::Hang);
    receiver.store.called(Verb::Renew, 1).await;
    let enlisting = tokio::spawn({
        let event = event.clone();
        async move { event.enlist().await.map(|_| ()) }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!enlisting.is_finished());
    receiver.store.heal(Verb::Renew);
    enlisting.await.expect("no panic").expect("enlisted");
    commit(&receiver.store.inner, &event).await;
    assert_eq!(end(&receiver, delivery, 200).await.outcome, Some(Outcome::Completed));
}

/// On SQLite it waits for the lock that the handler's transaction has: waiting for it would be waiting for oneself.
#[tokio::test(start_paused = true)]
async fn renewal_under_way_is_not_waited_for_on_sqlite() {
    let receiver = receiver_on(Dialect::Sqlite, WebhookLayer::cancel_on_lost_claim);
    let delivery = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    receiver.store.breaks(Verb::Renew, Fault::Hang);
    receiver.store.called(Verb::Renew, 1).await;
    let asked = tokio::time::Instant::now();
    event.enlist().await.expect("the store lends a statement");
    assert_eq!(asked.elapsed(), Duration::ZERO);
    commit(&receiver.store.inner, &event).await;
    // It finds the claim completed, and that is not a loss of it.
    receiver.store.heal(Verb::Renew);
    tokio::time::sleep(3 * LEASE).await;
    assert!(event.is_held());
    assert_eq!(receiver.store.calls(Verb::Renew), 1, "and there is no other");
    assert_eq!(end(&receiver, delivery, 200).await.outcome, Some(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn duplicates_wait_for_what_the_store_says() {
    let receiver = receiver();
    let (delivery, event) = enlisted(&receiver).await;
    let duplicate = receiver.spawn("evt_1");
    receiver.requests.begun(2).await;
    commit(&receiver.store.inner, &event).await;
    assert_eq!(end(&receiver, delivery, 500).await.outcome, Some(Outcome::Completed));
    assert_eq!(duplicate.await.expect("no panic").outcome, Some(Outcome::Duplicate));
}

#[tokio::test]
async fn store_without_a_statement_says_so() {
    let receiver = Receiver::handling(|event: WebhookEvent| async move {
        let error = event.enlist().await.expect_err("memory lends nothing");
        assert_eq!(error.kind(), EnlistErrorKind::Unsupported);
        assert!(error.to_string().contains("PostgresStore"), "{error}");
    });
    assert_eq!(receiver.deliver(&receiver.event("evt_1")).await.outcome, Some(Outcome::Completed));
}
