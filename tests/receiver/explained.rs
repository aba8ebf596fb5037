//! `WebhookLayer::explain_refusals`: the operator learns why deliveries are refused, and the sender nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::post;
use tower::ServiceExt;
use tower_webhook::scheme::{self, Algorithm, Custom, Encoding, Proof, Scheme, Suspect, Suspects};
use tower_webhook::secrets::{Key, Secret, Secrets, TenantSecrets};
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::{ManualClock, TestDelivery, TestSender};
use tower_webhook::{WebhookEvent, WebhookLayer};
use tracing::Level;

use crate::support::logs::Logs;
use crate::support::wait::eventually;
use crate::support::{Answer, HEADER, NOW, Receiver, SECRET};

const DIAGNOSED: &str = "a refused delivery was diagnosed";
const TEST_MODE: &str = "whsec_of_the_test_mode";

fn explaining(layer: WebhookLayer) -> WebhookLayer {
    layer.explain_refusals([Suspect::new(TEST_MODE).label("test mode")])
}

/// A delivery that was signed in the test mode.
fn swapped(receiver: &Receiver) -> TestDelivery {
    let sender = TestSender::new(scheme::timestamped(TEST_MODE).expect("a secret")).clock(receiver.clock.clone());
    sender.deliver(r#"{"id":"evt_1","amount":4711}"#)
}

/// Waits for this many diagnoses in all.
async fn diagnosed(logs: &Logs, times: usize) {
    eventually("a diagnosis", async || logs.count(DIAGNOSED) >= times).await;
    assert_eq!(logs.count(DIAGNOSED), times);
}

#[tokio::test]
async fn refusal_is_explained_once_a_minute() {
    let (logs, _guard) = Logs::capture();
    let receiver = Receiver::configured(explaining);
    for minute in 1..=3 {
        for _ in 0..50 {
            receiver.deliver(&swapped(&receiver)).await;
        }
        diagnosed(&logs, minute).await;
        receiver.clock.advance(Duration::from_secs(60));
    }
    let line = logs.lines().into_iter().find(|line| line.text.contains(DIAGNOSED)).expect("a line");
    assert_eq!((line.level, &*line.target), (Level::WARN, "tower_webhook"));
    for fact in [
        r#"rejection="signature_mismatch""#,
        "wrong secret: the signature is right for the suspected secret \"test mode\"",
        r#"endpoint="/webhooks""#,
        r#"scheme="timestamped""#,
        "path=/webhooks",
    ] {
        assert!(line.text.contains(fact), "{fact} in {}", line.text);
    }
    let private = [SECRET, TEST_MODE, "4711"];
    assert!(logs.lines().iter().all(|line| private.iter().all(|text| !line.text.contains(text))));
}

#[tokio::test]
async fn nothing_is_diagnosed_unless_it_is_asked_for_or_needed() {
    let (logs, _guard) = Logs::capture();
    let receiver = Receiver::new();
    receiver.deliver(&swapped(&receiver)).await;
    let receiver = Receiver::configured(explaining);
    receiver.deliver(&receiver.event("evt_1")).await;
    // What scanners send, and what says itself what is wrong, does not use up the minute's diagnosis.
    receiver.send(Request::post("/webhooks").body(Body::empty()).expect("a request")).await;
    receiver.deliver(&receiver.event("evt_1").header(HEADER, "prose")).await;
    receiver.deliver(&swapped(&receiver)).await;
    diagnosed(&logs, 1).await;
}

#[tokio::test]
async fn answer_is_the_same_as_without() {
    let (_logs, _guard) = Logs::capture();
    let (plain, explained) = (Receiver::new(), Receiver::configured(explaining));
    for delivery in [swapped, |receiver: &Receiver| receiver.event("evt_1").aged(Duration::from_secs(3600))] {
        for _ in 0..3 {
            let answers = [plain.deliver(&delivery(&plain)).await, explained.deliver(&delivery(&explained)).await];
            let [one, other] =
                answers.map(|Answer { status, headers, body, outcome }| (status, headers, body, outcome));
            assert_eq!(one, other);
        }
    }
}

/// A clock that is off is found at the head, before the body is read.
#[tokio::test]
async fn stale_delivery_is_explained_by_its_head() {
    let (logs, _guard) = Logs::capture();
    let receiver = Receiver::configured(explaining);
    receiver.deliver(&receiver.event("evt_1").aged(Duration::from_secs(312))).await;
    diagnosed(&logs, 1).await;
    let said = "diagnosis=the timestamp is too old, by 12 s: check both clocks, or raise the tolerance endpoint=";
    assert_eq!(logs.count(said), 1, "{:#?}", logs.lines());
}

#[tokio::test]
async fn every_endpoint_has_its_own_minute() {
    let (logs, _guard) = Logs::capture();
    let clock = ManualClock::at_unix(NOW);
    let scheme = || scheme::timestamped(SECRET).expect("a secret");
    let layer = explaining(WebhookLayer::new(scheme(), MemoryStore::new()).clock(clock.clone()));
    let on_event = async |_: WebhookEvent| ();
    let app: Router = Router::new().route("/a", post(on_event)).route("/b", post(on_event)).layer(layer);
    for (diagnoses, path) in [(1, "/a"), (2, "/b")] {
        for _ in 0..2 {
            let event = TestSender::new(scheme()).uri(path).clock(clock.clone()).deliver("{}").tampered();
            app.clone().oneshot(event.request()).await.expect("an answer");
            diagnosed(&logs, diagnoses).await;
        }
    }
}

#[tokio::test]
async fn tenant_is_diagnosed_with_its_own_secret_and_named() {
    let (logs, _guard) = Logs::capture();
    let clock = ManualClock::at_unix(NOW);
    let tenants = TenantSecrets::by_path("tenant", async |_: String| Ok(Some(vec![Secret::new(SECRET)?])));
    let layer = WebhookLayer::new(scheme::timestamped(tenants).expect("a scheme"), MemoryStore::new());
    let layer = layer.clock(clock.clone()).explain_refusals(Suspects::none());
    let app: Router = Router::new().route("/{tenant}", post(async |_: WebhookEvent| ())).layer(layer);
    let sender = TestSender::new(scheme::timestamped(SECRET).expect("a secret")).uri("/acme").clock(clock);
    let printed_anew = sender.deliver(r#"{"id":"evt_1"}"#).request().map(|_| Body::from("{\"id\": \"evt_1\"}"));
    app.oneshot(printed_anew).await.expect("an answer");
    diagnosed(&logs, 1).await;
    let line = logs.lines().into_iter().find(|line| line.text.contains(DIAGNOSED)).expect("a line").text;
    assert!(line.contains("the signature is right as compact JSON") && line.contains("tenant=acme"), "{line}");
}

#[tokio::test]
async fn large_body_is_not_tried_in_every_form() {
    let (logs, _guard) = Logs::capture();
    let receiver = Receiver::configured(|layer| {
        let many = ["1", "2", "3", "4", "5", "6", "7", "8"];
        layer.body_limit(2 * 1024 * 1024).expect("a limit").explain_refusals(many)
    });
    let body = format!(r#"{{"id":"{}"}}"#, "x".repeat(1024 * 1024));
    receiver.deliver(&receiver.sender.deliver(body).tampered()).await;
    diagnosed(&logs, 1).await;
    assert_eq!(logs.count("too large to be tried in every form"), 1, "{:#?}", logs.lines());
}

/// A scheme that waits at a gate wherever it is asked by another thread than the test's: in a diagnosis.
#[derive(Clone)]
struct Gate {
    test: ThreadId,
    is_open: Arc<(Mutex<bool>, Condvar)>,
    waiting: Arc<AtomicUsize>,
}

impl Gate {
    fn closed() -> Self {
        let test = std::thread::current().id();
        Self { test, is_open: Arc::default(), waiting: Arc::default() }
    }

    fn pass(&self) {
        if std::thread::current().id() == self.test {
            return;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (is_open, opened) = &*self.is_open;
        drop(opened.wait_while(is_open.lock().expect("no panic"), |is_open| !*is_open).expect("no panic"));
    }

    fn open(&self) {
        let (is_open, opened) = &*self.is_open;
        *is_open.lock().expect("no panic") = true;
        opened.notify_all();
    }
}

#[tokio::test]
async fn one_diagnosis_runs_at_a_time_and_holds_nobody_up() {
    let (logs, _guard) = Logs::capture();
    let gate = Gate::closed();
    let (passing, secrets) = (gate.clone(), Secrets::new(SECRET, |text| Key::hmac_sha256(text.as_bytes())));
    let scheme = Custom::by_head("gated", secrets.expect("a secret"), move |head| {
        passing.pass();
        let mut proof = Proof::new();
        proof.add(Algorithm::HmacSha256, Encoding::Hex, head.proof_header("x-proof")?);
        Ok(proof)
    });
    let name = scheme.name().to_owned();
    let layer = WebhookLayer::new(scheme, MemoryStore::new()).clock(ManualClock::at_unix(NOW));
    let layer = layer.explain_refusals(Suspects::none());
    let on_event = async |_: WebhookEvent| ();
    let app: Router = Router::new().route("/a", post(on_event)).route("/b", post(on_event)).layer(layer);
    let forge = async |path: &str| {
        let request = Request::post(path).header("x-proof", "00".repeat(32)).body(Body::from("{}")).expect("a request");
        Answer::read(app.clone().oneshot(request).await.expect("an answer")).await.status
    };
    assert_eq!(forge("/a").await, 401);
    eventually("the first diagnosis", async || gate.waiting.load(Ordering::SeqCst) == 1).await;
    // The first one has not ended, and all these have their answers.
    for _ in 0..20 {
        assert_eq!(forge("/b").await, 401);
    }
    assert_eq!((gate.waiting.load(Ordering::SeqCst), logs.count(DIAGNOSED)), (1, 0));
    gate.open();
    diagnosed(&logs, 1).await;
    assert_eq!(forge("/b").await, 401);
    diagnosed(&logs, 2).await;
    assert_eq!(logs.count(&format!("scheme=\"{name}\"")), logs.lines().len(), "nothing else was logged");
}
