//! Rows 46 and 50: what operators are told of all this. One audit event per delivery, and nothing that is not theirs.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request};
use axum::routing::post;
use axum::{Router, http};
use tower::{Layer, Service, ServiceExt};
use tower_webhook::scheme::{self, Profile};
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::{TestDelivery, TestSender};
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer};
use tracing::subscriber::DefaultGuard;

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb};
use crate::support::logs::Logs;
use crate::support::{HEADER, SECRET, scheme};

const MARKER: &str = "marker-in-the-body";
const LEASE: Duration = Duration::from_secs(30);

/// A receiver whose every word is heard.
struct Heard {
    receiver: ControlledReceiver,
    logs: Logs,
    signatures: Vec<String>,
    _guard: DefaultGuard,
}

impl Heard {
    fn new(configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        let (logs, guard) = Logs::capture();
        Self { receiver: ControlledReceiver::configured(configure), logs, signatures: Vec::new(), _guard: guard }
    }

    fn body(id: &str) -> String {
        format!(r#"{{"id":"{id}","type":"test.event","note":"{MARKER}"}}"#)
    }

    fn delivery(&self, id: &str) -> TestDelivery {
        self.receiver.sender.deliver(Self::body(id))
    }

    fn request(&mut self, delivery: &TestDelivery) -> Request<Body> {
        let request = delivery.request_as();
        let signature: Option<&http::HeaderValue> = request.headers().get(HEADER);
        self.signatures
            .extend(signature.and_then(|value| value.to_str().ok()).filter(|text| text.len() > 9).map(str::to_owned));
        request
    }

    /// Delivers, and asserts that exactly one audit event told of it, with this outcome.
    async fn tells(&mut self, delivery: &TestDelivery, outcome: &str) {
        let before = self.logs.audits().len();
        let request = self.request(delivery);
        self.receiver.send(request).await;
        let audits = self.logs.audits().split_off(before);
        assert_eq!(audits.len(), 1, "{outcome}: {audits:?}");
        assert!(audits[0].contains(outcome), "expected {outcome} in {}", audits[0]);
    }

    fn spawn(&mut self, id: &str) -> tokio::task::JoinHandle<()> {
        let request = self.request(&self.delivery(id));
        let receiver = self.receiver.clone();
        tokio::spawn(async move { drop(receiver.send(request).await) })
    }

    /// Asserts how often deliveries were told of in all, and that nothing was told which must not be.
    fn check(&self, deliveries: usize) {
        let lines = self.logs.lines();
        assert_eq!(self.logs.audits().len(), deliveries, "{:#?}", self.logs.audits());
        for line in &lines {
            for private in [SECRET, MARKER, "note"].into_iter().chain(self.signatures.iter().map(String::as_str)) {
                assert!(!line.text.contains(private), "{private} was told: {line:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn row_50_refusals_are_told_once_and_tell_nothing_private() {
    let mut heard = Heard::new(|layer| layer.body_limit(500).expect("a limit"));
    let good = heard.delivery("evt_1");
    let hour = Duration::from_secs(3600);
    let garbled = good.clone().header(HEADER, &format!("t={MARKER},v1={SECRET}"));
    for (delivery, rejection) in [
        (good.clone().tampered(), "signature_mismatch"),
        (good.clone().aged(hour), "stale"),
        (good.clone().header(HEADER, ""), "missing_signature"),
        (garbled, "malformed_signature"),
        (good.clone().header(HEADER, &format!("t=1700000000,v0={MARKER}")), "unsupported_signature"),
        (good.clone().method(Method::GET), "method_not_allowed"),
        (good.clone().header("content-encoding", MARKER), "unsupported_encoding"),
        (heard.receiver.sender.deliver(MARKER.repeat(100)), "body_too_large"),
        (heard.receiver.sender.deliver(format!("{{{MARKER}")), "malformed_body"),
        (heard.receiver.sender.deliver(format!(r#"{{"note":"{MARKER}"}}"#)), "invalid_id"),
    ] {
        heard.tells(&delivery, rejection).await;
    }
    heard.receiver.store.breaks_times(Verb::Claim, Fault::Fail, 1);
    heard.tells(&good, "store_unavailable").await;
    heard.receiver.store.breaks(Verb::Claim, Fault::Hang);
    heard.tells(&good, "store_unavailable").await;
    heard.receiver.layer.drain_handle().drain(Duration::ZERO).await;
    heard.tells(&good, "draining").await;
    heard.check(13);
}

#[tokio::test(start_paused = true)]
async fn row_50_endings_are_told_once_and_tell_nothing_private() {
    let mut heard = Heard::new(|layer| layer);
    let event = heard.delivery("evt_1");
    heard.receiver.handler.answers(500);
    heard.tells(&event, "released").await;
    heard.receiver.handler.answers(200);
    heard.tells(&event, "completed").await;
    heard.tells(&event, "duplicate").await;
    heard.tells(&heard.receiver.sender.deliver(format!(r#"{{"id":"evt_1","other":"{MARKER}"}}"#)), "duplicate").await;
    assert_eq!(heard.logs.count("body_changed"), 1);
    heard.receiver.store.breaks_times(Verb::Complete, Fault::Fail, 3);
    heard.tells(&heard.delivery("evt_2"), "completion_pending").await;
    assert_eq!(heard.receiver.layer.drain_handle().drain(LEASE).await.dropped, 0);
    assert_eq!(heard.logs.count("the settlement succeeded after retries"), 1);
    heard.check(5);
}

#[tokio::test(start_paused = true)]
async fn row_50_panics_permanent_failures_and_mismatches_tell_nothing_private() {
    #[derive(serde::Deserialize)]
    struct Typed {
        note: u64,
    }
    let (logs, _guard) = Logs::capture();
    let layer = || WebhookLayer::new(scheme(), MemoryStore::new());
    let panics = post(|event: WebhookEvent| async move {
        if !event.body().is_empty() {
            std::panic::resume_unwind(Box::new(format!("{:?}", event.body())));
        }
    });
    let permanent = post(|_: WebhookEvent| async { Err::<(), _>(HandlerError::permanent("no such customer")) });
    let typed = post(|event: WebhookEvent<Typed>| async move { event.data().note.to_string() });
    for (handler, outcome) in [(panics, "panicked"), (permanent, "failed"), (typed, "released")] {
        let app: Router = Router::new().route("/webhooks", handler).layer(layer());
        let request = TestSender::new(scheme()).deliver(Heard::body("evt_1")).request_as::<Body>();
        app.oneshot(request).await.expect("a router cannot fail");
        let told = logs.audits().pop().expect("an audit event");
        assert!(told.contains(&format!("outcome=\"{outcome}\"")), "{told}");
    }
    assert_eq!(logs.audits().len(), 3);
    assert_eq!((logs.count(MARKER), logs.count(SECRET)), (0, 0), "{:#?}", logs.lines());
}

#[tokio::test(start_paused = true)]
async fn row_50_duplicates_renewals_and_zombies_tell_nothing_private() {
    let mut heard = Heard::new(|layer| layer);
    heard.receiver.handler.hold();
    let zombie = heard.spawn("evt_1");
    heard.receiver.handler.started(1).await;
    heard.tells(&heard.delivery("evt_1"), "in_flight").await;
    tokio::time::sleep(2 * LEASE).await;
    heard.receiver.store.breaks(Verb::Renew, Fault::Fail);
    tokio::time::sleep(2 * LEASE).await;
    heard.receiver.store.heal(Verb::Renew);
    assert_eq!(heard.logs.count("the claim is no longer held"), 1);
    let owner = heard.spawn("evt_1");
    heard.receiver.handler.started(2).await;
    heard.receiver.handler.go();
    zombie.await.expect("no panic");
    assert!(heard.logs.audits().last().is_some_and(|audit| audit.contains("claim_lost")));
    let waiting = heard.spawn("evt_1");
    heard.receiver.store.called(Verb::Claim, heard.receiver.store.calls(Verb::Claim) + 2).await;
    heard.receiver.handler.answers(500);
    heard.receiver.handler.go();
    owner.await.expect("no panic");
    waiting.await.expect("no panic");
    assert_eq!(heard.logs.count("first_failed"), 1);
    heard.check(4);
}

#[tokio::test(start_paused = true)]
async fn row_50_hang_ups_are_told_once() {
    let mut heard = Heard::new(|layer| layer);
    heard.receiver.handler.hold();
    // Mid-body.
    let endless = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::convert::Infallible>>());
    let request = heard.request(&heard.delivery("evt_1")).map(|_| endless);
    let mut service = heard.receiver.app.clone();
    let mut delivery = Box::pin(service.call(request));
    let pending = std::future::poll_fn(|cx| std::task::Poll::Ready(delivery.as_mut().poll(cx).is_pending())).await;
    assert!(pending, "the body never ends");
    drop(delivery);
    assert_eq!(heard.logs.count("outcome=\"abandoned\""), 1);
    // Mid-handler: told when it has ended, by what came of it.
    let detached = heard.spawn("evt_1");
    heard.receiver.handler.started(1).await;
    // And while it waits for that one.
    let waiting = heard.spawn("evt_1");
    heard.receiver.store.called(Verb::Claim, 3).await;
    waiting.abort();
    detached.abort();
    heard.receiver.requests.dropped(3).await;
    assert_eq!(heard.logs.audits().len(), 2);
    heard.receiver.handler.go();
    assert_eq!(heard.receiver.layer.drain_handle().drain(LEASE).await.dropped, 0);
    assert_eq!(heard.logs.count("outcome=\"completed\""), 1);
    heard.check(3);
}

#[tokio::test(start_paused = true)]
async fn row_50_dropped_handlers_are_told_once() {
    let mut heard = Heard::new(WebhookLayer::cancel_on_disconnect);
    heard.receiver.handler.hold();
    let cancelled = heard.spawn("evt_1");
    heard.receiver.handler.started(1).await;
    cancelled.abort();
    heard.receiver.handler.dropped(1).await;
    assert_eq!(heard.logs.audits().len(), 1);
    let drained = heard.spawn("evt_2");
    heard.receiver.handler.started(2).await;
    assert_eq!(heard.receiver.layer.drain_handle().drain(LEASE).await.dropped, 1);
    drained.await.expect("no panic");
    assert_eq!(heard.logs.count("the drain's deadline is over"), 1);
    heard.check(2);
}

/// A claim that ended because it was settled is not one that was lost, however slowly the store says so.
#[tokio::test(start_paused = true)]
async fn settled_claim_is_not_reported_as_lost() {
    for (verb, status) in [(Verb::Complete, 200), (Verb::Release, 500)] {
        let mut heard = Heard::new(|layer| layer.claim_deadline(LEASE).expect("a deadline"));
        heard.receiver.handler.hold();
        heard.receiver.handler.answers(status);
        heard.receiver.store.breaks(verb, Fault::HoldReply);
        let delivery = heard.spawn("evt_1");
        heard.receiver.handler.started(1).await;
        heard.receiver.handler.go();
        heard.receiver.store.called(verb, 1).await;
        tokio::time::sleep(LEASE / 2).await;
        heard.receiver.store.heal(verb);
        delivery.await.expect("no panic");
        assert_eq!(heard.logs.count("the claim is no longer held"), 0, "{verb:?} took effect");
        heard.check(1);
    }
}

/// The completion took effect, and its reply is late: the lease that is renewed meanwhile is gone, and not lost.
#[tokio::test(start_paused = true)]
async fn completion_with_a_late_reply_is_not_reported_as_lost() {
    let mut heard = Heard::new(|layer| layer);
    heard.receiver.store.breaks(Verb::Complete, Fault::HoldReply);
    heard.tells(&heard.delivery("evt_1"), "completion_pending").await;
    heard.receiver.store.called(Verb::Renew, 1).await;
    tokio::time::sleep(LEASE).await;
    heard.receiver.store.heal(Verb::Complete);
    assert_eq!(heard.receiver.layer.drain_handle().drain(LEASE).await.dropped, 0);
    assert_eq!(heard.logs.count("the settlement succeeded after retries"), 1);
    assert_eq!(heard.logs.count("the claim is no longer held"), 0, "{:#?}", heard.logs.lines());
    heard.check(1);
}

const WARNING: &str = "shorter than the sender's retry window";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Puts the layer to use, which is when its configuration is complete.
fn apply(layer: &WebhookLayer) {
    let _service = layer.layer(Router::<()>::new());
}

#[test]
fn row_46_retention_shorter_than_the_retry_window_is_warned_about() {
    let (logs, _guard) = Logs::capture();
    for (retention, warnings) in [(None, 0), (Some(3 * DAY), 0), (Some(3 * DAY - Duration::from_secs(1)), 1)] {
        let stripe = scheme::stripe("whsec_x").expect("a scheme");
        let mut layer = WebhookLayer::new(stripe, MemoryStore::new());
        if let Some(retention) = retention {
            layer = layer.retention(retention).expect("a retention");
        }
        apply(&layer);
        apply(&layer);
        assert_eq!(logs.count(WARNING), warnings, "{retention:?}: once, and only where it is too short");
    }
    assert!(logs.lines().iter().all(|line| line.level == tracing::Level::WARN));
}

/// A window longer than the default retention: warned about, unless the retention is raised to it.
#[test]
fn row_46_raised_retention_is_not_warned_about() {
    let patient = || {
        let mut profile = Profile::default();
        profile.retry_window = Some(30 * DAY);
        WebhookLayer::new(scheme().with_profile(profile), MemoryStore::new())
    };
    let (logs, _guard) = Logs::capture();
    apply(&patient().retention(30 * DAY).expect("a retention"));
    assert_eq!(logs.count(WARNING), 0, "the retention in use is long enough");
    apply(&patient());
    assert_eq!(logs.count(WARNING), 1, "seven days are too short");
}

/// Warned about from 80 %, and told once.
#[tokio::test]
async fn filling_memory_store_is_warned_about() {
    let (logs, _guard) = Logs::capture();
    let receiver = ControlledReceiver::on(MemoryStore::builder().capacity(10).build(), |layer| layer);
    for (event, warnings) in [(7, 0), (8, 1), (9, 1)] {
        while receiver.handler.runs() < event {
            receiver.deliver(&format!("evt_{}", receiver.handler.runs())).await;
        }
        assert_eq!(logs.count("the memory store is filling up"), warnings, "{event} of 10");
    }
}

/// Same id, other bytes: in the audit of that delivery, and nowhere else.
#[tokio::test]
async fn changed_body_is_audited() {
    let (logs, _guard) = Logs::capture();
    let receiver = ControlledReceiver::new();
    for body in [r#"{"id":"evt_1","n":1}"#, r#"{"id":"evt_1","n":1}"#, r#"{"id":"evt_1","n":2}"#] {
        receiver.send(receiver.sender.deliver(body).request_as()).await;
    }
    assert_eq!(logs.audits().len(), 3);
    assert_eq!(logs.count("body_changed"), 1);
}
