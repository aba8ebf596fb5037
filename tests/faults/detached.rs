//! What becomes of a delivery whose response future is dropped: by an outer timeout, by the server, by the runtime's end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tower::timeout::Timeout;
use tower::{Service, ServiceExt};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::{Outcome, WebhookLayer};

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb};

#[tokio::test(start_paused = true)]
async fn outer_timeout_leaves_the_handler_running() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let timed = Timeout::new(receiver.app.clone(), Duration::from_secs(3));
    let error = timed.oneshot(receiver.event("evt_1").request()).await.expect_err("the timeout");
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert_eq!((receiver.handler.runs(), receiver.handler.dropped_so_far()), (1, 0));
    assert_eq!(receiver.layer.drain_handle().running(), 1);
    assert_eq!(
        receiver.deliver("evt_1").await.rejection(),
        Some(RejectionKind::InFlight),
        "never 200 before it is done"
    );

    let waiting = receiver.spawn("evt_1");
    receiver.store.called(Verb::Claim, receiver.store.calls(Verb::Claim) + 2).await;
    receiver.handler.go();
    assert_eq!(waiting.await.expect("no panic").outcome, Some(Outcome::Duplicate), "woken by the detached one");
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!((receiver.handler.runs(), receiver.layer.drain_handle().running()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn opting_out_drops_the_handler_and_releases() {
    let receiver = ControlledReceiver::held(WebhookLayer::cancel_on_disconnect);
    let timed = Timeout::new(receiver.app.clone(), Duration::from_secs(3));
    assert!(timed.oneshot(receiver.event("evt_1").request()).await.is_err());
    receiver.handler.dropped(1).await;
    receiver.store.called(Verb::Release, 1).await;
    assert_eq!((receiver.store.held(), receiver.layer.drain_handle().running()), ((0, 0), 0));
    receiver.handler.go();
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed), "the retry runs");
    assert_eq!(receiver.handler.runs(), 2);
}

/// What the handler handed to a task of its own must not go on as if the claim were still there.
#[tokio::test(start_paused = true)]
async fn opting_out_ends_the_hold_with_the_claim() {
    let receiver = ControlledReceiver::held(WebhookLayer::cancel_on_disconnect);
    let delivery = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    assert!(event.is_held());
    delivery.abort();
    receiver.store.called(Verb::Release, 1).await;
    tokio::task::yield_now().await;
    assert!(!event.is_held(), "the claim was released");
}

/// The duplicate that waits for it is told, or takes over; it does not wait in vain.
#[tokio::test(start_paused = true)]
async fn opting_out_does_not_strand_those_who_wait() {
    let receiver = ControlledReceiver::held(WebhookLayer::cancel_on_disconnect);
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    let waiting = receiver.spawn("evt_1");
    receiver.store.called(Verb::Claim, 3).await;
    receiver.handler.hold_no_more();
    first.abort();
    let answer = waiting.await.expect("no panic");
    assert_ne!(answer.rejection(), Some(RejectionKind::InFlight), "the first is gone");
}

/// Opted out or not, work that is done gets settled.
#[tokio::test(start_paused = true)]
async fn hanging_up_while_the_outcome_is_stored_loses_nothing() {
    for cancel in [false, true] {
        for fault in [Fault::Hang, Fault::HoldReply] {
            let receiver =
                ControlledReceiver::configured(|layer| if cancel { layer.cancel_on_disconnect() } else { layer });
            receiver.store.breaks(Verb::Complete, fault);
            let delivery = receiver.spawn("evt_1");
            receiver.store.called(Verb::Complete, 1).await;
            delivery.abort();
            receiver.requests.dropped(1).await;
            receiver.store.heal(Verb::Complete);
            assert_eq!(receiver.layer.drain_handle().drain(Duration::from_secs(60)).await.dropped, 0);
            assert_eq!((receiver.handler.runs(), receiver.store.held()), (1, (0, 1)), "cancel: {cancel}, {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_up_before_the_claim_leaves_nothing_behind() {
    let receiver = ControlledReceiver::new();
    let mut service = receiver.app.clone();
    let unpolled = service.call(receiver.event("evt_1").request());
    drop(unpolled);
    assert!(receiver.store.keys().is_empty());
    assert_eq!((receiver.handler.runs(), receiver.layer.drain_handle().running()), (0, 0));
}

/// A runtime that shuts down drops the delivery, and drops it again when it has been spawned for that.
#[test]
fn runtime_that_ends_drops_running_deliveries_quietly() {
    const NAME: &str = "ending runtime";
    let panics = count_panics_of(NAME);
    for threads in [1, 4] {
        for detached in [false, true] {
            let ending = move || end_runtime(NAME, threads, detached);
            let receiver = std::thread::Builder::new().name(NAME.to_owned()).spawn(ending).expect("a thread");
            let receiver = receiver.join().expect("no panic");
            assert_eq!(panics.load(Ordering::SeqCst), 0, "{threads} threads, detached: {detached}");
            assert_eq!(
                (receiver.handler.runs(), receiver.handler.dropped_so_far()),
                (8, 8),
                "each once, and none twice"
            );
            assert_eq!(receiver.layer.drain_handle().running(), 0);
        }
    }
}

/// Ends a runtime in which eight deliveries run and one waits.
fn end_runtime(name: &str, threads: usize, detached: bool) -> ControlledReceiver {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(threads).thread_name(name).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let receiver = ControlledReceiver::held(|layer| layer);
        let running: Vec<_> = (0..8).map(|n| receiver.spawn(&format!("evt_{n}"))).collect();
        receiver.handler.started(8).await;
        receiver.spawn("evt_0");
        receiver.store.called(Verb::Claim, 10).await;
        if detached {
            running.iter().for_each(tokio::task::JoinHandle::abort);
            receiver.requests.dropped(8).await;
        }
        receiver
    })
}

/// Counts the panics on threads of this name, those too that a runtime catches.
fn count_panics_of(name: &'static str) -> Arc<AtomicUsize> {
    let (panics, previous) = (Arc::new(AtomicUsize::new(0)), std::panic::take_hook());
    let counter = panics.clone();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() == Some(name) {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        previous(info);
    }));
    panics
}

/// Where there is no runtime at all, dropping is quiet as well.
#[test]
fn dropping_without_a_runtime_is_quiet() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let receiver = ControlledReceiver::held(|layer| layer);
    let mut delivery = Box::pin(receiver.app.clone().oneshot(receiver.event("evt_1").request()));
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = &mut delivery => panic!("the handler is held"),
            _ = receiver.handler.started(1) => {}
        }
    });
    drop(delivery);
    drop(runtime);
    assert_eq!((receiver.handler.runs(), receiver.handler.dropped_so_far()), (1, 1));
}
