//! Rows 20 to 23 as far as one process shows them, and row 44: a store that fails, hangs, loses replies, or is full.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::Instant;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, MemoryStore, Store};

use crate::support::Answer;
use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb, soon};

const LEASE: Duration = Duration::from_secs(30);

fn assert_unavailable(answer: &Answer) {
    assert_eq!((answer.status, answer.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")));
    assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable));
}

#[tokio::test(start_paused = true)]
async fn row_20_store_that_fails_is_a_503_and_runs_nothing() {
    let receiver = ControlledReceiver::new();
    receiver.store.breaks(Verb::Claim, Fault::Fail);
    for _ in 0..3 {
        assert_unavailable(&receiver.deliver("evt_1").await);
    }
    // Each has its doubtful token released; the drain would wait for that.
    receiver.store.called(Verb::Release, 3).await;
    soon(async {
        while receiver.layer.drain_handle().running() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(receiver.handler.runs(), 0);
    receiver.store.heal(Verb::Claim);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
}

/// Rows 21 and 22: nobody knows whether the claim took effect, so its token is released.
#[tokio::test(start_paused = true)]
async fn row_21_claim_without_an_answer_is_a_503_at_the_deadline_and_released() {
    for fault in [Fault::Hang, Fault::HoldReply, Fault::LoseReply] {
        let receiver = ControlledReceiver::configured(|layer| layer.in_flight_wait(Duration::ZERO));
        receiver.store.breaks(Verb::Claim, fault);
        let asked = Instant::now();
        assert_unavailable(&receiver.deliver("evt_1").await);
        assert!(asked.elapsed() <= Duration::from_millis(2_010), "{fault:?}: within the claim deadline");
        receiver.store.called(Verb::Release, 1).await;
        receiver.store.heal(Verb::Claim);
        tokio::task::yield_now().await;
        assert_eq!((receiver.handler.runs(), receiver.store.held()), (0, (0, 0)), "{fault:?}");
        assert_eq!(
            receiver.deliver("evt_1").await.outcome,
            Some(Outcome::Completed),
            "{fault:?}: the retry need not wait"
        );
    }
}

/// Row 22 at its worst: the release fails too, and the lease ends by itself.
#[tokio::test(start_paused = true)]
async fn row_22_claim_that_cannot_be_released_holds_no_longer_than_its_lease() {
    let receiver = ControlledReceiver::configured(|layer| layer.in_flight_wait(Duration::ZERO));
    receiver.store.breaks_times(Verb::Claim, Fault::LoseReply, 1);
    receiver.store.breaks(Verb::Release, Fault::Fail);
    assert_unavailable(&receiver.deliver("evt_1").await);
    assert_eq!(receiver.deliver("evt_1").await.rejection(), Some(RejectionKind::InFlight));
    tokio::time::sleep(LEASE).await;
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn row_23_completion_that_fails_after_success_is_retried() {
    for fault in [Fault::Fail, Fault::Hang, Fault::LoseReply] {
        let receiver = ControlledReceiver::held(|layer| layer);
        receiver.store.breaks(Verb::Complete, fault);
        let first = receiver.spawn("evt_1");
        receiver.handler.started(1).await;
        let waiting = receiver.spawn("evt_1");
        receiver.store.called(Verb::Claim, 3).await;
        receiver.handler.go();
        let answer = first.await.expect("no panic");
        assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::CompletionPending)), "{fault:?}");
        assert_eq!(waiting.await.expect("no panic").outcome, Some(Outcome::Duplicate), "{fault:?}: it is done");

        // The store is away for longer than the lease; what this process did it does not forget.
        for _ in 0..5 {
            tokio::time::sleep(LEASE).await;
            let duplicate = receiver.deliver("evt_1").await;
            assert_eq!((duplicate.status, duplicate.outcome), (StatusCode::OK, Some(Outcome::Duplicate)), "{fault:?}");
        }
        assert!(receiver.store.calls(Verb::Complete) > 5, "{fault:?}: asked again and again");
        assert_eq!(receiver.layer.drain_handle().running(), 1);
        receiver.store.heal(Verb::Complete);
        assert_eq!(receiver.layer.drain_handle().drain(LEASE).await.dropped, 0, "{fault:?}: the drain waits for it");
        assert_eq!((receiver.handler.runs(), receiver.store.held()), (1, (0, 1)), "{fault:?}");
    }
}

/// Row 23: the claim is renewed meanwhile, so that another instance does not run the event.
#[tokio::test(start_paused = true)]
async fn row_23_pending_completion_keeps_its_claim() {
    let receiver = ControlledReceiver::new();
    receiver.store.breaks(Verb::Complete, Fault::Fail);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::CompletionPending));
    let elsewhere = ControlledReceiver::on(receiver.store.inner.clone(), |layer| layer.in_flight_wait(Duration::ZERO));
    for _ in 0..5 {
        tokio::time::sleep(LEASE).await;
        assert_eq!(elsewhere.deliver("evt_1").await.rejection(), Some(RejectionKind::InFlight));
    }
    receiver.store.heal(Verb::Complete);
    receiver.layer.drain_handle().drain(LEASE).await;
    assert_eq!(elsewhere.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    let renewals = receiver.store.calls(Verb::Renew);
    tokio::time::sleep(2 * LEASE).await;
    assert_eq!(receiver.store.calls(Verb::Renew), renewals, "nothing is renewed any more");
}

/// Row 23 and 18 together: the store was away too long, and another instance ran the event.
#[tokio::test(start_paused = true)]
async fn row_23_late_completion_is_refused_once_another_owner_has_it() {
    let receiver = ControlledReceiver::configured(|layer| layer.in_flight_wait(Duration::ZERO));
    receiver.store.breaks(Verb::Complete, Fault::Fail);
    receiver.store.breaks(Verb::Renew, Fault::Fail);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::CompletionPending));
    tokio::time::sleep(2 * LEASE).await;
    let (key, token) = (ControlledReceiver::key("evt_1"), ClaimToken::random());
    let other = ClaimRequest::new(&key, token, 100 * LEASE);
    assert!(matches!(receiver.store.inner.claim(&other).await, Ok(Claim::Fresh { .. })));
    receiver.store.heal(Verb::Complete);
    assert_eq!(receiver.layer.drain_handle().drain(LEASE).await.dropped, 0, "refused is settled, too");
    assert_eq!(receiver.store.held(), (1, 0), "the newer owner's claim is untouched");
}

/// Row 23 while the very first attempt to complete still hangs, and for longer than the lease.
#[tokio::test(start_paused = true)]
async fn row_23_slow_completion_is_not_run_again_meanwhile() {
    let lease = Duration::from_secs(1);
    let receiver =
        ControlledReceiver::configured(|layer| layer.lease(lease).expect("a lease").in_flight_wait(Duration::ZERO));
    receiver.store.breaks(Verb::Complete, Fault::Hang);
    let first = receiver.spawn("evt_1");
    receiver.store.called(Verb::Complete, 1).await;
    for _ in 0..5 {
        tokio::time::sleep(lease).await;
        let duplicate = receiver.deliver("evt_1").await;
        assert_eq!(receiver.handler.runs(), 1, "the work is done, and this process knows; {:?}", duplicate.outcome);
    }
    receiver.store.heal(Verb::Complete);
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::CompletionPending));
    assert_eq!(receiver.layer.drain_handle().drain(LEASE).await.dropped, 0);
    assert_eq!((receiver.handler.runs(), receiver.store.held()), (1, (0, 1)));
}

/// Row 23 with a zombie in the same process: its refusal is not the newer owner's.
#[tokio::test(start_paused = true)]
async fn row_23_refused_zombie_does_not_make_the_owners_work_forgotten() {
    let receiver = ControlledReceiver::held(|layer| layer.in_flight_wait(Duration::ZERO));
    let zombie = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    receiver.store.breaks(Verb::Renew, Fault::Fail);
    tokio::time::sleep(LEASE + Duration::from_millis(5)).await;
    receiver.store.heal(Verb::Renew);
    receiver.handler.hold_no_more();
    receiver.store.breaks_times(Verb::Complete, Fault::Fail, 1);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::CompletionPending), "the newer owner");
    // No time passes, so the zombie asks before the owner's completion is retried.
    receiver.handler.go();
    assert_eq!(zombie.await.expect("no panic").rejection(), Some(RejectionKind::ClaimLost));
    receiver.store.breaks(Verb::Complete, Fault::Fail);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "done here, and still to be stored");
    receiver.store.heal(Verb::Complete);
    assert_eq!(receiver.layer.drain_handle().drain(LEASE).await.dropped, 0);
    assert_eq!((receiver.handler.runs(), receiver.store.held()), (2, (0, 1)));
}

/// Nothing is asked of the store for ever: with the drain's deadline the retries end.
#[tokio::test(start_paused = true)]
async fn row_23_drain_gives_a_pending_completion_up_at_its_deadline() {
    let receiver = ControlledReceiver::new();
    receiver.store.breaks(Verb::Complete, Fault::Fail);
    receiver.deliver("evt_1").await;
    assert_eq!(receiver.layer.drain_handle().drain(LEASE).await.dropped, 1);
    assert_eq!(receiver.layer.drain_handle().running(), 0);
    assert_eq!(receiver.store.calls(Verb::Release), 0, "the work is done: to release it would ask for a second run");
    let asked = receiver.store.calls(Verb::Complete);
    tokio::time::sleep(LEASE).await;
    assert_eq!(receiver.store.calls(Verb::Complete), asked);
}

/// The place that a pending completion occupies is given back.
#[tokio::test(start_paused = true)]
async fn row_23_pending_completions_are_bounded_and_end() {
    let receiver = ControlledReceiver::configured(|layer| layer.max_running(1).expect("a limit"));
    receiver.store.breaks(Verb::Complete, Fault::Fail);
    receiver.deliver("evt_1").await;
    assert_eq!(receiver.deliver("evt_2").await.rejection(), Some(RejectionKind::Busy));
    receiver.store.heal(Verb::Complete);
    while receiver.layer.drain_handle().running() > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(receiver.deliver("evt_2").await.outcome, Some(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn row_44_full_store_refuses_and_never_evicts_a_live_claim() {
    let min_retention = Duration::from_secs(3600);
    let receiver =
        ControlledReceiver::on(MemoryStore::builder().capacity(2).min_retention(min_retention).build(), |layer| layer);
    receiver.handler.hold();
    let running = [receiver.spawn("evt_1"), receiver.spawn("evt_2")];
    receiver.handler.started(2).await;
    // However long they run: a claim that is renewed is live.
    for _ in 0..3 {
        tokio::time::sleep(min_retention).await;
        assert_unavailable(&receiver.deliver("evt_3").await);
    }
    assert_eq!((receiver.store.held(), receiver.handler.runs()), ((2, 0), 2));
    receiver.handler.go();
    receiver.handler.go();
    for delivery in running {
        assert_eq!(delivery.await.expect("no panic").outcome, Some(Outcome::Completed));
    }
    receiver.handler.hold_no_more();
    assert_unavailable(&receiver.deliver("evt_3").await);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "what is known is still answered");

    tokio::time::sleep(min_retention).await;
    assert_eq!(receiver.deliver("evt_3").await.outcome, Some(Outcome::Completed), "the oldest record went for it");
    assert_eq!((receiver.store.inner.stats().evicted, receiver.store.held()), (1, (0, 2)));
}
