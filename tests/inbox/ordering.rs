//! Events of one resource, and old news.

use axum::Router;
use axum::routing::post;
use std::sync::{Arc, Mutex};

use tower_webhook::inbox::OrderSource;
use tower_webhook::queue::EventState;
use tower_webhook::{HandlerError, WebhookEvent};

use crate::inbox::fixture::Fixture;

type Runs = Arc<Mutex<Vec<String>>>;

/// Handlers that note down beginnings and ends, and fail `flaky` the first time.
fn noting(order: OrderSource) -> (Fixture, Runs) {
    let runs: Runs = Arc::default();
    let noted = runs.clone();
    let handler = async move |event: WebhookEvent| {
        let note = |what: &str| noted.lock().expect("no panic").push(format!("{what} {}", event.id()));
        note("begin");
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        note("end");
        match (event.id(), event.attempt()) {
            ("flaky", Some(1)) => Err(HandlerError::transient("flaky")),
            _ => Ok(()),
        }
    };
    let handlers = Router::new().route("/webhooks", post(handler));
    (Fixture::built(handlers, |inbox| inbox.order_by(order), |layer| layer), runs)
}

#[tokio::test]
async fn events_of_one_resource_run_one_at_a_time_and_others_in_parallel() {
    let (fixture, runs) = noting(OrderSource::json("data.customer").expect("a path"));
    for (id, customer) in [("flaky", "\"a\""), ("a2", "\"a\""), ("b1", "7"), ("a3", "\"a\""), ("b2", "7")] {
        let body = format!(r#"{{"id":"{id}","data":{{"customer":{customer}}}}}"#);
        fixture.accepts(&fixture.sender.deliver(body)).await;
    }
    fixture.accepts(&fixture.event("free")).await;
    assert_eq!(fixture.worker().run_until_idle().await, 7);
    let runs = runs.lock().expect("no panic").clone();
    let only = |names: &[&str]| -> Vec<String> {
        runs.iter().filter(|run| names.iter().any(|name| run.ends_with(name))).cloned().collect()
    };
    assert_eq!(
        only(&["flaky", "a2", "a3"]),
        ["begin flaky", "end flaky", "begin flaky", "end flaky", "begin a2", "end a2", "begin a3", "end a3"]
    );
    assert_eq!(only(&["b1", "b2"]), ["begin b1", "end b1", "begin b2", "end b2"]);
    let at = |run: &str| runs.iter().position(|other| other == run).expect(run);
    assert!(at("begin b1") < at("end flaky") && at("begin free") < at("end flaky"), "in parallel: {runs:?}");
}

#[tokio::test]
async fn superseded_events_are_completed_without_their_handler() {
    let order = OrderSource::json("subscription").expect("a path").sequence("version").expect("a path");
    let (fixture, runs) = noting(order);
    for (id, version) in [("second", 2), ("first", 1), ("third", 3)] {
        fixture
            .accepts(&fixture.sender.deliver(format!(r#"{{"id":"{id}","subscription":"s","version":{version}}}"#)))
            .await;
    }
    assert_eq!(fixture.worker().run_until_idle().await, 3);
    assert_eq!(*runs.lock().expect("no panic"), ["begin second", "end second", "begin third", "end third"]);
    let skipped = fixture.kept("first").await;
    assert_eq!(skipped.state, EventState::Completed);
    assert!(skipped.summary.expect("a summary").contains("superseded"));
}
