//! What becomes of a delivery whose response future is dropped: by an outer timeout, by the server, by the runtime's end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use tower::timeout::Timeout;
use tower::{Service, ServiceExt};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::{Outcome, WebhookLayer};

use crate::support::faulty::{Fault, Verb};
use crate::support::rig::Rig;

#[tokio::test(start_paused = true)]
async fn outer_timeout_leaves_the_handler_running() {
    let rig = Rig::held(|layer| layer);
    let timed = Timeout::new(rig.app.clone(), Duration::from_secs(3));
    let error = timed.oneshot(rig.event("evt_1").request::<Body>()).await.expect_err("the timeout");
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert_eq!((rig.handler.runs(), rig.handler.dropped_so_far()), (1, 0));
    assert_eq!(rig.layer.drain_handle().running(), 1);
    assert_eq!(rig.deliver("evt_1").await.rejection(), Some(RejectionKind::InFlight), "never 200 before it is done");

    let waiting = rig.spawn("evt_1");
    rig.store.called(Verb::Claim, rig.store.calls(Verb::Claim) + 2).await;
    rig.handler.go();
    assert_eq!(waiting.await.expect("no panic").outcome, Some(Outcome::Duplicate), "woken by the detached one");
    assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!((rig.handler.runs(), rig.layer.drain_handle().running()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn opting_out_drops_the_handler_and_releases() {
    let rig = Rig::held(WebhookLayer::cancel_on_disconnect);
    let timed = Timeout::new(rig.app.clone(), Duration::from_secs(3));
    assert!(timed.oneshot(rig.event("evt_1").request::<Body>()).await.is_err());
    rig.handler.dropped(1).await;
    rig.store.called(Verb::Release, 1).await;
    assert_eq!((rig.store.held(), rig.layer.drain_handle().running()), ((0, 0), 0));
    rig.handler.go();
    assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Completed), "the retry runs");
    assert_eq!(rig.handler.runs(), 2);
}

/// What the handler handed to a task of its own must not go on as if the claim were still there.
#[tokio::test(start_paused = true)]
async fn opting_out_ends_the_hold_with_the_claim() {
    let rig = Rig::held(WebhookLayer::cancel_on_disconnect);
    let delivery = rig.spawn("evt_1");
    let event = rig.handler.started(1).await;
    assert!(event.is_held());
    delivery.abort();
    rig.store.called(Verb::Release, 1).await;
    tokio::task::yield_now().await;
    assert!(!event.is_held(), "the claim was released");
}

/// The duplicate that waits for it is told, or takes over; it does not wait in vain.
#[tokio::test(start_paused = true)]
async fn opting_out_does_not_strand_those_who_wait() {
    let rig = Rig::held(WebhookLayer::cancel_on_disconnect);
    let first = rig.spawn("evt_1");
    rig.handler.started(1).await;
    let waiting = rig.spawn("evt_1");
    rig.store.called(Verb::Claim, 3).await;
    rig.handler.hold_no_more();
    first.abort();
    let answer = waiting.await.expect("no panic");
    assert_ne!(answer.rejection(), Some(RejectionKind::InFlight), "the first is gone");
}

/// Opted out or not, work that is done gets settled.
#[tokio::test(start_paused = true)]
async fn hanging_up_while_the_outcome_is_stored_loses_nothing() {
    for cancel in [false, true] {
        for fault in [Fault::Hang, Fault::HoldReply] {
            let rig = Rig::configured(|layer| if cancel { layer.cancel_on_disconnect() } else { layer });
            rig.store.breaks(Verb::Complete, fault);
            let delivery = rig.spawn("evt_1");
            rig.store.called(Verb::Complete, 1).await;
            delivery.abort();
            rig.requests.dropped(1).await;
            rig.store.heal(Verb::Complete);
            assert_eq!(rig.layer.drain_handle().drain(Duration::from_secs(60)).await.dropped, 0);
            assert_eq!((rig.handler.runs(), rig.store.held()), (1, (0, 1)), "cancel: {cancel}, {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_up_before_the_claim_leaves_nothing_behind() {
    let rig = Rig::new();
    let mut service = rig.app.clone();
    let unpolled = service.call(rig.event("evt_1").request::<Body>());
    drop(unpolled);
    assert!(rig.store.keys().is_empty());
    assert_eq!((rig.handler.runs(), rig.layer.drain_handle().running()), (0, 0));
}

/// A runtime that shuts down drops the delivery, and drops it again when it has been spawned for that.
#[test]
fn runtime_that_ends_drops_running_deliveries_quietly() {
    const NAME: &str = "ending runtime";
    let panics = count_panics_of(NAME);
    for threads in [1, 4] {
        for detached in [false, true] {
            let ending = move || end_runtime(NAME, threads, detached);
            let rig = std::thread::Builder::new().name(NAME.to_owned()).spawn(ending).expect("a thread");
            let rig = rig.join().expect("no panic");
            assert_eq!(panics.load(Ordering::SeqCst), 0, "{threads} threads, detached: {detached}");
            assert_eq!((rig.handler.runs(), rig.handler.dropped_so_far()), (8, 8), "each once, and none twice");
            assert_eq!(rig.layer.drain_handle().running(), 0);
        }
    }
}

/// Ends a runtime in which eight deliveries run and one waits.
fn end_runtime(name: &str, threads: usize, detached: bool) -> Rig {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(threads).thread_name(name).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let rig = Rig::held(|layer| layer);
        let running: Vec<_> = (0..8).map(|n| rig.spawn(&format!("evt_{n}"))).collect();
        rig.handler.started(8).await;
        rig.spawn("evt_0");
        rig.store.called(Verb::Claim, 10).await;
        if detached {
            running.iter().for_each(tokio::task::JoinHandle::abort);
            rig.requests.dropped(8).await;
        }
        rig
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
    let rig = Rig::held(|layer| layer);
    let mut delivery = Box::pin(rig.app.clone().oneshot(rig.event("evt_1").request::<Body>()));
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = &mut delivery => panic!("the handler is held"),
            _ = rig.handler.started(1) => {}
        }
    });
    drop(delivery);
    drop(runtime);
    assert_eq!((rig.handler.runs(), rig.handler.dropped_so_far()), (1, 1));
}
