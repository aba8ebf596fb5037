//! Which event a delivery carries: ids and types from chains of places, and events that have no id.

use std::collections::HashSet;
use std::time::Duration;

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb};
use crate::support::{Answer, Receiver};
use axum::http::StatusCode;
use tower_webhook::identity::{IdSource, TypeSource};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::testing::TestDelivery;
use tower_webhook::{Outcome, WebhookEvent, WebhookLayer};

const LEASE: Duration = Duration::from_secs(30);
const VERBS: [Verb; 4] = [Verb::Claim, Verb::Renew, Verb::Complete, Verb::Release];

fn json(path: &str) -> IdSource {
    IdSource::json(path).expect(path)
}

fn header(name: &str) -> IdSource {
    IdSource::unsigned_header(name).expect(name)
}

fn topics(layer: WebhookLayer) -> WebhookLayer {
    layer.type_source(TypeSource::header("x-topic").expect("a name"))
}

/// A receiver whose events have no id.
fn without_ids(layer: WebhookLayer) -> WebhookLayer {
    layer.id_source(json("event_id").or(IdSource::none()))
}

/// An event without an id, from a task of its own.
fn spawn(receiver: &ControlledReceiver) -> tokio::task::JoinHandle<Answer> {
    let (receiver, request) = (receiver.clone(), receiver.sender.deliver(r#"{"type":"ping"}"#).request_as());
    tokio::spawn(async move { receiver.send(request).await })
}

fn assert_store_untouched(receiver: &ControlledReceiver) {
    assert_eq!(VERBS.map(|verb| receiver.store.calls(verb)), [0; 4]);
    assert!(receiver.store.keys().is_empty());
}

#[tokio::test]
async fn chain_takes_the_first_id_that_is_there() {
    let receiver =
        Receiver::configured(|layer| layer.id_source(json("event_id").or(json("data.id")).or(header("x-id"))));
    let sender = receiver.sender.clone();
    let delivery = |body: &'static str, id: &str| sender.deliver(body).header("x-id", id);
    for (delivery, outcome) in [
        (delivery(r#"{"event_id":"a","data":{"id":"b"}}"#, "c"), Outcome::Completed),
        (delivery(r#"{"event_id":"a"}"#, "d"), Outcome::Duplicate),
        (delivery(r#"{"data":{"id":"b"}}"#, "c"), Outcome::Completed),
        (delivery(r#"{"data":{}}"#, "c"), Outcome::Completed),
        (delivery("not=json", "c"), Outcome::Duplicate),
        (delivery("not=json", "e"), Outcome::Completed),
    ] {
        assert_eq!(receiver.deliver(&delivery).await.outcome, Some(outcome), "{delivery:?}");
    }
    let nowhere = receiver.deliver(&sender.deliver("{}")).await;
    assert_eq!((nowhere.status, nowhere.rejection()), (StatusCode::BAD_REQUEST, Some(RejectionKind::InvalidId)));
}

#[tokio::test]
async fn unusable_id_is_refused_though_another_place_follows() {
    let receiver = Receiver::configured(|layer| layer.id_source(json("id").or(header("x-id")).or(IdSource::none())));
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(256));
    for body in [r#"{"id":7}"#, r#"{"id":null}"#, r#"{"id":" "}"#, r#"{"id":"a\u0000"}"#, &long] {
        let request = receiver.sender.deliver(body.to_owned()).header("x-id", "usable").request_as();
        assert_eq!(receiver.refuses(request, StatusCode::BAD_REQUEST, body).await, RejectionKind::InvalidId);
    }
    let request = receiver.sender.deliver("{}").header("x-id", " ").request_as();
    assert_eq!(receiver.refuses(request, StatusCode::BAD_REQUEST, "blank").await, RejectionKind::InvalidId);
}

#[tokio::test]
async fn event_is_authenticated_only_where_the_whole_chain_is() {
    for (source, authenticated) in [
        (json("id").or(IdSource::none()), true),
        (json("id").or(header("x-id")), false),
        (header("x-id").or(json("id")), false),
    ] {
        let receiver = ControlledReceiver::configured(|layer| layer.id_source(source));
        receiver.deliver("evt_1").await;
        assert_eq!(receiver.handler.started(1).await.id_is_authenticated(), authenticated);
    }
}

#[tokio::test]
async fn topics_with_the_same_id_or_the_same_bytes_are_two_events() {
    for source in [json("id"), IdSource::body_digest()] {
        for (typed, second) in [(false, Outcome::Duplicate), (true, Outcome::Completed)] {
            let source = if typed { source.clone().with_type() } else { source.clone() };
            let receiver = Receiver::configured(|layer| topics(layer).id_source(source));
            let event = |topic| receiver.event("evt_1").header("x-topic", topic);
            for (topic, outcome) in
                [("orders/paid", Outcome::Completed), ("orders/updated", second), ("orders/paid", Outcome::Duplicate)]
            {
                assert_eq!(receiver.deliver(&event(topic)).await.outcome, Some(outcome), "{topic}, typed: {typed}");
            }
        }
    }
}

#[tokio::test]
async fn typed_id_is_what_the_handler_sees() {
    let receiver = ControlledReceiver::configured(|layer| topics(layer).id_source(json("id").with_type()));
    receiver.send(receiver.event("evt_1").header("x-topic", "orders/paid").request_as()).await;
    receiver.deliver("evt_1").await;
    assert_eq!(receiver.handler.started(1).await.id(), "11:orders/paid:evt_1");
    assert_eq!(receiver.handler.started(2).await.id(), "0::evt_1", "an absent type is the empty one");
}

#[tokio::test]
async fn types_are_tried_in_order() {
    let types = || TypeSource::json("kind").expect("a path").or(TypeSource::header("x-topic").expect("a name"));
    let receiver = ControlledReceiver::configured(|layer| layer.type_source(types()));
    for (n, body, event_type) in [
        (1, r#"{"id":"1","kind":"paid"}"#, Some("paid")),
        (2, r#"{"id":"2"}"#, Some("topic")),
        (3, r#"{"id":"3","kind":9}"#, Some("topic")),
    ] {
        receiver.send(receiver.sender.deliver(body).header("x-topic", "topic").request_as()).await;
        assert_eq!(receiver.handler.started(n).await.event_type(), event_type, "{body}");
    }
    receiver.send(receiver.sender.deliver(r#"{"id":"4"}"#).request_as()).await;
    assert_eq!(receiver.handler.started(4).await.event_type(), None);
}

#[tokio::test]
async fn event_without_an_id_runs_at_every_delivery_and_is_not_stored() {
    let receiver = ControlledReceiver::configured(without_ids);
    for status in [200, 200, 500, 200] {
        receiver.handler.answers(status);
        assert_eq!(spawn(&receiver).await.expect("no panic").status, status);
    }
    let mut ids = HashSet::new();
    for run in 1..=4 {
        let event = receiver.handler.started(run).await;
        assert!(!event.is_deduplicated() && !event.id_is_authenticated());
        assert_eq!((event.event_type(), event.attempt(), event.endpoint()), (Some("ping"), None, "/webhooks"));
        assert!(ids.insert(event.id().to_owned()), "made up anew each time");
    }
    assert_store_untouched(&receiver);
}

#[tokio::test]
async fn events_with_and_without_an_id_share_a_route() {
    let receiver = ControlledReceiver::configured(without_ids);
    let with_id = || receiver.sender.deliver(r#"{"event_id":"evt_1"}"#).request_as();
    assert_eq!(receiver.send(with_id()).await.outcome, Some(Outcome::Completed));
    assert_eq!(spawn(&receiver).await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(receiver.send(with_id()).await.outcome, Some(Outcome::Duplicate));
    assert!(receiver.handler.started(1).await.is_deduplicated());
    assert_eq!(receiver.store.keys(), [ControlledReceiver::key("evt_1").as_str().to_owned()].into());
}

#[tokio::test]
async fn event_without_an_id_needs_no_store() {
    let receiver = ControlledReceiver::configured(without_ids);
    for verb in VERBS {
        receiver.store.breaks(verb, Fault::Fail);
    }
    assert_eq!(spawn(&receiver).await.expect("no panic").outcome, Some(Outcome::Completed));
    receiver.handler.answers(500);
    assert_eq!(spawn(&receiver).await.expect("no panic").outcome, Some(Outcome::Released));
}

async fn panicking(_: WebhookEvent) {
    panic!("on purpose");
}

#[tokio::test]
async fn panic_over_an_event_without_an_id_is_a_500() {
    let receiver = Receiver::build(without_ids, panicking);
    for _ in 0..2 {
        let answer = receiver.deliver(&receiver.sender.deliver("{}")).await;
        assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Panicked)));
    }
    assert_eq!((receiver.runs(), receiver.store.len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn events_without_an_id_are_admitted_and_drained_like_others() {
    let receiver = ControlledReceiver::configured(|layer| without_ids(layer).max_running(1).expect("a limit"));
    receiver.handler.hold();
    let running = spawn(&receiver);
    receiver.handler.started(1).await;
    assert_eq!(spawn(&receiver).await.expect("no panic").rejection(), Some(RejectionKind::Busy));
    let drained = receiver.layer.drain_handle().drain(LEASE).await;
    assert_eq!(drained.dropped, 1, "waited for, and dropped at the deadline");
    assert_eq!(running.await.expect("no panic").rejection(), Some(RejectionKind::Draining));
    assert_eq!(spawn(&receiver).await.expect("no panic").rejection(), Some(RejectionKind::Draining));
    assert_store_untouched(&receiver);
}

#[tokio::test(start_paused = true)]
async fn event_without_an_id_outlives_its_lease() {
    let receiver = ControlledReceiver::held(without_ids);
    let running = spawn(&receiver);
    let event = receiver.handler.started(1).await;
    tokio::time::sleep(10 * LEASE).await;
    assert!(event.is_held(), "nobody can take it over");
    receiver.handler.go();
    assert_eq!(running.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_store_untouched(&receiver);
}

#[tokio::test]
async fn sender_that_hangs_up_leaves_an_event_without_an_id_running() {
    for (detaches, finished) in [(true, 1), (false, 0)] {
        let receiver = ControlledReceiver::held(|layer| {
            if detaches { without_ids(layer) } else { without_ids(layer).cancel_on_disconnect() }
        });
        let delivery = spawn(&receiver);
        receiver.handler.started(1).await;
        delivery.abort();
        receiver.requests.dropped(1).await;
        receiver.handler.go();
        if detaches {
            receiver.handler.finished(1).await;
        } else {
            receiver.handler.dropped(1).await;
        }
        assert_eq!(receiver.handler.dropped_so_far(), 1 - finished);
        assert_eq!(receiver.layer.drain_handle().drain(LEASE).await.dropped, 0, "settled, one way or the other");
        assert_store_untouched(&receiver);
    }
}

#[tokio::test]
async fn every_id_is_kept_apart_from_the_crates_own_keys() {
    let receiver = Receiver::configured(|layer| layer.id_source(header("x-id")));
    let event = |id: &str| -> TestDelivery { receiver.sender.deliver("{}").header("x-id", id) };
    let own = event("tower-webhook:replay-guard:0").request_as();
    assert_eq!(receiver.refuses(own, StatusCode::BAD_REQUEST, "reserved").await, RejectionKind::InvalidId);
    assert_eq!(receiver.deliver(&event("tower-webhook")).await.outcome, Some(Outcome::Completed));
}

#[test]
fn jsonpath_and_json_pointers_are_refused_with_a_path_that_works() {
    for path in ["$.data.id", "$['data']['id']", "/data/id", "data.items[0].id", "data[*].id", "$..id", "data.*.id"] {
        for error in [IdSource::json(path).err(), TypeSource::json(path).err()] {
            let error = error.unwrap_or_else(|| panic!("{path} is taken"));
            assert!(error.to_string().contains("as in event.id"), "{error}");
        }
    }
    assert!(IdSource::json("data.id").is_ok());
}
