//! The test kit, as a user's own tests use it: one clock for sender, layer, store and worker.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use axum::{Router, extract::State};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_webhook::clock::Clock;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Store};
use tower_webhook::testing::{Replay, TestKit};
use tower_webhook::{HandlerError, Outcome, WebhookEvent, WebhookLayer, Worker, scheme};

use crate::support;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

type Runs = Arc<AtomicUsize>;

async fn on_event(State(runs): State<Runs>, _: WebhookEvent) {
    runs.fetch_add(1, Ordering::SeqCst);
}

/// An application as users have one: it gets the layer, and has its routes.
fn app(webhooks: WebhookLayer, runs: &Runs) -> Router {
    Router::new().route("/webhooks/acme", post(on_event)).layer(webhooks).with_state(runs.clone())
}

fn kit() -> TestKit {
    TestKit::new(support::scheme()).uri("/webhooks/acme")
}

fn outcome<B>(response: &Response<B>) -> Option<&Outcome> {
    response.extensions().get()
}

#[tokio::test]
async fn event_runs_again_after_eight_days_and_not_after_a_minute() {
    let (kit, runs) = (kit(), Runs::default());
    let app = app(kit.layer(), &runs);
    let event = kit.deliver(r#"{"id":"evt_1"}"#);
    assert_eq!(outcome(&event.send(&app).await), Some(&Outcome::Completed));

    kit.advance(MINUTE);
    let duplicate = event.send(&app).await;
    assert_eq!((duplicate.status(), outcome(&duplicate)), (StatusCode::OK, Some(&Outcome::Duplicate)));
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    // The retention is seven days.
    kit.advance(8 * DAY);
    assert_eq!(outcome(&event.send(&app).await), Some(&Outcome::Completed));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn signatures_age_by_the_clock_of_the_kit() {
    let (kit, runs) = (kit(), Runs::default());
    let app = app(kit.layer(), &runs);
    let signed = kit.deliver(r#"{"id":"evt_1"}"#).request();
    kit.advance(60 * MINUTE);
    let answer = app.clone().oneshot(signed).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(outcome(&kit.deliver(r#"{"id":"evt_1"}"#).send(&app).await), Some(&Outcome::Completed));
}

#[tokio::test]
async fn leases_lapse_by_the_clock_of_the_kit() {
    let (kit, runs) = (kit(), Runs::default());
    let app = app(kit.layer().in_flight_wait(Duration::ZERO), &runs);
    let event = kit.deliver(r#"{"id":"evt_1"}"#);
    // Another instance claimed the event, and died.
    let key = tower_webhook::EventKey::new("/webhooks/acme", None, "evt_1");
    let claim = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
    assert!(matches!(kit.store().claim(&claim).await, Ok(Claim::Fresh { .. })));

    assert_eq!(event.send(&app).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    kit.advance(MINUTE);
    assert_eq!(outcome(&event.send(&app).await), Some(&Outcome::Completed));
}

#[tokio::test]
async fn retries_of_a_worker_are_due_by_the_clock_of_the_kit() {
    async fn fails(State(runs): State<Runs>, _: WebhookEvent) -> Result<(), HandlerError> {
        runs.fetch_add(1, Ordering::SeqCst);
        Err(HandlerError::transient("the ledger is away").retry_after(Duration::from_secs(3600)))
    }
    let (kit, runs) = (kit(), Runs::default());
    let handlers = Router::new().route("/webhooks/acme", post(fails)).with_state(runs.clone());
    let app = handlers.clone().layer(kit.inbox());
    assert_eq!(outcome(&kit.deliver(r#"{"id":"evt_1"}"#).send(&app).await), Some(&Outcome::Accepted));

    let worker = Worker::new(kit.store(), handlers);
    assert_eq!(worker.run_until_idle().await, 1);
    kit.advance(MINUTE);
    assert_eq!(worker.run_until_idle().await, 0);
    kit.advance(DAY);
    assert_eq!(worker.run_until_idle().await, 1);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn layers_of_one_kit_share_a_store_and_the_router_has_the_path() {
    let kit = kit();
    let router = || kit.router(post(async |_: WebhookEvent| {}));
    let event = kit.deliver(r#"{"id":"evt_1"}"#);
    assert_eq!(outcome(&event.send(&router()).await), Some(&Outcome::Completed));
    assert_eq!(outcome(&event.send(&router()).await), Some(&Outcome::Duplicate));
    assert_eq!(kit.store().len(), 1);
    assert_eq!(kit.clone().clock().now(), kit.clock().now());
}

/// Nothing here names the type of a body.
#[tokio::test]
async fn requests_fit_axum_and_tower_without_a_turbofish() {
    let (kit, runs) = (kit(), Runs::default());
    let app = app(kit.layer(), &runs);
    let event = kit.deliver(r#"{"id":"evt_1"}"#);
    let answer = app.clone().oneshot(event.request()).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let answers = Replay::of([event.clone()]).times(8).all_at_once(&app).await;
    assert!(answers.iter().all(|answer| outcome(answer) == Some(&Outcome::Duplicate)));
    assert_eq!(Replay::of([event]).one_by_one(&app).await.len(), 1);

    let answers = async |_: Request<Full<axum::body::Bytes>>| Ok::<_, Infallible>(Response::new(Body::empty()));
    let bare = kit.layer().layer(service_fn(answers));
    let other = kit.deliver(r#"{"id":"evt_2"}"#);
    assert_eq!(outcome(&other.send(&bare).await), Some(&Outcome::Completed));
    let request: Request<Body> = other.request_as();
    assert_eq!(outcome(&bare.oneshot(request).await.expect("an answer")), Some(&Outcome::Duplicate));
}

#[tokio::test]
async fn kit_takes_any_scheme() {
    let kit = TestKit::new(scheme::github("a secret of GitHub's").expect("a secret"));
    let app = kit.router(post(async |event: WebhookEvent| assert_eq!(event.event_type(), Some("push"))));
    let push = kit.deliver("{}").id("72d3162e-cc78-11e3-81ab-4c9367dc0958").event_type("push");
    assert_eq!(outcome(&push.send(&app).await), Some(&Outcome::Completed));
    assert_eq!(push.tampered().send(&app).await.status(), StatusCode::UNAUTHORIZED);
}
