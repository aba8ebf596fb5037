//! Rows 1 to 3: deliveries of one event that meet.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::task::JoinSet;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind;

use crate::support::Answer;
use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb};

/// What a duplicate may be told of work that may still fail.
fn assert_refused(answer: &Answer, kind: RejectionKind) {
    assert_eq!((answer.status, answer.rejection()), (StatusCode::SERVICE_UNAVAILABLE, Some(kind)));
    assert_eq!(answer.retry_after(), Some("5"), "a 503 says when to come again");
}

/// Row 1, counted exactly: with time standing still nobody's wait is over.
#[tokio::test(start_paused = true)]
async fn row_1_hundred_at_once_run_once_and_waiters_are_bounded() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let mut deliveries = JoinSet::new();
    for _ in 0..100 {
        deliveries.spawn({
            let receiver = receiver.clone();
            async move { receiver.deliver("evt_1").await }
        });
    }
    // One runs and 64 wait: the other 35 are answered while the handler is still at work.
    for _ in 0..35 {
        let answer = deliveries.join_next().await.expect("a delivery").expect("no panic");
        assert_refused(&answer, RejectionKind::TooManyWaiting);
    }
    receiver.handler.go();
    let mut outcomes = Vec::new();
    while let Some(answer) = deliveries.join_next().await {
        let answer = answer.expect("no panic");
        assert_eq!(answer.status, StatusCode::OK);
        outcomes.push(answer.outcome.expect("every answer has an outcome"));
    }
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Completed).count(), 1);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Duplicate).count(), 64);
    assert_eq!((receiver.handler.runs(), receiver.store.held()), (1, (0, 1)));
}

/// Row 1 on several threads, with real races.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_1_hundred_in_parallel_run_once() {
    let receiver = ControlledReceiver::new();
    for id in (0..20).map(|n| format!("evt_{n}")) {
        let deliveries: Vec<_> = (0..100).map(|_| receiver.spawn(&id)).collect();
        for delivery in deliveries {
            let answer = delivery.await.expect("no panic");
            match answer.status {
                StatusCode::OK => {}
                StatusCode::SERVICE_UNAVAILABLE => assert!(answer.retry_after().is_some()),
                other => panic!("{other} for a duplicate"),
            }
        }
    }
    assert_eq!((receiver.handler.runs(), receiver.store.held()), (20, (0, 20)));
}

#[tokio::test]
async fn row_2_duplicate_after_completion_is_answered_without_the_handler() {
    let receiver = ControlledReceiver::new();
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    for _ in 0..3 {
        let answer = receiver.deliver("evt_1").await;
        assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Duplicate)));
    }
    assert_eq!((receiver.handler.runs(), receiver.store.held()), (1, (0, 1)));
}

#[tokio::test(start_paused = true)]
async fn row_3_duplicate_past_its_wait_is_told_to_come_again() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    // The wait passes by itself: nothing else is left for the clock to do.
    assert_refused(&receiver.deliver("evt_1").await, RejectionKind::InFlight);
    assert_eq!(receiver.store.held(), (1, 0), "the first delivery goes on");
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn row_3_duplicate_that_does_not_wait_is_refused_at_once() {
    let receiver = ControlledReceiver::held(|layer| layer.in_flight_wait(Duration::ZERO));
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    assert_refused(&receiver.deliver("evt_1").await, RejectionKind::InFlight);
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn row_3_first_fails_while_its_duplicates_wait() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    let waiting: Vec<_> = (0..3).map(|_| receiver.spawn("evt_1")).collect();
    // One claim each, and one of the waiters asks again for all.
    receiver.store.called(Verb::Claim, 1 + 3 + 1).await;
    receiver.handler.answers(500);
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Released));
    for duplicate in waiting {
        assert_refused(&duplicate.await.expect("no panic"), RejectionKind::FirstFailed);
    }
    assert_eq!((receiver.handler.runs(), receiver.store.held()), (1, (0, 0)), "released, and no duplicate ran it");
    receiver.handler.answers(200);
    receiver.handler.go();
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed), "the sender's retry runs");
}

#[tokio::test(start_paused = true)]
async fn row_3_first_completes_while_its_duplicates_wait() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    let waiting: Vec<_> = (0..3).map(|_| receiver.spawn("evt_1")).collect();
    receiver.store.called(Verb::Claim, 1 + 3 + 1).await;
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
    for duplicate in waiting {
        assert_eq!(duplicate.await.expect("no panic").outcome, Some(Outcome::Duplicate));
    }
    assert_eq!(receiver.handler.runs(), 1);
}

/// The holder is another process: nobody here wakes those who wait, so they ask the store.
#[tokio::test(start_paused = true)]
async fn row_3_outcome_in_another_instance_is_found_by_asking() {
    let (here, status) = (ControlledReceiver::new(), [(200, Outcome::Duplicate), (500, Outcome::Completed)]);
    for (n, (status, outcome)) in status.into_iter().enumerate() {
        let id = format!("evt_{n}");
        // A second layer on the same store shares neither waiters nor anything else.
        let there = ControlledReceiver::on(here.store.inner.clone(), |layer| layer);
        there.handler.hold();
        there.handler.answers(status);
        let first = there.spawn(&id);
        there.handler.started(1).await;
        let before = here.store.calls(Verb::Claim);
        let waiting = here.spawn(&id);
        here.store.called(Verb::Claim, before + 2).await;
        there.handler.go();
        assert_eq!(first.await.expect("no panic").status, status);
        // Completed there: a duplicate here. Released there: the one that asks takes it over.
        assert_eq!(waiting.await.expect("no panic").outcome, Some(outcome));
    }
    assert_eq!(here.handler.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn store_that_fails_while_a_duplicate_waits_is_asked_again() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    let waiting = receiver.spawn("evt_1");
    receiver.store.called(Verb::Claim, 3).await;
    receiver.store.breaks_times(Verb::Claim, Fault::Fail, 2);
    receiver.store.called(Verb::Claim, 6).await;
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(waiting.await.expect("no panic").outcome, Some(Outcome::Duplicate));
}

/// Waiters that leave give their seats back.
#[tokio::test(start_paused = true)]
async fn waiters_that_hung_up_free_their_places() {
    let receiver = ControlledReceiver::held(|layer| layer.max_waiting_per_event(1));
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    for round in 0..3 {
        let before = receiver.store.calls(Verb::Claim);
        let waiting = receiver.spawn("evt_1");
        receiver.store.called(Verb::Claim, before + 2).await;
        assert_refused(&receiver.deliver("evt_1").await, RejectionKind::TooManyWaiting);
        waiting.abort();
        assert!(waiting.await.expect_err("aborted").is_cancelled(), "round {round}");
    }
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
}

/// A waiter whose question failed asks again under the same token: the doubtful claim must not be released in between, or
/// the release would meet the claim that it has got by then.
#[tokio::test(start_paused = true)]
async fn waiter_in_doubt_releases_only_when_it_gives_up() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    receiver.store.breaks_times(Verb::Claim, Fault::LoseReply, 2);
    let second = receiver.spawn("evt_1");
    // Its first claim is a question of the delivery, which gives up; so a third takes the waiter's part.
    assert_refused(&second.await.expect("no panic"), RejectionKind::StoreUnavailable);
    receiver.store.called(Verb::Release, 1).await;

    receiver.store.heal(Verb::Claim);
    let third = receiver.spawn("evt_1");
    receiver.store.called(Verb::Claim, 4).await;
    receiver.store.breaks_times(Verb::Claim, Fault::LoseReply, 2);
    receiver.store.called(Verb::Claim, 7).await;
    assert_eq!(receiver.store.calls(Verb::Release), 1, "nothing is released between two questions");
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(third.await.expect("no panic").outcome, Some(Outcome::Duplicate));
    assert_eq!(receiver.handler.runs(), 1);
}
