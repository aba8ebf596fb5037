//! The replay guard: a body that comes back under another id, where nobody signed the id.

use std::time::Duration;

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb, soon};
use crate::support::{Answer, NOW, Receiver, scheme};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tower_webhook::identity::{IdSource, TypeSource};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, MemoryStore, Store};
use tower_webhook::testing::{ManualClock, TestSender};
use tower_webhook::{ConfigErrorKind, EventKey, Outcome, WebhookLayer};

const WINDOW: Duration = Duration::from_secs(24 * 3600);
const LEASE: Duration = Duration::from_secs(30);
const BODY: &str = r#"{"action":"opened"}"#;
const ALL_FAULTS: [Fault; 4] = [Fault::Fail, Fault::LoseReply, Fault::Hang, Fault::HoldReply];

/// Ids and types as GitHub gives them: in headers that it does not sign.
fn unsigned(layer: WebhookLayer) -> WebhookLayer {
    layer
        .id_source(IdSource::unsigned_header("x-delivery").expect("a name"))
        .type_source(TypeSource::header("x-topic").expect("a name"))
}

fn guarded(layer: WebhookLayer) -> WebhookLayer {
    unsigned(layer).replay_guard(WINDOW).expect("a window")
}

fn delivery(receiver: &ControlledReceiver, id: &str) -> Request<Body> {
    receiver.sender.deliver(BODY).header("x-delivery", id).header("x-topic", "issues").request_as()
}

async fn send(receiver: &ControlledReceiver, id: &str) -> Answer {
    receiver.send(delivery(receiver, id)).await
}

fn spawn(receiver: &ControlledReceiver, id: &str) -> JoinHandle<Answer> {
    let (receiver, request) = (receiver.clone(), delivery(receiver, id));
    tokio::spawn(async move { receiver.send(request).await })
}

/// How often the store was asked to claim and to complete.
fn asked(receiver: &ControlledReceiver) -> (usize, usize) {
    (receiver.store.calls(Verb::Claim), receiver.store.calls(Verb::Complete))
}

fn assert_unavailable(answer: &Answer, what: &str) {
    assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable), "{what}");
    assert_eq!((answer.status, answer.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")), "{what}");
}

#[tokio::test]
async fn body_under_another_id_is_refused() {
    let receiver = Receiver::configured(guarded);
    let captured = receiver.event("evt_1").header("x-delivery", "original");
    assert_eq!(receiver.deliver(&captured).await.outcome, Some(Outcome::Completed));
    for id in ["forged", "original ", "ORIGINAL", "original2"] {
        let forged = captured.clone().header("x-delivery", id).request_as();
        assert_eq!(receiver.refuses(forged, StatusCode::UNAUTHORIZED, id).await, RejectionKind::Replayed);
    }
    assert_eq!(receiver.deliver(&captured).await.outcome, Some(Outcome::Duplicate), "the sender's own retry");
    assert_eq!(receiver.runs(), 1);
}

#[tokio::test]
async fn without_the_guard_another_id_is_another_event() {
    let receiver = ControlledReceiver::configured(unsigned);
    for id in ["original", "forged"] {
        assert_eq!(send(&receiver, id).await.outcome, Some(Outcome::Completed));
    }
    assert_eq!(asked(&receiver), (2, 2), "and the store is asked no more often than that");
}

#[tokio::test]
async fn other_bodies_pass_and_other_types_where_they_are_part_of_the_id() {
    let typed = |layer: WebhookLayer| {
        let id = IdSource::unsigned_header("x-delivery").expect("a name").with_type();
        guarded(layer).id_source(id)
    };
    let receiver = ControlledReceiver::configured(typed);
    for (id, topic, body, outcome) in [
        ("1", "issues", BODY, Outcome::Completed),
        ("2", "issues", "{}", Outcome::Completed),
        ("3", "pulls", BODY, Outcome::Completed),
        ("3", "pulls", BODY, Outcome::Duplicate),
        ("4", "pulls", BODY, RejectionKind::Replayed.into()),
        // One id under two bodies is nothing to the guard.
        ("1", "issues", "[]", Outcome::Duplicate),
    ] {
        let request = receiver.sender.deliver(body).header("x-delivery", id).header("x-topic", topic).request_as();
        assert_eq!(receiver.send(request).await.outcome, Some(outcome), "{id} {topic} {body}");
    }
    let untyped = ControlledReceiver::configured(guarded);
    for (id, topic, outcome) in [
        ("1", "issues", Outcome::Completed),
        ("2", "pulls", RejectionKind::Replayed.into()),
        ("1", "x", Outcome::Duplicate),
    ] {
        let request = untyped.sender.deliver(BODY).header("x-delivery", id).header("x-topic", topic).request_as();
        assert_eq!(untyped.send(request).await.outcome, Some(outcome), "{id} {topic}: nobody signed the type");
    }
    let typeless = |id| receiver.sender.deliver(BODY).header("x-delivery", id).request_as();
    assert_eq!(receiver.send(typeless("5")).await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.send(typeless("6")).await.rejection(), Some(RejectionKind::Replayed));
}

#[tokio::test]
async fn retry_runs_again_after_the_handler_failed() {
    let receiver = ControlledReceiver::configured(guarded);
    receiver.handler.answers(500);
    assert_eq!(send(&receiver, "original").await.outcome, Some(Outcome::Released));
    assert_eq!(send(&receiver, "forged").await.rejection(), Some(RejectionKind::Replayed));
    receiver.handler.answers(200);
    assert_eq!(send(&receiver, "original").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_ids_at_once_exactly_one_runs() {
    let receiver = ControlledReceiver::configured(guarded);
    let deliveries: Vec<_> = (0..64).map(|n| spawn(&receiver, &format!("id_{n}"))).collect();
    let mut replayed = 0;
    for delivery in deliveries {
        let answer = delivery.await.expect("no panic");
        match answer.rejection() {
            Some(kind) => assert_eq!(kind, RejectionKind::Replayed),
            None => assert_eq!(answer.outcome, Some(Outcome::Completed)),
        }
        replayed += usize::from(answer.rejection().is_some());
    }
    assert_eq!((receiver.handler.runs(), replayed), (1, 63));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_retries_at_once_one_runs_and_none_is_refused() {
    let receiver = ControlledReceiver::configured(guarded);
    let deliveries: Vec<_> = (0..64).map(|_| spawn(&receiver, "original")).collect();
    for delivery in deliveries {
        assert_eq!(delivery.await.expect("no panic").status, StatusCode::OK);
    }
    assert_eq!(receiver.handler.runs(), 1);
}

#[tokio::test]
async fn guard_ends_with_its_window() {
    let clock = ManualClock::at_unix(NOW);
    let receiver = ControlledReceiver::on(MemoryStore::builder().clock(clock.clone()).build(), guarded);
    send(&receiver, "original").await;
    clock.advance(WINDOW - Duration::from_secs(1));
    assert_eq!(send(&receiver, "forged").await.rejection(), Some(RejectionKind::Replayed));
    assert_eq!(send(&receiver, "original").await.outcome, Some(Outcome::Duplicate));
    clock.advance(Duration::from_secs(1));
    assert_eq!(send(&receiver, "forged").await.outcome, Some(Outcome::Completed), "as documented");
    assert_eq!(send(&receiver, "other").await.rejection(), Some(RejectionKind::Replayed), "bound anew");
}

#[tokio::test]
async fn guard_costs_two_questions_at_first_and_one_later() {
    let receiver = ControlledReceiver::configured(guarded);
    send(&receiver, "original").await;
    assert_eq!((asked(&receiver), receiver.store.held()), ((2, 2), (0, 2)));
    send(&receiver, "original").await;
    assert_eq!(asked(&receiver), (4, 2));
    send(&receiver, "forged").await;
    assert_eq!((asked(&receiver), receiver.store.held()), ((5, 2), (0, 2)), "refused before the event is claimed");
}

#[tokio::test]
async fn signed_ids_and_events_without_one_are_not_guarded() {
    for (source, questions) in [
        (IdSource::signed_header("x-delivery").expect("a name"), (2, 2)),
        (IdSource::signed_header("x-other").expect("a name").or(IdSource::none()), (0, 0)),
        (IdSource::unsigned_header("x-other").expect("a name").or(IdSource::none()), (0, 0)),
    ] {
        let receiver = ControlledReceiver::configured(|layer| guarded(layer).id_source(source.clone()));
        for id in ["1", "2"] {
            assert_eq!(send(&receiver, id).await.outcome, Some(Outcome::Completed), "{source}");
        }
        assert_eq!(asked(&receiver), questions, "{source}");
    }
}

#[tokio::test]
async fn leaving_the_unsigned_id_out_is_no_way_around() {
    let source = IdSource::unsigned_header("x-delivery").expect("a name").or(IdSource::json("action").expect("a path"));
    let receiver = ControlledReceiver::configured(|layer| guarded(layer).id_source(source));
    assert_eq!(send(&receiver, "original").await.outcome, Some(Outcome::Completed));
    let without = receiver.sender.deliver(BODY).header("x-topic", "issues").request_as();
    assert_eq!(receiver.send(without).await.rejection(), Some(RejectionKind::Replayed));
}

#[tokio::test]
async fn two_routes_on_one_store_both_get_the_event() {
    let layer = guarded(WebhookLayer::new(scheme(), MemoryStore::new()));
    let app = axum::Router::new().route("/a", post(|| async {})).route("/b", post(|| async {})).layer(layer);
    for (path, id, status) in [("/a", "1", 200), ("/b", "2", 200), ("/a", "2", 401), ("/b", "1", 401)] {
        let request = TestSender::new(scheme()).uri(path).deliver(BODY).header("x-delivery", id).request_as::<Body>();
        assert_eq!(app.clone().oneshot(request).await.expect("an answer").status(), status, "{path} {id}");
    }
}

#[tokio::test]
async fn window_out_of_bounds_is_refused() {
    let layer = || WebhookLayer::new(scheme(), MemoryStore::new());
    for window in [Duration::ZERO, Duration::from_secs(11 * 365 * 24 * 3600), Duration::MAX] {
        let error = layer().replay_guard(window).expect_err("no window");
        assert_eq!(error.kind(), ConfigErrorKind::Duration);
        assert!(error.to_string().contains("replay guard"), "{error}");
    }
}

/// What is not known to have taken effect is not undone, and need not be: it lets the same id pass.
#[tokio::test(start_paused = true)]
async fn store_that_fails_at_the_guards_claim_is_a_503_and_loses_nothing() {
    for fault in ALL_FAULTS {
        let receiver = ControlledReceiver::configured(guarded);
        receiver.store.breaks(Verb::Claim, fault);
        assert_unavailable(&send(&receiver, "original").await, &format!("{fault:?}"));
        assert_eq!(
            (receiver.handler.runs(), asked(&receiver)),
            (0, (1, 0)),
            "{fault:?}: the event itself was not claimed"
        );
        receiver.store.heal(Verb::Claim);
        assert_eq!(send(&receiver, "original").await.outcome, Some(Outcome::Completed), "{fault:?}: at once");
        assert_eq!(send(&receiver, "forged").await.rejection(), Some(RejectionKind::Replayed), "{fault:?}");
        assert_eq!(receiver.store.calls(Verb::Release), 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn store_that_fails_at_the_guards_completion_is_a_503_and_loses_nothing() {
    for fault in ALL_FAULTS {
        let receiver = ControlledReceiver::configured(guarded);
        receiver.store.breaks(Verb::Complete, fault);
        assert_unavailable(&send(&receiver, "original").await, &format!("{fault:?}"));
        assert_eq!((receiver.handler.runs(), asked(&receiver)), (0, (1, 1)), "{fault:?}");
        receiver.store.heal(Verb::Complete);
        assert_eq!(
            send(&receiver, "forged").await.rejection(),
            Some(RejectionKind::Replayed),
            "{fault:?}: it is claimed"
        );
        assert_eq!(send(&receiver, "original").await.outcome, Some(Outcome::Completed), "{fault:?}: at once");
        tokio::time::sleep(2 * LEASE).await;
        assert_eq!(
            send(&receiver, "forged").await.rejection(),
            Some(RejectionKind::Replayed),
            "{fault:?}: it is bound"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn store_that_fails_after_the_guard_loses_nothing() {
    let receiver = ControlledReceiver::configured(guarded);
    receiver.store.breaks(Verb::Complete, Fault::Hang);
    let first = spawn(&receiver, "original");
    receiver.store.called(Verb::Complete, 1).await;
    receiver.store.breaks(Verb::Claim, Fault::Fail);
    receiver.store.heal(Verb::Complete);
    assert_unavailable(&first.await.expect("no panic"), "the event's own claim");
    receiver.store.heal(Verb::Claim);
    assert_eq!(send(&receiver, "original").await.outcome, Some(Outcome::Completed));
}

/// The process ends, or the sender hangs up, anywhere between the guard's claim and the event's.
#[tokio::test(start_paused = true)]
async fn delivery_dropped_inside_the_guard_is_taken_up_by_the_retry() {
    for (verb, fault) in [
        (Verb::Claim, Fault::Hang),
        (Verb::Claim, Fault::HoldReply),
        (Verb::Complete, Fault::Hang),
        (Verb::Complete, Fault::HoldReply),
    ] {
        let receiver = ControlledReceiver::configured(guarded);
        receiver.store.breaks(verb, fault);
        let dropped = spawn(&receiver, "original");
        receiver.store.called(verb, 1).await;
        dropped.abort();
        receiver.requests.dropped(1).await;
        receiver.store.heal(verb);
        assert_eq!(receiver.layer.drain_handle().running(), 0, "{verb:?} {fault:?}: nothing goes on");
        assert_eq!(send(&receiver, "original").await.outcome, Some(Outcome::Completed), "{verb:?} {fault:?}");
        tokio::time::sleep(2 * LEASE).await;
        assert_eq!(send(&receiver, "forged").await.rejection(), Some(RejectionKind::Replayed), "{verb:?} {fault:?}");
        assert_eq!(receiver.handler.runs(), 1);
    }
}

/// A guard that never came to be bound, for an event that never ran, is nobody's after a lease.
#[tokio::test(start_paused = true)]
async fn body_that_never_ran_is_free_again_after_a_lease() {
    let receiver = ControlledReceiver::configured(guarded);
    receiver.store.breaks_times(Verb::Complete, Fault::Fail, 1);
    send(&receiver, "first").await;
    assert_eq!(send(&receiver, "second").await.rejection(), Some(RejectionKind::Replayed));
    tokio::time::sleep(LEASE).await;
    assert_eq!(send(&receiver, "second").await.outcome, Some(Outcome::Completed));
    assert_eq!(send(&receiver, "first").await.rejection(), Some(RejectionKind::Replayed));
}

#[tokio::test(start_paused = true)]
async fn guard_that_another_id_took_over_meanwhile_lets_only_that_one_run() {
    let patient = Duration::from_secs(3600);
    let receiver = ControlledReceiver::configured(|layer| guarded(layer).claim_deadline(patient).expect("a deadline"));
    receiver.store.breaks(Verb::Complete, Fault::Hang);
    let slow = spawn(&receiver, "slow");
    receiver.store.called(Verb::Complete, 1).await;
    tokio::time::sleep(LEASE).await;
    let quick = spawn(&receiver, "quick");
    receiver.store.called(Verb::Complete, 2).await;
    receiver.store.heal(Verb::Complete);
    assert_unavailable(&soon(slow).await.expect("no panic"), "not known to be a replay yet");
    assert_eq!(soon(quick).await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(send(&receiver, "slow").await.rejection(), Some(RejectionKind::Replayed), "known now");
    assert_eq!(receiver.handler.runs(), 1);
}

/// The guard's record has a key that no event can have.
#[tokio::test]
async fn key_of_the_guard_is_in_reach_of_no_event() {
    let receiver = ControlledReceiver::configured(guarded);
    send(&receiver, "original").await;
    let own = ControlledReceiver::key("original");
    let keys = receiver.store.keys();
    let guard = keys.iter().find(|key| **key != own.as_str()).expect("two keys");
    let id = guard.rsplit('/').next().expect("the id is last");
    assert!(id.starts_with("tower-webhook:replay-guard:"), "{id}");
    let held = EventKey::new("/webhooks", None, id);
    let claim = receiver.store.inner.claim(&ClaimRequest::new(&held, ClaimToken::random(), LEASE)).await;
    assert_eq!(claim.ok(), Some(Claim::Completed { same_body: false }), "there it is");
    assert_eq!(send(&receiver, id).await.rejection(), Some(RejectionKind::InvalidId));
}
