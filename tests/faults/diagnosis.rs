//! What operators can tell from the log of deliveries that were refused or failed.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use axum::routing::{any, post};
use http_body_util::BodyExt;
use tower::ServiceExt;
use tower_webhook::scheme::{self, Scheme};
use tower_webhook::secrets::{Secret, TenantSecrets};
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::{ManualClock, TestSender};
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer};
use tracing::Level;

use crate::support::logs::{Line, Logs};
use crate::support::{HEADER, NOW, SECRET, scheme};

async fn on_event(_: WebhookEvent) {}

/// The route `/webhooks/{source}` below `/api`, on a clock of the test's own.
fn nested(scheme: impl Scheme, clock: &ManualClock) -> Router {
    let layer = WebhookLayer::new(scheme, MemoryStore::new()).clock(clock.clone());
    Router::new().nest("/api", Router::new().route("/webhooks/{source}", post(on_event)).layer(layer))
}

fn sender(scheme: impl Scheme, path: &str, clock: &ManualClock) -> TestSender {
    TestSender::new(scheme).uri(path).clock(clock.clone())
}

async fn send(app: &Router, request: Request<Body>) -> StatusCode {
    app.clone().oneshot(request).await.expect("a router cannot fail").status()
}

fn warnings(logs: &Logs) -> Vec<String> {
    let lines = logs.lines();
    lines.into_iter().filter(|line| line.level <= Level::WARN).map(|line| line.text).collect()
}

#[tokio::test]
async fn refusal_names_endpoint_scheme_and_path() {
    let (logs, _guard) = Logs::capture();
    let clock = ManualClock::at_unix(NOW);
    let app = nested(scheme(), &clock);
    let event = sender(scheme(), "/api/webhooks/acme?x=1", &clock).deliver(r#"{"id":"evt_1"}"#);
    assert_eq!(send(&app, event.tampered().request_as()).await, StatusCode::UNAUTHORIZED);
    let facts = [
        r#"rejection="signature_mismatch""#,
        r#"endpoint="/api/webhooks/{source}""#,
        r#"scheme="timestamped""#,
        "path=/api/webhooks/acme",
    ];
    let (warnings, audits) = (warnings(&logs), logs.audits());
    assert_eq!((warnings.len(), audits.len()), (1, 1), "{:#?}", logs.lines());
    for fact in facts {
        assert!(warnings[0].contains(fact) && audits[0].contains(fact), "{fact} in {warnings:?} and {audits:?}");
    }
    assert!(warnings[0].contains("count=1"));
    assert!(!warnings[0].contains("url"), "no URL is signed: {}", warnings[0]);
}

#[tokio::test]
async fn forger_cannot_flood_the_log() {
    let (logs, _guard) = Logs::capture();
    let clock = ManualClock::at_unix(NOW);
    let app = nested(scheme(), &clock);
    let event = sender(scheme(), "/api/webhooks/acme", &clock).deliver(r#"{"id":"evt_1"}"#);
    for minute in 0..3 {
        for _ in 0..500 {
            send(&app, event.clone().tampered().request_as()).await;
            send(&app, event.clone().aged(Duration::from_secs(3600)).request_as()).await;
            // Scanners send no signature at all.
            let unsigned = Request::post("/api/webhooks/acme").body(Body::empty()).expect("a request");
            send(&app, unsigned).await;
        }
        let warnings = warnings(&logs);
        assert_eq!(warnings.len(), 2 * (minute + 1), "a mismatch and a stale one a minute: {warnings:#?}");
        assert_eq!(logs.count("count=1 "), 3, "the first of each kind");
        assert_eq!(logs.count("count=500 "), 3 * minute, "then those of each minute");
        clock.advance(Duration::from_secs(60));
    }
    let told = logs.lines().into_iter().filter(|line| line.level <= Level::INFO).count();
    assert_eq!(told, 9, "nothing else above the level for debugging, and the missing signatures as information");
    assert_eq!(logs.audits().len(), 4_500, "where every delivery still has its line");
}

#[tokio::test]
async fn signed_url_is_named_as_a_cause_where_one_is_signed() {
    for (signs_url, app_scheme) in [
        (true, scheme::square("a secret", "https://receiver.example/hook").expect("a scheme")),
        (false, scheme::github("a secret").expect("a scheme")),
    ] {
        let (logs, _guard) = Logs::capture();
        let layer = WebhookLayer::new(app_scheme.clone(), MemoryStore::new());
        let app: Router = Router::new().route("/hook", post(on_event)).layer(layer);
        let event = TestSender::new(app_scheme).uri("/hook").deliver(r#"{"event_id":"evt_1"}"#).tampered();
        assert_eq!(send(&app, event.request_as()).await, StatusCode::UNAUTHORIZED);
        let warnings = warnings(&logs);
        assert_eq!((warnings.len(), warnings[0].contains("url")), (1, signs_url), "{warnings:?}");
    }
}

#[tokio::test]
async fn unknown_tenant_is_named_and_cannot_write_lines_of_its_own() {
    let (logs, _guard) = Logs::capture();
    let tenants = TenantSecrets::by_path("source", async |tenant: String| {
        Ok((tenant == "acme").then(|| Secret::new(SECRET)).transpose()?.map(|secret| vec![secret]))
    });
    let clock = ManualClock::at_unix(NOW);
    let app = nested(scheme::timestamped(tenants).expect("a scheme"), &clock);
    let deliver = |path: &str| sender(scheme(), path, &clock).deliver(r#"{"id":"evt_1"}"#).request_as();
    assert_eq!(send(&app, deliver("/api/webhooks/acme")).await, StatusCode::OK);
    assert_eq!(send(&app, deliver("/api/webhooks/n%C3%B6body%22here")).await, StatusCode::UNAUTHORIZED);
    let warnings = warnings(&logs);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains(r#"rejection="unknown_tenant""#), "{warnings:?}");
    assert!(warnings[0].contains(r#"tenant=nöbody"#), "{warnings:?}");
    // A known tenant's refusal names it as well.
    let forged = sender(scheme(), "/api/webhooks/acme", &clock).deliver("{}").tampered();
    assert_eq!(send(&app, forged.request_as()).await, StatusCode::UNAUTHORIZED);
    assert_eq!(logs.count(r#"tenant=acme path=/api/webhooks/acme"#), 2, "{:#?}", logs.lines());
}

#[tokio::test]
async fn released_event_tells_status_and_reason() {
    let (logs, _guard) = Logs::capture();
    let app: Router = Router::new()
        .route("/status", post(async |_: WebhookEvent| StatusCode::BAD_GATEWAY))
        .route("/reason", post(async |_: WebhookEvent| Err::<(), _>(HandlerError::transient("the ledger is locked"))))
        .layer(WebhookLayer::new(scheme(), MemoryStore::new()));
    for (path, facts) in [
        ("/status", [r#"outcome="released""#, "status=502", r#"reason="the handler answered 502 Bad Gateway""#]),
        ("/reason", [r#"outcome="released""#, "status=500", r#"reason="the ledger is locked""#]),
    ] {
        let event = TestSender::new(scheme()).uri(path).deliver(r#"{"id":"evt_1"}"#);
        send(&app, event.request_as()).await;
        let Some(Line { text, level, .. }) = logs.lines().pop() else { panic!("a line") };
        assert_eq!(level, Level::WARN);
        for fact in facts {
            assert!(text.contains(fact), "{fact} in {text}");
        }
    }
}

#[tokio::test]
async fn missing_layer_is_told_to_the_operator_and_not_to_the_sender() {
    let (logs, _guard) = Logs::capture();
    let app: Router = Router::new().route("/forgotten/{source}", post(on_event));
    for _ in 0..100 {
        let request = Request::post("/forgotten/acme").body(Body::empty()).expect("a request");
        let response = app.clone().oneshot(request).await.expect("an answer");
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(response.into_body().collect().await.expect("a body").to_bytes().is_empty());
    }
    let [Line { text, level, .. }] = &logs.lines()[..] else { panic!("one line: {:#?}", logs.lines()) };
    assert_eq!(*level, Level::ERROR);
    assert!(text.contains("without a WebhookLayer") && text.contains("path=/forgotten/acme"), "{text}");
}

#[tokio::test]
async fn what_needs_no_signature_stays_below_the_usual_level() {
    let (logs, _guard) = Logs::capture();
    let intercom = || scheme::intercom("a secret").expect("a scheme");
    let layer = WebhookLayer::new(intercom(), MemoryStore::new());
    let app: Router = Router::new().route("/hook", any(on_event)).layer(layer);
    for _ in 0..100 {
        // The request by which the provider, or anybody else, sees that the endpoint is there.
        let probe = Request::head("/hook").body(Body::empty()).expect("a request");
        assert_eq!(send(&app, probe).await, StatusCode::OK);
        // A signature that nobody has looked at yet, and a body that never comes.
        let endless = Body::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>());
        let request = TestSender::new(intercom()).uri("/hook").deliver("{}").request_as::<Body>().map(|_| endless);
        let mut delivery = Box::pin(app.clone().oneshot(request));
        let pending = poll_fn(|cx| Poll::Ready(delivery.as_mut().poll(cx).is_pending())).await;
        assert!(pending, "the body never ends");
    }
    assert_eq!((logs.count("outcome=\"handshake\""), logs.count("outcome=\"abandoned\"")), (100, 100));
    assert!(logs.lines().iter().all(|line| line.level == Level::DEBUG), "{:#?}", logs.lines());
}

#[tokio::test]
async fn lookups_that_fail_are_told_once_a_minute() {
    let (logs, _guard) = Logs::capture();
    let tenants = TenantSecrets::by_path("source", async |_: String| Err("the vault is sealed".into()));
    let clock = ManualClock::at_unix(NOW);
    let app = nested(scheme::timestamped(tenants).expect("a scheme"), &clock);
    for n in 0..50 {
        let event = sender(scheme(), &format!("/api/webhooks/tenant_{n}"), &clock).deliver(r#"{"id":"evt_1"}"#);
        assert_eq!(send(&app, event.request_as()).await, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(logs.count("could not be looked up"), 1 + 50, "one warning, and the audits");
    assert_eq!(warnings(&logs).len(), 1, "{:#?}", warnings(&logs));
}

/// What `tracing_subscriber::fmt` writes.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_line_has_a_field_twice() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let handler = async |event: WebhookEvent| {
        tracing::info!(target: "app", "charging");
        if event.id() == "evt_2" { StatusCode::BAD_GATEWAY } else { StatusCode::OK }
    };
    let layer = WebhookLayer::new(scheme(), MemoryStore::new());
    let app: Router = Router::new().route("/webhooks", post(handler)).layer(layer);
    for id in ["evt_1", "evt_1", "evt_2"] {
        let event = TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}","type":"t"}}"#));
        send(&app, event.request_as()).await;
        send(&app, event.header(HEADER, "t=1,v1=00").request_as()).await;
    }
    drop(guard);
    let text = String::from_utf8(written.0.lock().expect("no panic").clone()).expect("text");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("tower_webhook") || line.contains("app")).collect();
    assert!(lines.len() >= 8, "{text}");
    for line in &lines {
        for field in ["endpoint=", "tenant=", " id=", "event_type=", "outcome=", "scheme="] {
            assert!(line.matches(field).count() <= 1, "{field} twice: {line}");
        }
    }
    let of_handler = lines.iter().find(|line| line.contains("charging")).expect("the handler's line");
    assert!(of_handler.contains(r#"endpoint="/webhooks""#) && of_handler.contains("evt_1"), "{of_handler}");
}
