//! Rows 17 and 18: leases that are renewed, lapse, and are taken over. The clock is tokio's, paused.

use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, Store};

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb};
use crate::support::logs::Logs;

const LEASE: Duration = Duration::from_secs(30);
const INSTANT: Duration = Duration::from_millis(5);

/// Lets this much time pass, and everybody act who was due in it.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn row_17_handler_longer_than_its_lease_keeps_it() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    for _ in 0..10 {
        pass(LEASE).await;
        assert!(event.is_held());
        let duplicate = receiver.deliver("evt_1").await;
        assert_eq!(duplicate.rejection(), Some(RejectionKind::InFlight), "in flight, not taken over");
    }
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 1);
    // At a third of the lease, and not once more when the work is done.
    let renewals = receiver.store.calls(Verb::Renew);
    assert!((30..=60).contains(&renewals), "{renewals} renewals");
    pass(2 * LEASE).await;
    assert_eq!(receiver.store.calls(Verb::Renew), renewals, "the renewal ends with the delivery");
}

/// A detached handler's lease is renewed as well.
#[tokio::test(start_paused = true)]
async fn row_17_detached_handler_keeps_its_lease() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    first.abort();
    receiver.requests.dropped(1).await;
    pass(3 * LEASE).await;
    assert!(event.is_held());
    assert_eq!(receiver.deliver("evt_1").await.rejection(), Some(RejectionKind::InFlight));
    receiver.handler.go();
    receiver.handler.finished(1).await;
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_are_repeated_while_the_lease_lasts() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    receiver.store.breaks_times(Verb::Renew, Fault::Fail, 2);
    for _ in 0..10 {
        pass(LEASE / 2).await;
        assert!(event.is_held(), "two failures in a row leave time for a third");
    }
    // A reply that is lost renewed the lease all the same.
    receiver.store.breaks_times(Verb::Renew, Fault::LoseReply, 2);
    pass(2 * LEASE).await;
    assert!(event.is_held());
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
}

/// Row 18 without another owner: the claim lapsed, but it is still this token's.
#[tokio::test(start_paused = true)]
async fn row_18_lapsed_claim_that_nobody_took_is_completed_late() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    receiver.store.breaks(Verb::Renew, Fault::Fail);
    pass(LEASE - INSTANT).await;
    assert!(event.is_held());
    pass(2 * INSTANT).await;
    assert!(!event.is_held(), "a handler can ask before what cannot be undone");
    assert_eq!(receiver.handler.dropped_so_far(), 0, "it runs on all the same");
    receiver.handler.go();
    let answer = first.await.expect("no panic");
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Completed)));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
}

/// The same when the store does not even fail: a lease does not last longer because the question hangs.
#[tokio::test(start_paused = true)]
async fn row_18_hanging_renewal_does_not_prolong_the_lease() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    receiver.store.breaks(Verb::Renew, Fault::Hang);
    pass(LEASE - INSTANT).await;
    assert!(event.is_held());
    pass(2 * INSTANT).await;
    assert!(!event.is_held(), "the lease is over in the store, and anybody may take it");
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn row_18_hanging_renewal_does_not_prolong_a_short_lease() {
    let lease = Duration::from_millis(500);
    let receiver = ControlledReceiver::held(|layer| layer.lease(lease).expect("a lease"));
    let first = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    receiver.store.breaks(Verb::Renew, Fault::Hang);
    pass(lease + INSTANT).await;
    assert!(!event.is_held(), "the claim deadline is longer than this lease");
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
}

/// Row 18 with another owner, who finishes first.
#[tokio::test(start_paused = true)]
async fn row_18_zombie_is_refused_and_the_newer_owner_stands() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let zombie = receiver.spawn("evt_1");
    let old = receiver.handler.started(1).await;
    receiver.store.breaks(Verb::Renew, Fault::Fail);
    pass(LEASE + INSTANT).await;
    receiver.store.heal(Verb::Renew);
    // The sender's retry takes the lapsed claim over.
    let owner = receiver.spawn("evt_1");
    let new = receiver.handler.started(2).await;
    assert_eq!((old.is_held(), new.is_held()), (false, true));
    assert_ne!(old.token(), new.token());
    assert_eq!((old.attempt(), new.attempt()), (Some(1), Some(2)));

    // The zombie comes first out of the handler: its completion is refused by its token.
    receiver.handler.go();
    let answer = zombie.await.expect("no panic");
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((answer.rejection(), answer.retry_after()), (Some(RejectionKind::ClaimLost), Some("5")));
    assert_eq!(receiver.store.held(), (1, 0), "the newer owner's claim is untouched");
    assert!(new.is_held());

    receiver.handler.go();
    assert_eq!(owner.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
}

/// A zombie that fails must not release what is no longer its own, and is told so.
#[tokio::test(start_paused = true)]
async fn row_18_failing_zombie_does_not_release_the_newer_owner() {
    let (logs, _guard) = Logs::capture();
    let receiver = ControlledReceiver::held(|layer| layer);
    let zombie = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    receiver.store.breaks(Verb::Renew, Fault::Fail);
    pass(LEASE + INSTANT).await;
    receiver.store.heal(Verb::Renew);
    let owner = receiver.spawn("evt_1");
    receiver.handler.started(2).await;
    receiver.handler.answers(500);
    receiver.handler.go();
    let answer = zombie.await.expect("no panic");
    assert_eq!((answer.status, answer.rejection()), (StatusCode::SERVICE_UNAVAILABLE, Some(RejectionKind::ClaimLost)));
    let audit = logs.audits().pop().expect("an audit event");
    assert!(audit.contains("claim_lost") && audit.contains("500"), "the operator sees both: {audit}");
    assert_eq!(receiver.store.held(), (1, 0));
    receiver.handler.answers(200);
    receiver.handler.go();
    assert_eq!(owner.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 2);
}

/// Another instance takes the claim over behind this one's back: the next renewal is refused.
#[tokio::test(start_paused = true)]
async fn row_18_refused_renewal_ends_the_hold_and_can_drop_the_handler() {
    for cancel in [false, true] {
        let receiver = ControlledReceiver::held(|layer| if cancel { layer.cancel_on_lost_claim() } else { layer });
        let zombie = receiver.spawn("evt_1");
        let event = receiver.handler.started(1).await;
        let (key, store) = (ControlledReceiver::key("evt_1"), receiver.store.inner.clone());
        assert_eq!(store.release(&key, event.token()).await.expect("an answer"), Hold::Held);
        let other = ClaimRequest::new(&key, ClaimToken::random(), 100 * LEASE);
        assert!(matches!(store.claim(&other).await, Ok(Claim::Fresh { .. })));
        pass(LEASE / 3 + INSTANT).await;
        assert!(!event.is_held(), "refused at the first renewal");
        if cancel {
            receiver.handler.dropped(1).await;
        } else {
            receiver.handler.go();
        }
        let answer = zombie.await.expect("no panic");
        assert_eq!(
            (answer.status, answer.rejection()),
            (StatusCode::SERVICE_UNAVAILABLE, Some(RejectionKind::ClaimLost))
        );
        let done = Completion::succeeded("elsewhere", LEASE);
        assert_eq!(store.complete(&other, &done).await.expect("an answer"), Hold::Held);
        assert_eq!(receiver.handler.runs(), 1);
    }
}

/// With `cancel_on_lost_claim` a lease that merely lapsed drops the handler too, and its claim is released.
#[tokio::test(start_paused = true)]
async fn lapsed_claim_drops_the_handler_where_asked() {
    let receiver = ControlledReceiver::held(tower_webhook::WebhookLayer::cancel_on_lost_claim);
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    receiver.store.breaks(Verb::Renew, Fault::Fail);
    receiver.handler.dropped(1).await;
    assert_eq!(first.await.expect("no panic").rejection(), Some(RejectionKind::ClaimLost));
    assert_eq!(receiver.store.held(), (0, 0));
    receiver.handler.go();
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed), "the retry runs");
}

/// The holder's process is gone: the duplicate that waits for it takes over when the lease lapses.
#[tokio::test(start_paused = true)]
async fn waiter_takes_over_a_lease_that_lapses_while_it_waits() {
    let receiver = ControlledReceiver::configured(|layer| layer.in_flight_wait(2 * LEASE));
    let (key, token) = (ControlledReceiver::key("evt_1"), ClaimToken::random());
    let gone = ClaimRequest::new(&key, token, LEASE);
    assert!(matches!(receiver.store.inner.claim(&gone).await, Ok(Claim::Fresh { .. })));
    let waiting: Vec<_> = (0..3).map(|_| receiver.spawn("evt_1")).collect();
    let mut outcomes = Vec::new();
    for delivery in waiting {
        outcomes.push(delivery.await.expect("no panic").outcome);
    }
    let ran = outcomes.iter().filter(|outcome| **outcome == Some(Outcome::Completed)).count();
    let told = outcomes.iter().filter(|outcome| **outcome == Some(Outcome::Duplicate)).count();
    assert_eq!((ran, told, receiver.handler.runs()), (1, 2, 1), "one takes over, and tells the others");
    assert_eq!(receiver.handler.started(1).await.attempt(), Some(2));
}

/// A handler that keeps the thread past its lease, and then awaits: the renewal comes late, and still in time, because
/// nobody took over.
#[tokio::test(start_paused = true)]
async fn late_renewal_is_asked_for_once() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    // No timer fires while time jumps: the renewal's first look at the clock is after the lease.
    tokio::time::advance(LEASE + INSTANT).await;
    receiver.store.called(Verb::Renew, 1).await;
    pass(LEASE).await;
    assert!(event.is_held(), "renewed, and renewed again");
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
}
