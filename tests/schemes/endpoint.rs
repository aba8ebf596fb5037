//! An endpoint with any scheme, and what its handler and its store see.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, Request};
use axum::routing::any;
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::scheme::Scheme;
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::{ManualClock, TestDelivery, TestSender};
use tower_webhook::{Outcome, WebhookEvent, WebhookLayer};

use crate::schemes::preset::{EventType, Id, Preset};
use crate::support::faulty::Faulty;
use crate::support::{Answer, NOW};

/// The id of deliveries whose id is not in their body.
pub(crate) const DELIVERY_ID: &str = "delivery-1";
/// The type of deliveries whose type is not in their body.
pub(crate) const SENT_TYPE: &str = "thing.done";

/// A receiver of all paths and methods, so that whatever is refused is refused by the layer.
pub(crate) struct Endpoint {
    app: Router,
    pub(crate) store: Faulty,
    pub(crate) clock: ManualClock,
    events: Arc<Mutex<Vec<WebhookEvent>>>,
}

impl Endpoint {
    pub(crate) fn new(scheme: impl Scheme) -> Self {
        Self::configured(scheme, |layer| layer)
    }

    pub(crate) fn preset(name: &str) -> Self {
        Self::new(Preset::named(name).scheme())
    }

    pub(crate) fn configured(scheme: impl Scheme, configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        let (store, clock) = (Faulty::new(MemoryStore::new()), ManualClock::at_unix(NOW));
        let layer = configure(WebhookLayer::new(scheme, store.clone()).clock(clock.clone()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        let handler = move |event: WebhookEvent| {
            seen.lock().expect("no panic under the lock").push(event);
            std::future::ready(())
        };
        Self { app: Router::new().fallback(any(handler)).layer(layer), store, clock, events }
    }

    pub(crate) async fn send(&self, request: Request<Bytes>) -> Answer {
        let answer = self.app.clone().oneshot(request.map(Body::from)).await;
        Answer::read(answer.expect("a router cannot fail")).await
    }

    /// How often the handler ran.
    pub(crate) fn runs(&self) -> usize {
        self.events.lock().expect("no panic under the lock").len()
    }

    /// The event of the handler's last run.
    pub(crate) fn last_event(&self) -> WebhookEvent {
        self.events.lock().expect("no panic under the lock").last().cloned().expect("a run")
    }

    /// Asserts that the handler runs, once, and gives the event that it got.
    pub(crate) async fn accepts(&self, request: Request<Bytes>, what: &str) -> WebhookEvent {
        let runs = self.runs();
        let answer = self.send(request).await;
        assert_eq!(answer.outcome, Some(Outcome::Completed), "{what}");
        assert!(answer.status.is_success(), "{what}: {}", answer.status);
        assert_eq!(self.runs(), runs + 1, "{what}");
        self.last_event()
    }

    /// Asserts a refusal with this status and nothing else, of which neither the store nor the handler learned.
    pub(crate) async fn refuses(&self, request: Request<Bytes>, status: u16, what: &str) -> RejectionKind {
        let answer = self.refused(request, status, what).await;
        assert_eq!(&answer.body[..], b"", "{what}: a refusal says nothing");
        assert!(answer.headers.keys().all(|name| name == "content-length"), "{what}: {:?}", answer.headers);
        answer.rejection().unwrap_or_else(|| panic!("{what}: no rejection"))
    }

    /// As [`Endpoint::refuses`], whatever the answer says beside its status.
    pub(crate) async fn refused(&self, request: Request<Bytes>, status: u16, what: &str) -> Answer {
        let (runs, asked) = (self.runs(), self.store.keys());
        let answer = self.send(request).await;
        assert_eq!(answer.status, status, "{what}: {:?}", answer.outcome);
        assert!(answer.rejection().is_some(), "{what}: {:?}", answer.outcome);
        assert_eq!(self.runs(), runs, "{what}: the handler ran");
        assert_eq!(self.store.keys(), asked, "{what}: the store was asked");
        answer
    }
}

/// The preset's own delivery, as its provider sends it now.
pub(crate) fn delivery(preset: &Preset) -> TestDelivery {
    delivery_at(preset, NOW)
}

/// As [`delivery`], signed at that time.
pub(crate) fn delivery_at(preset: &Preset, unix: u64) -> TestDelivery {
    let body = match preset.name {
        // The time is in the body, and the kit leaves what is there.
        "linear" => preset.body.replace(&NOW.to_string(), &unix.to_string()),
        _ => preset.body.to_owned(),
    };
    let delivery = TestSender::new(preset.sending()).clock(ManualClock::at_unix(unix)).deliver(body).id(DELIVERY_ID);
    let delivery = if preset.is_form { delivery.form() } else { delivery };
    match preset.event_type {
        EventType::Header(_) => delivery.event_type(SENT_TYPE),
        _ => delivery,
    }
}

/// The preset's own delivery as a request.
pub(crate) fn request(preset: &Preset) -> Request<Bytes> {
    delivery(preset).request_as()
}

/// A request without a signature, but with all else that the preset's sender adds.
pub(crate) fn unsigned(preset: &Preset) -> Request<Bytes> {
    let mut request = Request::post("/webhooks").body(Bytes::from_static(preset.body.as_bytes())).expect("a request");
    let content_type = if preset.is_form { "application/x-www-form-urlencoded" } else { "application/json" };
    set(&mut request, "content-type", content_type);
    match preset.id {
        Id::Unsigned(name) | Id::UnsignedWithType(name) => set(&mut request, name, DELIVERY_ID),
        _ => {}
    }
    request
}

/// Sets a header, to any bytes that a header may have.
pub(crate) fn set<B>(request: &mut Request<B>, name: &str, value: impl AsRef<[u8]>) {
    let value = HeaderValue::from_bytes(value.as_ref()).expect("the value of a header");
    request.headers_mut().insert(name.parse::<HeaderName>().expect("the name of a header"), value);
}

/// Adds a header beside those of the same name.
pub(crate) fn add<B>(request: &mut Request<B>, name: &str, value: &str) {
    let value = HeaderValue::from_str(value).expect("the value of a header");
    request.headers_mut().append(name.parse::<HeaderName>().expect("the name of a header"), value);
}

/// The text of a header.
pub(crate) fn header<'a, B>(request: &'a Request<B>, name: &str) -> &'a str {
    request.headers().get(name).unwrap_or_else(|| panic!("no {name}")).to_str().expect("text")
}
