//! How much runs at once, and how much may wait.

use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::inbox::Inbox;
use tower_webhook::queue::Queue;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Hold, Store};
use tower_webhook::testing::ManualClock;
use tower_webhook::{EventKey, Outcome, WebhookLayer, Worker};

use crate::inbox::fixture::Fixture;
use crate::support::faulty::{Fault, Faulty, Verb};
use crate::support::logs::Logs;
use crate::support::{NOW, scheme};

/// Runs a worker in the background until the test ends it.
fn start(worker: Worker<axum::Router>) -> tokio::sync::oneshot::Sender<()> {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(worker.run(async { _ = stopped.await }));
    stop
}

/// How many are running, once nothing changes any more.
async fn running(fixture: &Fixture) -> usize {
    tokio::time::sleep(Duration::from_secs(5)).await;
    fixture.handler.runs()
}

#[tokio::test(start_paused = true)]
async fn no_more_run_at_once_than_allowed() {
    let fixture = Fixture::new();
    fixture.handler.hold();
    for n in 0..10 {
        fixture.accepts(&fixture.event(&format!("evt_{n}"))).await;
    }
    let _worker = start(fixture.worker().concurrency(3).expect("some"));
    assert_eq!(running(&fixture).await, 3);
    fixture.handler.go();
    assert_eq!(running(&fixture).await, 4);
    for _ in 0..9 {
        fixture.handler.go();
    }
    fixture.handler.finished(10).await;
}

#[tokio::test(start_paused = true)]
async fn slow_type_leaves_places_to_others() {
    let fixture = Fixture::new();
    fixture.handler.hold();
    for n in 0..20 {
        fixture.accepts(&fixture.typed(&format!("slow_{n}"), "slow")).await;
    }
    for n in 0..3 {
        fixture.accepts(&fixture.typed(&format!("quick_{n}"), "quick")).await;
    }
    let worker = fixture.worker().concurrency(8).expect("some").concurrency_per_type(2).expect("some");
    let _worker = start(worker);
    assert_eq!(running(&fixture).await, 4, "two of each type");
    let mut types = Vec::new();
    for n in 1..=4 {
        types.push(fixture.handler.started(n).await.event_type().map(str::to_owned));
    }
    types.sort_unstable();
    assert_eq!(types, ["quick", "quick", "slow", "slow"].map(|name| Some(name.to_owned())));
    for _ in 0..23 {
        fixture.handler.go();
    }
    fixture.handler.finished(23).await;
    for n in 1..=23 {
        assert_eq!(fixture.handler.started(n).await.attempt(), Some(1), "what was put back was no attempt");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_endpoint_leaves_places_to_others() {
    let fixture = Fixture::new();
    fixture.handler.hold();
    for n in 0..9 {
        fixture.accepts(&fixture.event(&format!("slow_{n}"))).await;
    }
    let other = fixture.sender.clone().uri("/other");
    fixture.accepts(&other.deliver(r#"{"id":"other"}"#)).await;
    let _worker = start(fixture.worker().concurrency(5).expect("some").concurrency_per_endpoint(1).expect("some"));
    assert_eq!(running(&fixture).await, 2);
    let mut endpoints =
        [fixture.handler.started(1).await, fixture.handler.started(2).await].map(|e| e.endpoint().to_owned());
    endpoints.sort_unstable();
    assert_eq!(endpoints, ["/other", "/webhooks"]);
    for _ in 0..10 {
        fixture.handler.go();
    }
    fixture.handler.finished(10).await;
}

#[tokio::test]
async fn worker_leases_what_its_service_has_routes_for() {
    let fixture = Fixture::new();
    fixture.accepts(&fixture.event("here")).await;
    fixture.accepts(&fixture.sender.clone().uri("/other").deliver(r#"{"id":"there"}"#)).await;
    assert_eq!(fixture.worker().endpoints(["/other"]).run_until_idle().await, 1);
    assert_eq!(fixture.handler.started(1).await.id(), "there");
    assert_eq!(fixture.worker().run_until_idle().await, 1);
}

#[tokio::test]
async fn batches_are_no_larger_than_asked_for() {
    let fixture = Fixture::new();
    for n in 0..10 {
        fixture.accepts(&fixture.event(&format!("evt_{n}"))).await;
    }
    let inbox = Faulty::new(fixture.inbox.clone());
    let worker = Worker::new(inbox.clone(), fixture.handlers.clone());
    assert_eq!(worker.batch(3).expect("some").run_until_idle().await, 10);
    assert!(
        inbox.asked_for().len() >= 4 && inbox.asked_for().iter().all(|limit| *limit <= 3),
        "{:?}",
        inbox.asked_for()
    );
}

#[tokio::test(start_paused = true)]
async fn full_inbox_answers_503_until_workers_have_caught_up() {
    let fixture = Fixture::with_inbox(|inbox| inbox.max_waiting_events(3).expect("some"));
    // It is looked at once a second.
    for n in 0..3 {
        fixture.accepts(&fixture.event(&format!("evt_{n}"))).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let answer = fixture.deliver("evt_3").await;
    assert_eq!((answer.status, answer.rejection()), (StatusCode::SERVICE_UNAVAILABLE, Some(RejectionKind::Backlogged)));
    assert_eq!(answer.retry_after(), Some("5"));
    assert_eq!(fixture.inbox.waiting(10).await.expect("a count"), 3);
    assert_eq!(fixture.deliver("evt_0").await.outcome, Some(Outcome::Duplicate), "what is there adds nothing");
    assert_eq!(fixture.worker().run_until_idle().await, 3);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fixture.deliver("evt_3").await.outcome, Some(Outcome::Accepted));
}

#[tokio::test(start_paused = true)]
async fn deliveries_that_ask_whether_there_is_room_are_admitted_first_and_drained() {
    let fixture = Fixture::new();
    let inbox = Faulty::new(fixture.inbox.clone());
    let clock = ManualClock::at_unix(NOW);
    let layer = WebhookLayer::inbox(scheme(), of_one(&inbox)).clock(clock);
    let layer = layer.max_running(10).expect("some");
    let app = Fixture { app: fixture.handlers.clone().layer(layer.clone()), ..fixture };
    app.accepts(&app.event("first")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;

    inbox.breaks(Verb::Peek, Fault::Hang);
    let mut deliveries = tokio::task::JoinSet::new();
    for n in 0..300 {
        let app = app.clone();
        deliveries.spawn(async move { app.deliver(&format!("evt_{n}")).await });
    }
    inbox.called(Verb::Peek, 10).await;
    for _ in 0..290 {
        let answer = deliveries.join_next().await.expect("a delivery").expect("no panic");
        assert_eq!(answer.rejection(), Some(RejectionKind::Busy));
    }
    assert_eq!((inbox.calls(Verb::Peek), layer.drain_handle().running()), (10, 10));
    let drain = tokio::spawn({
        let handle = layer.drain_handle();
        async move { handle.drain(Duration::from_secs(60)).await }
    });
    inbox.heal(Verb::Peek);
    assert_eq!(drain.await.expect("no panic").dropped, 0);
    while let Some(answer) = deliveries.join_next().await {
        assert_eq!(answer.expect("no panic").rejection(), Some(RejectionKind::Backlogged));
    }
}

#[tokio::test(start_paused = true)]
async fn inbox_that_cannot_say_whether_it_knows_an_event_is_unavailable() {
    let fixture = Fixture::new();
    let inbox = Faulty::new(fixture.inbox.clone());
    let clock = ManualClock::at_unix(NOW);
    let layer = WebhookLayer::inbox(scheme(), of_one(&inbox)).clock(clock);
    let app = Fixture { app: fixture.handlers.clone().layer(layer), ..fixture };
    app.accepts(&app.event("first")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    inbox.breaks(Verb::Peek, Fault::Fail);
    assert_eq!(app.deliver("second").await.rejection(), Some(RejectionKind::StoreUnavailable));
    inbox.heal(Verb::Peek);
    assert_eq!(app.deliver("second").await.rejection(), Some(RejectionKind::Backlogged));
    assert_eq!(app.deliver("first").await.outcome, Some(Outcome::Duplicate));
}

#[tokio::test(start_paused = true)]
async fn inbox_that_does_not_say_how_many_wait_is_unavailable_within_one_deadline() {
    let fixture = Fixture::new();
    let inbox = Faulty::new(fixture.inbox.clone());
    let clock = ManualClock::at_unix(NOW);
    let layer = WebhookLayer::inbox(scheme(), of_one(&inbox)).clock(clock);
    let app = Fixture { app: fixture.handlers.clone().layer(layer), ..fixture };
    inbox.breaks(Verb::Waiting, Fault::Hang);
    inbox.breaks(Verb::Accept, Fault::Hang);
    let began = tokio::time::Instant::now();
    assert_eq!(app.deliver("first").await.rejection(), Some(RejectionKind::StoreUnavailable));
    // Time is tokio's, and paused.
    assert!(began.elapsed() < Duration::from_millis(2_100), "{:?}", began.elapsed());
    inbox.heal(Verb::Accept);
    inbox.breaks(Verb::Waiting, Fault::Fail);
    assert_eq!(app.deliver("first").await.outcome, Some(Outcome::Accepted), "events that can be kept are");
}

/// A type that is slow, a worker with room for others, and 500 events of that type: what is leased is run.
#[tokio::test(start_paused = true)]
async fn worker_near_a_limit_puts_nothing_back_and_keeps_the_order() {
    const EVENTS: usize = 500;
    let started = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = started.clone();
    let handler = async move |event: tower_webhook::WebhookEvent| {
        let number: u64 = event.id().parse().expect("a number");
        noted.lock().expect("no panic").push(number);
        // Of different lengths, so that they end one by one and in another order.
        tokio::time::sleep(Duration::from_millis(1 + number * 7 % 13)).await;
    };
    let handlers = axum::Router::new().route("/webhooks", axum::routing::post(handler));
    let fixture = Fixture::handling(handlers, |layer| layer);
    for n in 0..EVENTS {
        fixture.accepts(&fixture.typed(&n.to_string(), "slow")).await;
    }
    let inbox = Faulty::new(fixture.inbox.clone());
    let worker = Worker::new(inbox.clone(), fixture.handlers.clone()).concurrency_per_type(16).expect("some");
    assert_eq!(worker.run_until_idle().await, EVENTS);
    assert_eq!(inbox.calls(Verb::Release), 0, "no event was leased that there was no room for");
    let started = started.lock().expect("no panic").clone();
    let late = started.iter().enumerate().map(|(place, number)| place.abs_diff(*number as usize)).max();
    assert!(late < Some(16), "an event was started {late:?} places from its own");
}

#[tokio::test(start_paused = true)]
async fn endpoints_and_limits_combine() {
    let fixture = Fixture::new();
    fixture.handler.hold();
    for n in 0..4 {
        fixture.accepts(&fixture.typed(&format!("x{n}"), "x")).await;
        fixture.accepts(&fixture.typed(&format!("y{n}"), "y")).await;
        let other = fixture.sender.clone().uri("/other");
        fixture.accepts(&other.deliver(format!(r#"{{"id":"z{n}","type":"z"}}"#))).await;
    }
    let inbox = Faulty::new(fixture.inbox.clone());
    let worker = Worker::new(inbox.clone(), fixture.handlers.clone()).endpoints(["/webhooks"]).concurrency(10);
    let worker = worker.and_then(|worker| worker.concurrency_per_type(2)?.concurrency_per_endpoint(3)).expect("some");
    let _worker = start(worker);
    assert_eq!(running(&fixture).await, 3, "three of the endpoint, two of each type, none of another endpoint");
    for n in 1..=8 {
        let kind = fixture.handler.started(n).await;
        assert_eq!(kind.endpoint(), "/webhooks");
        fixture.handler.go();
    }
    fixture.handler.finished(8).await;
    assert_eq!(running(&fixture).await, 8, "the other endpoint's are left alone");
    assert_eq!(inbox.calls(Verb::Release), 0);
    assert_eq!(fixture.inbox.waiting(10).await.expect("a count"), 4);
}

/// An inbox in which one event may wait.
fn of_one(queue: &Faulty) -> Inbox {
    Inbox::new(queue.clone()).max_waiting_events(1).expect("some")
}

#[test]
fn settings_that_stop_a_worker_are_refused() {
    let fixture = Fixture::new();
    assert!(fixture.worker().concurrency(0).is_err());
    assert!(fixture.worker().batch(0).is_err());
    assert!(fixture.worker().concurrency_per_type(0).is_err());
    assert!(fixture.worker().concurrency_per_endpoint(0).is_err());
    assert!(fixture.worker().lease(Duration::ZERO).is_err());
    assert!(fixture.worker().poll_every(Duration::ZERO).is_err());
    assert!(fixture.worker().claim_deadline(Duration::MAX).is_err());
    assert!(Inbox::new(fixture.inbox.clone()).max_waiting_events(0).is_err());
}

/// A delivery of this id runs inline, and the next one is to be queued. The queue is slow to say that there is room: that
/// takes no time from the questions of the wait, which have a deadline each.
#[tokio::test(start_paused = true)]
async fn slow_answer_whether_there_is_room_shortens_no_question_of_the_wait() {
    let (logs, _guard) = Logs::capture();
    let fixture = Fixture::new();
    let queue = Faulty::new(fixture.inbox.clone());
    let inbox = Inbox::new(queue.clone()).max_waiting_events(100).expect("some");
    let layer = WebhookLayer::inbox(scheme(), inbox).clock(ManualClock::at_unix(NOW));
    let app = fixture.handlers.clone().layer(layer);
    let fixture = Fixture { app, ..fixture };

    let (key, token) = (EventKey::new("/webhooks", None, "evt_1"), ClaimToken::random());
    let inline = ClaimRequest::new(&key, token, Duration::from_secs(30));
    assert!(matches!(queue.inner.claim(&inline).await, Ok(Claim::Fresh { .. })));
    queue.breaks(Verb::Waiting, Fault::Hang);
    let delivering = tokio::spawn({
        let fixture = fixture.clone();
        async move { fixture.deliver("evt_1").await }
    });
    queue.called(Verb::Waiting, 1).await;
    tokio::time::sleep(Duration::from_millis(1_900)).await;
    queue.heal(Verb::Waiting);
    queue.called(Verb::Accept, 2).await;
    queue.breaks(Verb::Accept, Fault::Hang);
    queue.called(Verb::Accept, 3).await;
    assert_eq!(queue.inner.release(&key, token).await.expect("an answer"), Hold::Held);
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.heal(Verb::Accept);
    assert_eq!(delivering.await.expect("no panic").outcome, Some(Outcome::Accepted));
    assert_eq!(logs.count("the store failed"), 0, "{:#?}", logs.lines());
}
