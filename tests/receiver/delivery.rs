//! One delivery, as a user of the layer sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Answer, NOW, Receiver, SECRET, scheme};
use axum::body::{Body, Bytes};
use axum::http::{Method, Response, StatusCode};
use axum::routing::{any, post};
use axum::{Extension, Router};
use http_body_util::{BodyExt, Full};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_webhook::handler::Failure;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::scheme;
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::{ManualClock, Replay, TestSender};
use tower_webhook::{HandlerError, Outcome, WebhookEvent, WebhookLayer};

#[tokio::test]
async fn first_delivery_runs_and_duplicate_skips_handler() {
    let receiver = Receiver::new();
    let event = receiver.event("evt_1");
    assert_eq!(receiver.deliver(&event).await.outcome, Some(Outcome::Completed));
    let again = receiver.deliver(&event).await;
    assert_eq!((again.status, again.outcome), (StatusCode::OK, Some(Outcome::Duplicate)));
    assert_eq!(receiver.runs(), 1);
}

#[tokio::test]
async fn handler_gets_the_signed_bytes_and_the_facts() {
    let body = "{ \"id\" : \"evt_1\",\n\t\"type\":\"invoice.paid\", \"note\":\"caf\u{e9}\" }\n";
    let app = Router::new()
        .route(
            "/webhooks",
            post(move |event: WebhookEvent, bytes: Bytes| async move {
                assert_eq!(bytes, body.as_bytes());
                assert_eq!(event.body(), body.as_bytes());
                assert_eq!((event.id(), event.event_type()), ("evt_1", Some("invoice.paid")));
                assert_eq!((event.endpoint(), event.tenant()), ("/webhooks", None));
                assert_eq!((event.secret_label(), event.attempt()), ("1", Some(1)));
                assert!(event.is_held() && event.id_is_authenticated());
                assert!(event.signed_at().is_some_and(|at| at <= event.received_at()));
            }),
        )
        .layer(WebhookLayer::new(scheme(), MemoryStore::new()));
    let response = app.oneshot(TestSender::new(scheme()).deliver(body).request()).await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn layer_works_wherever_axum_takes_layers() {
    async fn on_event(_: WebhookEvent) {}
    let layer = || WebhookLayer::new(scheme(), MemoryStore::new());
    let apps: [Router; 6] = [
        Router::new().route("/webhooks", post(on_event)).layer(layer()),
        Router::new().route("/webhooks", post(on_event)).route_layer(layer()),
        Router::new().route("/webhooks", post(on_event).layer(layer())),
        Router::new().route("/webhooks", post(on_event)).layer(ServiceBuilder::new().layer(layer())),
        Router::new().nest("/webhooks", Router::new().route("/", post(on_event)).layer(layer())),
        Router::new().route_service("/webhooks", ServiceBuilder::new().layer(layer()).service(post(on_event))),
    ];
    for (index, app) in apps.into_iter().enumerate() {
        let request = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#).request();
        let answer = Answer::read(app.oneshot(request).await.expect("an answer")).await;
        assert_eq!(answer.outcome, Some(Outcome::Completed), "app {index}");
    }
}

#[tokio::test]
async fn routes_have_secrets_of_their_own() {
    let app = Router::new()
        .route(
            "/a",
            post(|| async {}).layer(WebhookLayer::new(scheme::timestamped("secret_a").unwrap(), MemoryStore::new())),
        )
        .route(
            "/b",
            post(|| async {}).layer(WebhookLayer::new(scheme::timestamped("secret_b").unwrap(), MemoryStore::new())),
        );
    for (path, secret, status) in
        [("/a", "secret_a", 200), ("/a", "secret_b", 401), ("/b", "secret_b", 200), ("/b", "secret_a", 401)]
    {
        let sender = TestSender::new(scheme::timestamped(secret).unwrap()).uri(path);
        let request = sender.deliver(r#"{"id":"evt_1"}"#).request();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status, "{path} with {secret}");
    }
}

#[tokio::test]
async fn two_routes_on_one_store_both_get_the_event() {
    let layer = WebhookLayer::new(scheme(), MemoryStore::new());
    let app: Router = Router::new().route("/a", post(|| async {})).route("/b", post(|| async {})).layer(layer);
    for (path, outcome) in [("/a", Outcome::Completed), ("/b", Outcome::Completed), ("/a", Outcome::Duplicate)] {
        let request = TestSender::new(scheme()).uri(path).deliver(r#"{"id":"evt_1"}"#).request();
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.extensions().get(), Some(&outcome), "{path}");
    }
}

#[tokio::test]
async fn replay_under_another_spelling_of_the_path_is_a_duplicate() {
    let app: Router =
        Router::new().route("/hooks/{name}", any(|| async {})).layer(WebhookLayer::new(scheme(), MemoryStore::new()));
    let sender = TestSender::new(scheme());
    for (path, outcome) in
        [("/hooks/a", Outcome::Completed), ("/hooks/b", Outcome::Duplicate), ("/hooks/%61?x=1", Outcome::Duplicate)]
    {
        let request = sender.clone().uri(path).deliver(r#"{"id":"evt_1"}"#).request();
        assert_eq!(app.clone().oneshot(request).await.unwrap().extensions().get(), Some(&outcome), "{path}");
    }
}

#[tokio::test]
async fn statuses_decide_between_completing_and_releasing() {
    for (status, completes) in
        [(200, true), (204, true), (302, false), (404, false), (422, false), (500, false), (503, false)]
    {
        let status = StatusCode::from_u16(status).unwrap();
        let receiver = Receiver::handling(move |_| async move { status });
        let event = receiver.event("evt_1");
        assert_eq!(receiver.deliver(&event).await.status, status, "the handler's answer goes out as it is");
        receiver.deliver(&event).await;
        assert_eq!(receiver.runs(), if completes { 1 } else { 2 }, "{status}");
    }
}

#[tokio::test]
async fn policy_of_completing_statuses_can_be_changed() {
    let receiver = Receiver::build(
        |layer| layer.complete_when(|status| status == StatusCode::NOT_FOUND),
        |_| async { StatusCode::NOT_FOUND },
    );
    let event = receiver.event("evt_1");
    assert_eq!(receiver.deliver(&event).await.status, StatusCode::NOT_FOUND);
    assert_eq!(receiver.deliver(&event).await.outcome, Some(Outcome::Duplicate));
}

#[tokio::test]
async fn permanent_failure_tells_the_sender_to_stop_and_is_remembered() {
    let receiver = Receiver::handling(|_| async { Err::<(), _>(HandlerError::permanent("no such customer")) });
    let event = receiver.event("evt_1");
    let answer = receiver.deliver(&event).await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Failed)));
    assert!(answer.body.is_empty(), "the reason is not the sender's business");
    assert_eq!(receiver.deliver(&event).await.outcome, Some(Outcome::Duplicate));
    let key = tower_webhook::EventKey::new("/webhooks", None, "evt_1");
    assert_eq!(receiver.store.failure(&key).as_deref(), Some("no such customer"));
}

#[tokio::test]
async fn transient_failure_releases_and_question_mark_is_transient() {
    let receiver = Receiver::handling(|event| async move {
        let _: u64 = event.id().parse()?;
        Ok::<_, HandlerError>(())
    });
    let event = receiver.event("evt_1");
    for _ in 0..2 {
        let answer = receiver.deliver(&event).await;
        assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Released)));
        assert!(answer.body.is_empty());
    }
    assert_eq!(receiver.runs(), 2);
}

#[tokio::test]
async fn transient_failure_can_ask_for_a_later_retry() {
    let later = std::time::Duration::from_secs(90);
    let receiver =
        Receiver::handling(move |_| async move { Err::<(), _>(HandlerError::transient("busy").retry_after(later)) });
    let answer = receiver.deliver(&receiver.event("evt_1")).await;
    assert_eq!((answer.status, answer.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("90")));
}

#[tokio::test]
async fn bare_tower_service_signals_failures_by_extension() {
    let inner = tower::service_fn(|_: http::Request<Full<Bytes>>| async {
        let mut response = Response::new(Full::<Bytes>::default());
        response.extensions_mut().insert(Failure::permanent("unknown type"));
        Ok::<_, std::convert::Infallible>(response)
    });
    let service = ServiceBuilder::new().layer(WebhookLayer::new(scheme(), MemoryStore::new())).service(inner);
    let request = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#).request();
    let response = service.oneshot(request).await.unwrap();
    assert_eq!((response.status(), response.extensions().get()), (StatusCode::OK, Some(&Outcome::Failed)));
}

#[tokio::test]
async fn errors_of_the_inner_service_pass_through() {
    let inner = tower::service_fn(|_: http::Request<Full<Bytes>>| async { Err::<Response<Body>, _>("broken") });
    let layer = WebhookLayer::new(scheme(), MemoryStore::new());
    let service = tower::Layer::layer(&layer, inner);
    for _ in 0..2 {
        let request = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#).request();
        assert_eq!(service.clone().oneshot(request).await.err(), Some("broken"), "released, so it runs again");
    }
}

#[derive(serde::Deserialize)]
struct Invoice {
    amount: u64,
}

#[tokio::test]
async fn typed_event_parses_the_body() {
    let app: Router = Router::new()
        .route("/webhooks", post(|event: WebhookEvent<Invoice>| async move { event.data().amount.to_string() }))
        .layer(WebhookLayer::new(scheme(), MemoryStore::new()));
    let request = TestSender::new(scheme()).deliver(r#"{"id":"evt_1","amount":42}"#).request();
    let answer = Answer::read(app.oneshot(request).await.unwrap()).await;
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"42"[..]));
}

#[tokio::test]
async fn typed_event_that_does_not_parse_is_422_and_released() {
    let store = MemoryStore::new();
    let layer = WebhookLayer::new(scheme(), store.clone()).complete_when(|_| true);
    let app: Router = Router::new().route("/webhooks", post(|_: WebhookEvent<Invoice>| async {})).layer(layer);
    let request = TestSender::new(scheme()).deliver(r#"{"id":"evt_1","amount":"private text"}"#).request();
    let answer = Answer::read(app.oneshot(request).await.unwrap()).await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::UNPROCESSABLE_ENTITY, Some(Outcome::Released)));
    assert!(!String::from_utf8_lossy(&answer.body).contains("private"));
    assert!(store.is_empty());
}

#[tokio::test]
async fn extractor_without_the_layer_tells_the_sender_nothing() {
    let app: Router = Router::new().route("/webhooks", post(|_: WebhookEvent| async {}));
    let request = TestSender::new(scheme()).deliver("{}").request();
    let answer = Answer::read(app.oneshot(request).await.unwrap()).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.body.is_empty(), "the log says what is missing");
}

#[tokio::test]
async fn event_is_also_an_extension_and_optional() {
    async fn on_event(Extension(event): Extension<WebhookEvent>, optional: Option<WebhookEvent>) -> String {
        assert!(optional.is_some_and(|same| same.token() == event.token()), "clones share the claim");
        event.id().to_owned()
    }
    let app: Router =
        Router::new().route("/webhooks", post(on_event)).layer(WebhookLayer::new(scheme(), MemoryStore::new()));
    let request = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#).request();
    let body = app.oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "evt_1");
}

#[tokio::test]
async fn other_methods_can_be_accepted() {
    let receiver = Receiver::configured(|layer| layer.methods([Method::POST, Method::PUT]).unwrap());
    assert_eq!(receiver.deliver(&receiver.event("evt_1").method(Method::PUT)).await.status, StatusCode::OK);
    let refused = receiver.deliver(&receiver.event("evt_2").method(Method::GET)).await;
    assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(refused.headers["allow"], "POST, PUT");
}

#[tokio::test]
async fn answers_can_be_replaced() {
    let receiver = Receiver::configured(|layer| {
        layer
            .answer_duplicates(|key| Response::new(format!("seen {}", key.id()).into()))
            .answer_refusals(|_, _| Response::builder().status(403).body(Bytes::new()).unwrap())
    });
    let event = receiver.event("evt_1");
    receiver.deliver(&event).await;
    assert_eq!(receiver.deliver(&event).await.body, "seen evt_1");
    let refused = receiver.deliver(&event.tampered()).await;
    assert_eq!((refused.status, refused.body.len()), (StatusCode::FORBIDDEN, 0));
    assert_eq!(refused.rejection(), Some(RejectionKind::SignatureMismatch));
}

#[tokio::test]
async fn changed_body_under_a_known_id_is_a_duplicate_unless_refused() {
    for (refuse, status) in [(false, StatusCode::OK), (true, StatusCode::CONFLICT)] {
        let receiver = Receiver::configured(|layer| if refuse { layer.refuse_changed_bodies() } else { layer });
        receiver.deliver(&receiver.sender.deliver(r#"{"id":"evt_1","n":1}"#)).await;
        let changed = receiver.deliver(&receiver.sender.deliver(r#"{"id":"evt_1","n":2}"#)).await;
        assert_eq!((changed.status, receiver.runs()), (status, 1));
    }
}

#[tokio::test]
async fn replays_in_any_order_run_each_event_once() {
    let receiver = Receiver::new();
    let events = (0..20).map(|n| receiver.event(&format!("evt_{n}")));
    let responses = Replay::of(events).times(5).out_of_order(7).all_at_once(&receiver.app).await;
    assert!(responses.iter().all(|response| response.status() == StatusCode::OK));
    assert_eq!(receiver.runs(), 20);
}

/// Counts how often it is called without having been made ready for that call.
#[derive(Clone)]
struct Strict {
    ready: bool,
    unready_calls: Arc<AtomicUsize>,
}

impl Service<http::Request<Full<Bytes>>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        self.ready = true;
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Full<Bytes>>) -> Self::Future {
        if !std::mem::take(&mut self.ready) {
            self.unready_calls.fetch_add(1, Ordering::SeqCst);
        }
        std::future::ready(Ok(Response::new(Full::default())))
    }
}

#[tokio::test]
async fn inner_service_is_never_called_unready() {
    let unready_calls = Arc::new(AtomicUsize::new(0));
    let service = ServiceBuilder::new()
        .layer(WebhookLayer::new(scheme(), MemoryStore::new()))
        .service(Strict { ready: false, unready_calls: unready_calls.clone() });
    let sender = TestSender::new(scheme::timestamped(SECRET).unwrap());
    for n in 0..3 {
        let request = sender.deliver(format!(r#"{{"id":"evt_{n}"}}"#)).request();
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(unready_calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn released_event_is_never_acknowledged() {
    // A bare service that says "transient" on a 200, and a policy under which a 204 does not complete.
    let receiver = Receiver::handling(|_| async {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(Failure::transient("the database is away"));
        response
    });
    let answer = receiver.deliver(&receiver.event("evt_1")).await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Released)));
    let receiver =
        Receiver::build(|layer| layer.complete_when(|status| status == 200), |_| async { StatusCode::NO_CONTENT });
    let answer = receiver.deliver(&receiver.event("evt_1")).await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Released)));
    assert!(receiver.store.is_empty());
}

#[tokio::test]
async fn body_in_one_frame_is_not_copied() {
    let sent = Bytes::from(r#"{"id":"evt_1"}"#.to_owned());
    let address = sent.as_ptr() as usize;
    let receiver = Receiver::handling(move |event| async move {
        assert_eq!(event.body().as_ptr() as usize, address);
    });
    let answer = receiver.deliver(&receiver.sender.deliver(sent)).await;
    assert_eq!(answer.outcome, Some(Outcome::Completed));
}

#[tokio::test]
async fn body_in_many_frames_arrives_whole() {
    let body = format!(r#"{{"id":"evt_1","filler":"{}"}}"#, "x".repeat(200_000));
    let expected = Bytes::from(body.clone());
    let receiver = Receiver::handling(move |event| {
        assert_eq!(event.body(), &expected);
        async {}
    });
    let (parts, _) = receiver.sender.deliver(body.clone()).request().into_parts();
    for size in [1_000, 4_096, 65_536, 199_999] {
        let frames: Vec<_> =
            body.as_bytes().chunks(size).map(|chunk| Ok::<_, std::io::Error>(Bytes::copy_from_slice(chunk))).collect();
        let stream = Body::from_stream(futures_util::stream::iter(frames));
        let answer = receiver.send(http::Request::from_parts(parts.clone(), stream)).await;
        assert_eq!(answer.status, StatusCode::OK, "frames of {size}");
    }
}

#[tokio::test]
async fn retention_outlasts_every_signature() {
    let seconds = std::time::Duration::from_secs;
    let layer = |tolerance| WebhookLayer::new(scheme().tolerance(seconds(tolerance)), MemoryStore::new());
    assert!(layer(10).retention(seconds(20)).is_err(), "accepted until the end of the twenty-first second");
    assert!(layer(10).retention(seconds(21)).is_ok());
    assert!(layer(0).retention(std::time::Duration::from_millis(999)).is_err());

    // A tolerance longer than the default retention raises it.
    let (clock, store_clock) = (ManualClock::at_unix(NOW), ManualClock::at_unix(NOW));
    let month = 30 * 24 * 3600;
    let patient = scheme().tolerance(seconds(month));
    let store = MemoryStore::builder().clock(store_clock.clone()).build();
    let app: Router = Router::new()
        .route("/webhooks", post(|| async {}))
        .layer(WebhookLayer::new(patient.clone(), store).clock(clock.clone()));
    let event = TestSender::new(patient).clock(clock.clone()).deliver(r#"{"id":"evt_1"}"#).request();
    let (parts, body) = event.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    for outcome in [Outcome::Completed, Outcome::Duplicate] {
        let request = http::Request::from_parts(parts.clone(), Body::from(bytes.clone()));
        assert_eq!(app.clone().oneshot(request).await.unwrap().extensions().get(), Some(&outcome));
        clock.advance(seconds(month));
        store_clock.advance(seconds(month));
    }
}

#[tokio::test]
async fn store_can_be_chosen_at_run_time() {
    let store = {
        let chosen: Arc<dyn tower_webhook::store::Store> = Arc::new(MemoryStore::new());
        chosen
    };
    let app: Router = Router::new().route("/webhooks", post(|| async {})).layer(WebhookLayer::new(scheme(), store));
    let event = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#);
    let responses = Replay::of([event]).times(2).one_by_one(&app).await;
    let outcomes: Vec<_> = responses.iter().map(|response| response.extensions().get().cloned()).collect();
    assert_eq!(outcomes, [Some(Outcome::Completed), Some(Outcome::Duplicate)]);
}
