//! Rows 20 to 23 as far as one process shows them, and row 44: a store that fails, hangs, loses replies, or is full.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::Instant;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, MemoryStore, Store};

use crate::support::Answer;
use crate::support::faulty::{Fault, Verb, soon};
use crate::support::rig::Rig;

const LEASE: Duration = Duration::from_secs(30);

fn assert_unavailable(answer: &Answer) {
    assert_eq!((answer.status, answer.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")));
    assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable));
}

#[tokio::test(start_paused = true)]
async fn row_20_store_that_fails_is_a_503_and_runs_nothing() {
    let rig = Rig::new();
    rig.store.breaks(Verb::Claim, Fault::Fail);
    for _ in 0..3 {
        assert_unavailable(&rig.deliver("evt_1").await);
    }
    // Each has its doubtful token released; the drain would wait for that.
    rig.store.called(Verb::Release, 3).await;
    soon(async {
        while rig.layer.drain_handle().running() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(rig.handler.runs(), 0);
    rig.store.heal(Verb::Claim);
    assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Completed));
}

/// Rows 21 and 22: nobody knows whether the claim took effect, so its token is released.
#[tokio::test(start_paused = true)]
async fn row_21_claim_without_an_answer_is_a_503_at_the_deadline_and_released() {
    for fault in [Fault::Hang, Fault::HoldReply, Fault::LoseReply] {
        let rig = Rig::configured(|layer| layer.in_flight_wait(Duration::ZERO));
        rig.store.breaks(Verb::Claim, fault);
        let asked = Instant::now();
        assert_unavailable(&rig.deliver("evt_1").await);
        assert!(asked.elapsed() <= Duration::from_millis(2_010), "{fault:?}: within the claim deadline");
        rig.store.called(Verb::Release, 1).await;
        rig.store.heal(Verb::Claim);
        tokio::task::yield_now().await;
        assert_eq!((rig.handler.runs(), rig.store.held()), (0, (0, 0)), "{fault:?}");
        assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Completed), "{fault:?}: the retry need not wait");
    }
}

/// Row 22 at its worst: the release fails too, and the lease ends by itself.
#[tokio::test(start_paused = true)]
async fn row_22_claim_that_cannot_be_released_holds_no_longer_than_its_lease() {
    let rig = Rig::configured(|layer| layer.in_flight_wait(Duration::ZERO));
    rig.store.breaks_times(Verb::Claim, Fault::LoseReply, 1);
    rig.store.breaks(Verb::Release, Fault::Fail);
    assert_unavailable(&rig.deliver("evt_1").await);
    assert_eq!(rig.deliver("evt_1").await.rejection(), Some(RejectionKind::InFlight));
    tokio::time::sleep(LEASE).await;
    assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn row_23_completion_that_fails_after_success_is_retried() {
    for fault in [Fault::Fail, Fault::Hang, Fault::LoseReply] {
        let rig = Rig::held(|layer| layer);
        rig.store.breaks(Verb::Complete, fault);
        let first = rig.spawn("evt_1");
        rig.handler.started(1).await;
        let waiting = rig.spawn("evt_1");
        rig.store.called(Verb::Claim, 3).await;
        rig.handler.go();
        let answer = first.await.expect("no panic");
        assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::CompletionPending)), "{fault:?}");
        assert_eq!(waiting.await.expect("no panic").outcome, Some(Outcome::Duplicate), "{fault:?}: it is done");

        // The store is away for longer than the lease; what this process did it does not forget.
        for _ in 0..5 {
            tokio::time::sleep(LEASE).await;
            let duplicate = rig.deliver("evt_1").await;
            assert_eq!((duplicate.status, duplicate.outcome), (StatusCode::OK, Some(Outcome::Duplicate)), "{fault:?}");
        }
        assert!(rig.store.calls(Verb::Complete) > 5, "{fault:?}: asked again and again");
        assert_eq!(rig.layer.drain_handle().running(), 1);
        rig.store.heal(Verb::Complete);
        assert_eq!(rig.layer.drain_handle().drain(LEASE).await.dropped, 0, "{fault:?}: the drain waits for it");
        assert_eq!((rig.handler.runs(), rig.store.held()), (1, (0, 1)), "{fault:?}");
    }
}

/// Row 23: the claim is renewed meanwhile, so that another instance does not run the event.
#[tokio::test(start_paused = true)]
async fn row_23_pending_completion_keeps_its_claim() {
    let rig = Rig::new();
    rig.store.breaks(Verb::Complete, Fault::Fail);
    assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::CompletionPending));
    let elsewhere = Rig::on(rig.store.inner.clone(), |layer| layer.in_flight_wait(Duration::ZERO));
    for _ in 0..5 {
        tokio::time::sleep(LEASE).await;
        assert_eq!(elsewhere.deliver("evt_1").await.rejection(), Some(RejectionKind::InFlight));
    }
    rig.store.heal(Verb::Complete);
    rig.layer.drain_handle().drain(LEASE).await;
    assert_eq!(elsewhere.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    let renewals = rig.store.calls(Verb::Renew);
    tokio::time::sleep(2 * LEASE).await;
    assert_eq!(rig.store.calls(Verb::Renew), renewals, "nothing is renewed any more");
}

/// Row 23 and 18 together: the store was away too long, and another instance ran the event.
#[tokio::test(start_paused = true)]
async fn row_23_late_completion_is_refused_once_another_owner_has_it() {
    let rig = Rig::configured(|layer| layer.in_flight_wait(Duration::ZERO));
    rig.store.breaks(Verb::Complete, Fault::Fail);
    rig.store.breaks(Verb::Renew, Fault::Fail);
    assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::CompletionPending));
    tokio::time::sleep(2 * LEASE).await;
    let (key, token) = (Rig::key("evt_1"), ClaimToken::random());
    let other = ClaimRequest::new(&key, token, 100 * LEASE);
    assert!(matches!(rig.store.inner.claim(&other).await, Ok(Claim::Fresh { .. })));
    rig.store.heal(Verb::Complete);
    assert_eq!(rig.layer.drain_handle().drain(LEASE).await.dropped, 0, "refused is settled, too");
    assert_eq!(rig.store.held(), (1, 0), "the newer owner's claim is untouched");
}

/// Row 23 while the very first attempt to complete still hangs, and for longer than the lease.
#[tokio::test(start_paused = true)]
async fn row_23_slow_completion_is_not_run_again_meanwhile() {
    let lease = Duration::from_secs(1);
    let rig = Rig::configured(|layer| layer.lease(lease).expect("a lease").in_flight_wait(Duration::ZERO));
    rig.store.breaks(Verb::Complete, Fault::Hang);
    let first = rig.spawn("evt_1");
    rig.store.called(Verb::Complete, 1).await;
    for _ in 0..5 {
        tokio::time::sleep(lease).await;
        let duplicate = rig.deliver("evt_1").await;
        assert_eq!(rig.handler.runs(), 1, "the work is done, and this process knows; {:?}", duplicate.outcome);
    }
    rig.store.heal(Verb::Complete);
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::CompletionPending));
    assert_eq!(rig.layer.drain_handle().drain(LEASE).await.dropped, 0);
    assert_eq!((rig.handler.runs(), rig.store.held()), (1, (0, 1)));
}

/// Row 23 with a zombie in the same process: its refusal is not the newer owner's.
#[tokio::test(start_paused = true)]
async fn row_23_refused_zombie_does_not_make_the_owners_work_forgotten() {
    let rig = Rig::held(|layer| layer.in_flight_wait(Duration::ZERO));
    let zombie = rig.spawn("evt_1");
    rig.handler.started(1).await;
    rig.store.breaks(Verb::Renew, Fault::Fail);
    tokio::time::sleep(LEASE + Duration::from_millis(5)).await;
    rig.store.heal(Verb::Renew);
    rig.handler.hold_no_more();
    rig.store.breaks_times(Verb::Complete, Fault::Fail, 1);
    assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::CompletionPending), "the newer owner");
    // No time passes, so the zombie asks before the owner's completion is retried.
    rig.handler.go();
    assert_eq!(zombie.await.expect("no panic").rejection(), Some(RejectionKind::ClaimLost));
    rig.store.breaks(Verb::Complete, Fault::Fail);
    assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "done here, and still to be stored");
    rig.store.heal(Verb::Complete);
    assert_eq!(rig.layer.drain_handle().drain(LEASE).await.dropped, 0);
    assert_eq!((rig.handler.runs(), rig.store.held()), (2, (0, 1)));
}

/// Nothing is asked of the store for ever: with the drain's deadline the retries end.
#[tokio::test(start_paused = true)]
async fn row_23_drain_gives_a_pending_completion_up_at_its_deadline() {
    let rig = Rig::new();
    rig.store.breaks(Verb::Complete, Fault::Fail);
    rig.deliver("evt_1").await;
    assert_eq!(rig.layer.drain_handle().drain(LEASE).await.dropped, 1);
    assert_eq!(rig.layer.drain_handle().running(), 0);
    assert_eq!(rig.store.calls(Verb::Release), 0, "the work is done: to release it would ask for a second run");
    let asked = rig.store.calls(Verb::Complete);
    tokio::time::sleep(LEASE).await;
    assert_eq!(rig.store.calls(Verb::Complete), asked);
}

/// The place that a pending completion occupies is given back.
#[tokio::test(start_paused = true)]
async fn row_23_pending_completions_are_bounded_and_end() {
    let rig = Rig::configured(|layer| layer.max_running(1).expect("a limit"));
    rig.store.breaks(Verb::Complete, Fault::Fail);
    rig.deliver("evt_1").await;
    assert_eq!(rig.deliver("evt_2").await.rejection(), Some(RejectionKind::Busy));
    rig.store.heal(Verb::Complete);
    while rig.layer.drain_handle().running() > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(rig.deliver("evt_2").await.outcome, Some(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn row_44_full_store_refuses_and_never_evicts_a_live_claim() {
    let min_retention = Duration::from_secs(3600);
    let rig = Rig::on(MemoryStore::builder().capacity(2).min_retention(min_retention).build(), |layer| layer);
    rig.handler.hold();
    let running = [rig.spawn("evt_1"), rig.spawn("evt_2")];
    rig.handler.started(2).await;
    // However long they run: a claim that is renewed is live.
    for _ in 0..3 {
        tokio::time::sleep(min_retention).await;
        assert_unavailable(&rig.deliver("evt_3").await);
    }
    assert_eq!((rig.store.held(), rig.handler.runs()), ((2, 0), 2));
    rig.handler.go();
    rig.handler.go();
    for delivery in running {
        assert_eq!(delivery.await.expect("no panic").outcome, Some(Outcome::Completed));
    }
    rig.handler.hold_no_more();
    assert_unavailable(&rig.deliver("evt_3").await);
    assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "what is known is still answered");

    tokio::time::sleep(min_retention).await;
    assert_eq!(rig.deliver("evt_3").await.outcome, Some(Outcome::Completed), "the oldest record went for it");
    assert_eq!((rig.store.inner.stats().evicted, rig.store.held()), (1, (0, 2)));
}
