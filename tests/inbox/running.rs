//! What the handler gets, for how long, and how a worker ends.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{MatchedPath, Path};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::routing::any;
use tower_webhook::inbox::Inbox;
use tower_webhook::queue::{EventState, Queue};
use tower_webhook::{WebhookEvent, WebhookLayer};

use crate::inbox::fixture::Fixture;

/// Id, type, attempt, label of the secret, when it was signed and received, and what of it is authenticated.
type Facts = (String, Option<String>, Option<u32>, String, Option<SystemTime>, SystemTime, [bool; 2]);

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    method: Method,
    uri: Uri,
    route: String,
    parameter: String,
    headers: HeaderMap,
    body: Bytes,
    event: Facts,
    held: bool,
}

/// Handlers that note down what they get.
fn noting() -> (Router, Arc<Mutex<Vec<Seen>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let note = async move |method: Method,
                           uri: Uri,
                           route: MatchedPath,
                           Path(parameter): Path<String>,
                           headers: HeaderMap,
                           event: WebhookEvent,
                           body: Bytes| {
        assert_eq!(event.body(), &body);
        let facts = (
            event.id().to_owned(),
            event.event_type().map(str::to_owned),
            event.attempt(),
            event.secret_label().to_owned(),
            event.signed_at(),
            event.received_at(),
            [event.id_is_authenticated(), event.event_type_is_authenticated()],
        );
        let (route, held) = (route.as_str().to_owned(), event.is_held());
        noted.lock().expect("no panic").push(Seen { method, uri, route, parameter, headers, body, event: facts, held });
    };
    (Router::new().route("/hooks/{tenant}", any(note)), seen)
}

#[tokio::test]
async fn handler_gets_from_a_worker_what_it_would_have_got_inline() {
    let (handlers, seen) = noting();
    let configure = |layer: WebhookLayer| layer.methods([Method::PUT]).expect("a method");
    let keeping = |inbox: Inbox| inbox.keep_headers(["x-event", "x-empty"]).expect("names");
    let fixture = Fixture::built(handlers.clone(), keeping, configure);
    let inline = handlers.layer(configure(
        WebhookLayer::new(crate::support::scheme(), tower_webhook::store::MemoryStore::new())
            .clock(tower_webhook::testing::ManualClock::at_unix(crate::support::NOW)),
    ));
    let body = "{ \"id\":\"evt_1\",\n \"type\":\"caf\u{e9}\", \"n\": 1.50 }\n";
    let sender = fixture.sender.clone().uri("/hooks/acme%20inc?a=b%26c&a=d");
    let delivery = sender.deliver(body).method(Method::PUT).header("x-event", "one").header("x-empty", "");
    fixture.accepts(&delivery).await;
    assert_eq!(fixture.worker().run_until_idle().await, 1);
    tower::ServiceExt::oneshot(inline, delivery.request()).await.expect("an answer");

    let seen = seen.lock().expect("no panic");
    let [worker, inline] = &seen[..] else { panic!("{seen:?}") };
    let without_signature = Seen {
        headers: inline
            .headers
            .iter()
            .filter(|(name, _)| *name != crate::support::HEADER)
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect(),
        ..inline.clone()
    };
    assert_eq!(*worker, without_signature);
    assert_eq!(worker.event.2, Some(1));
    assert!(worker.held && worker.event.6 == [true, true]);
}

#[tokio::test]
async fn credentials_are_not_kept_unless_asked_for() {
    let delivery = |fixture: &Fixture| {
        let delivery = fixture.sender.clone().uri("/hooks/a").deliver(r#"{"id":"evt_1"}"#);
        delivery
            .header("authorization", "Bearer hush")
            .header("cookie", "hush=1")
            .header("x-fine", "yes")
            .header("x-auth", "hush")
    };
    let run = async |configure: fn(Inbox) -> Inbox| {
        let (handlers, seen) = noting();
        let fixture = Fixture::built(handlers, configure, |layer| layer);
        fixture.accepts(&delivery(&fixture)).await;
        let key = tower_webhook::EventKey::new("/hooks/{tenant}", None, "evt_1");
        let kept = fixture.inbox.get(&key).await.expect("an answer").expect("the event");
        let head = kept.request.expect("a request").head;
        assert_eq!(fixture.worker().run_until_idle().await, 1);
        let mut names: Vec<_> =
            seen.lock().expect("no panic")[0].headers.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        (names, String::from_utf8_lossy(&head).contains("hush"))
    };
    let (names, has_secret) = run(|inbox| inbox).await;
    assert_eq!(names, ["content-type"]);
    assert!(!has_secret);
    let (names, has_secret) = run(|inbox| inbox.keep_headers(["x-*"]).expect("a pattern")).await;
    assert_eq!(names, ["content-type", "x-fine"]);
    assert!(!has_secret, "a beginning keeps no credentials");
    let (names, has_secret) = run(|inbox| inbox.keep_headers(["authorization"]).expect("a name")).await;
    assert_eq!(names, ["authorization", "content-type"]);
    assert!(has_secret);
}

#[tokio::test(start_paused = true)]
async fn lease_is_renewed_while_the_handler_runs() {
    let fixture = Fixture::new();
    fixture.handler.hold();
    fixture.accepts(&fixture.event("evt_1")).await;
    let worker = fixture.worker().lease(Duration::from_secs(3)).expect("a lease");
    let working = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run_until_idle().await }
    });
    fixture.handler.started(1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(worker.run_until_idle().await, 0, "another worker finds nothing to take over");
    fixture.handler.go();
    working.await.expect("no panic");
    assert_eq!(fixture.handler.runs(), 1);
    fixture.is_in("evt_1", EventState::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn worker_is_woken_by_an_arrival() {
    let fixture = Fixture::new();
    let worker = fixture.worker().poll_every(Duration::from_secs(3_600)).expect("an interval");
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let working = tokio::spawn(worker.run(async { stopped.await.expect("the test stops it") }));
    tokio::task::yield_now().await;
    let began = tokio::time::Instant::now();
    fixture.accepts(&fixture.event("evt_1")).await;
    fixture.handler.finished(1).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    stop.send(()).expect("it listens");
    assert_eq!(working.await.expect("no panic").dropped, 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_what_runs_and_leases_no_more() {
    let fixture = Fixture::new();
    fixture.handler.hold();
    fixture.accepts(&fixture.event("evt_1")).await;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let working = tokio::spawn(fixture.worker().run(async { stopped.await.expect("the test stops it") }));
    fixture.handler.started(1).await;
    stop.send(()).expect("it listens");
    tokio::time::sleep(Duration::from_secs(1)).await;
    fixture.accepts(&fixture.event("evt_2")).await;
    fixture.handler.go();
    assert_eq!(working.await.expect("no panic").dropped, 0);
    fixture.is_in("evt_1", EventState::Completed).await;
    fixture.is_in("evt_2", EventState::Waiting).await;
}

#[tokio::test(start_paused = true)]
async fn what_outlasts_the_grace_is_dropped_and_put_back_uncounted() {
    let fixture = Fixture::new();
    fixture.handler.hold();
    fixture.accepts(&fixture.event("evt_1")).await;
    let worker = fixture.worker().grace(Duration::from_secs(5));
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let working = tokio::spawn(worker.run(async { stopped.await.expect("the test stops it") }));
    let event = fixture.handler.started(1).await;
    stop.send(()).expect("it listens");
    assert_eq!(working.await.expect("no panic").dropped, 1);
    fixture.handler.dropped(1).await;
    assert!(!event.is_held());
    let kept = fixture.kept("evt_1").await;
    assert_eq!((kept.state, kept.attempts, kept.failures.len()), (EventState::Waiting, 0, 0));

    fixture.handler.hold_no_more();
    assert_eq!(fixture.worker().run_until_idle().await, 1);
    assert_eq!(fixture.handler.started(2).await.attempt(), Some(1));
}

#[tokio::test]
async fn any_tower_service_can_be_driven() {
    let fixture = Fixture::new();
    fixture.accepts(&fixture.event("evt_1")).await;
    let service = tower::service_fn(|request: http::Request<http_body_util::Full<Bytes>>| async move {
        let event = request.extensions().get::<WebhookEvent>().expect("an event");
        assert_eq!((event.id(), request.uri().path()), ("evt_1", "/webhooks"));
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok::<_, std::convert::Infallible>(response)
    });
    assert_eq!(tower_webhook::Worker::new(fixture.inbox.clone(), service).run_until_idle().await, 1);
    assert_eq!(fixture.kept("evt_1").await.summary.as_deref(), Some("No Content"));
}

/// Two workers on one inbox: each event is run by one of them.
#[tokio::test(flavor = "multi_thread")]
async fn two_workers_run_each_event_once() {
    let fixture = Fixture::new();
    for n in 0..500 {
        fixture.accepts(&fixture.event(&format!("evt_{n}"))).await;
    }
    let workers = [fixture.worker(), fixture.worker()]
        .map(|worker| tokio::spawn(async move { worker.concurrency(7).expect("some").run_until_idle().await }));
    let mut runs = 0;
    for worker in workers {
        runs += worker.await.expect("no panic");
    }
    assert_eq!((runs, fixture.handler.runs()), (500, 500));
    assert_eq!(fixture.inbox.counts().await.expect("counts").completed, 500);
}
