//! Routers in routers, and the layered router as the worker's service.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{OriginalUri, Request};
use axum::http::{StatusCode, Uri};
use axum::routing::post;
use tower::{Layer, ServiceExt};
use tower_webhook::queue::{EventState, Filter, Page, Queue};
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{EventKey, Outcome, WebhookEvent, WebhookLayer, Worker};

use crate::support::scheme;

/// The URIs that a handler gets: its own, and the original one.
type Seen = Arc<Mutex<Vec<(Uri, Uri)>>>;

/// Handlers at `/stripe`, and what they get.
fn handlers() -> (Router, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let on_event = async move |uri: Uri, OriginalUri(original): OriginalUri, _: WebhookEvent| {
        noted.lock().expect("no panic").push((uri, original));
    };
    (Router::new().route("/stripe", post(on_event)), seen)
}

/// Accepts an event at this path.
async fn accept(app: Router, path: &str, id: &str) {
    let event = TestSender::new(scheme()).uri(path).deliver(format!(r#"{{"id":"{id}"}}"#));
    let answer = app.oneshot(event.request()).await.expect("an answer");
    assert_eq!((answer.status(), answer.extensions().get()), (StatusCode::OK, Some(&Outcome::Accepted)), "{path}");
}

async fn states(inbox: &MemoryStore) -> Vec<EventState> {
    let events = inbox.list(&Filter::default(), &Page::first(10)).await.expect("a list");
    events.iter().map(|event| event.state).collect()
}

fn last(seen: &Seen) -> (String, String) {
    let (uri, original) = seen.lock().expect("no panic").pop().expect("a call");
    (uri.to_string(), original.to_string())
}

#[tokio::test]
async fn nested_and_outer_router_both_serve_as_the_workers_service() {
    let (nested, seen) = handlers();
    let inbox = MemoryStore::new();
    let layered = nested.clone().layer(WebhookLayer::inbox(scheme(), inbox.clone()));
    let outer = Router::new().nest("/api", Router::new().nest("/webhooks", layered.clone()));
    let path = "/api/webhooks/stripe?account=7";

    accept(outer.clone(), path, "evt_1").await;
    assert_eq!(Worker::new(inbox.clone(), nested).run_until_idle().await, 1);
    assert_eq!(last(&seen), ("/stripe?account=7".to_owned(), path.to_owned()), "the nested router");

    accept(outer.clone(), path, "evt_2").await;
    assert_eq!(Worker::new(inbox.clone(), layered).run_until_idle().await, 1);
    assert_eq!(last(&seen), ("/stripe?account=7".to_owned(), path.to_owned()), "the nested router with its layer");

    accept(outer.clone(), path, "evt_3").await;
    assert_eq!(Worker::new(inbox.clone(), outer).outer_router().run_until_idle().await, 1);
    assert_eq!(last(&seen), ("/stripe?account=7".to_owned(), path.to_owned()), "the outer router");
    assert_eq!(states(&inbox).await, [EventState::Completed; 3]);
}

#[tokio::test]
async fn layered_router_is_a_service_for_workers() {
    let (handlers, seen) = handlers();
    let inbox = MemoryStore::new();
    let app = handlers.layer(WebhookLayer::inbox(scheme(), inbox.clone()));
    accept(app.clone(), "/stripe", "evt_1").await;
    assert_eq!(Worker::new(inbox.clone(), app.clone()).run_until_idle().await, 1);
    assert_eq!(last(&seen), ("/stripe".to_owned(), "/stripe".to_owned()));
    assert_eq!(states(&inbox).await, [EventState::Completed]);
    // To senders it is the same as before.
    let unsigned = Request::post("/stripe").body(Body::from(r#"{"id":"evt_2"}"#)).expect("a request");
    assert_eq!(app.oneshot(unsigned).await.expect("an answer").status(), StatusCode::UNAUTHORIZED);
}

/// The layer of another route sees an event that was received inline: that is a delivery like any other.
#[tokio::test]
async fn event_of_another_layer_lets_no_request_pass() {
    let store = MemoryStore::new();
    let second = WebhookLayer::new(scheme(), store.clone()).endpoint("second").expect("a name");
    let inner = second.layer(tower::service_fn(async |_: http::Request<_>| {
        Ok::<_, std::convert::Infallible>(axum::response::Response::new(Body::empty()))
    }));
    // Between the two layers, somebody takes the signature away.
    let unsigned = tower::ServiceBuilder::new()
        .map_request(|mut request: http::Request<http_body_util::Full<bytes::Bytes>>| {
            assert!(request.extensions().get::<WebhookEvent>().is_some());
            request.headers_mut().clear();
            request
        })
        .service(inner);
    let app = WebhookLayer::new(scheme(), store).endpoint("first").expect("a name").layer(unsigned);
    let event = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#);
    let answer = app.oneshot(event.request()).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn credentials_are_left_out_of_both_uris() {
    let (nested, seen) = handlers();
    let inbox = MemoryStore::new();
    let outer = Router::new().nest("/api", nested.clone().layer(WebhookLayer::inbox(scheme(), inbox.clone())));
    accept(outer, "/api/stripe?api_key=hidden", "evt_1").await;
    let stored = inbox.get(&EventKey::new("/api/stripe", None, "evt_1")).await.expect("an answer").expect("an event");
    let request = stored.request.expect("its request");
    assert!(!String::from_utf8_lossy(&request.head).contains("hidden"));
    assert_eq!(Worker::new(inbox, nested).run_until_idle().await, 1);
    assert_eq!(last(&seen), ("/stripe?api_key=".to_owned(), "/api/stripe?api_key=".to_owned()));
}
