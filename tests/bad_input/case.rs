//! Signing by hand, and the two verdicts that a case can ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use futures_util::{StreamExt, stream};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::scheme::Scheme;
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::ManualClock;
use tower_webhook::{Outcome, WebhookLayer};

use crate::support::{Answer, HEADER, NOW, Receiver, SECRET};

pub(crate) const BODY: &str = r#"{"id":"evt_1","type":"test.event"}"#;

/// HMAC-SHA256 in hex, by no code of the crate.
pub(crate) fn tag(key: impl AsRef<[u8]>, message: impl AsRef<[u8]>) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_ref()).expect("any key will do");
    mac.update(message.as_ref());
    hex::encode(mac.finalize().into_bytes())
}

/// The signature that belongs to this timestamp and body.
pub(crate) fn sign(timestamp: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> String {
    tag(SECRET, [timestamp.as_ref(), b".", body.as_ref()].concat())
}

/// The signature of [`BODY`], made now.
pub(crate) fn good() -> String {
    sign(NOW.to_string(), BODY)
}

/// A well-formed header with this key's signature of the body, made now.
pub(crate) fn header_by(key: impl AsRef<[u8]>, body: impl AsRef<[u8]>) -> String {
    let message = [format!("{NOW}.").as_bytes(), body.as_ref()].concat();
    format!("t={NOW},v1={}", tag(key, message))
}

/// A delivery with this signature header.
pub(crate) fn request(header: impl AsRef<[u8]>, body: impl Into<Body>) -> Request<Body> {
    let mut request = unsigned(body);
    let value = HeaderValue::from_bytes(header.as_ref()).expect("the value of a header");
    request.headers_mut().insert(HEADER, value);
    request
}

/// A correctly signed delivery of this body.
pub(crate) fn signed(body: impl AsRef<[u8]>) -> Request<Body> {
    let body = body.as_ref();
    request(header_by(SECRET, body), Bytes::copy_from_slice(body))
}

pub(crate) fn unsigned(body: impl Into<Body>) -> Request<Body> {
    Request::post("/webhooks").body(body.into()).expect("a request")
}

/// A body without end, and how many frames of it were asked for.
pub(crate) fn endless_body(frame: &'static [u8]) -> (Body, Arc<AtomicUsize>) {
    let polled = Arc::new(AtomicUsize::new(0));
    let counter = polled.clone();
    let frames = stream::repeat(Ok::<_, std::convert::Infallible>(Bytes::from_static(frame)));
    let counted = frames.inspect(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    (Body::from_stream(counted), polled)
}

/// A receiver with a scheme of its own.
pub(crate) fn receiver_with(scheme: impl Scheme) -> Receiver {
    let (store, clock) = (MemoryStore::new(), ManualClock::at_unix(NOW));
    let layer = WebhookLayer::new(scheme, store.clone()).clock(clock.clone());
    let mut receiver = Receiver::configured(|_| layer);
    (receiver.store, receiver.clock) = (store, clock);
    receiver
}

/// A fresh receiver refuses the request: with this status, for this reason, and without a trace.
pub(crate) async fn refused(request: Request<Body>, status: u16, kind: RejectionKind, what: &str) {
    refused_by(&Receiver::new(), request, status, kind, what).await;
}

/// As [`refused`], by a receiver that has handled nothing yet.
pub(crate) async fn refused_by(
    receiver: &Receiver,
    request: Request<Body>,
    status: u16,
    kind: RejectionKind,
    what: &str,
) {
    let answer = receiver.send(request).await;
    untouched(receiver, what);
    assert_eq!(answer.status, status, "{what}: {:?}", answer.outcome);
    assert_eq!(answer.rejection(), Some(kind), "{what}");
    if answer.status == StatusCode::UNAUTHORIZED {
        assert_uniform(&answer, what);
    }
}

/// A fresh receiver handles the request, once.
pub(crate) async fn accepted(request: Request<Body>, what: &str) {
    accepted_by(&Receiver::new(), request, what).await;
}

/// As [`accepted`], by a receiver that may have handled others.
pub(crate) async fn accepted_by(receiver: &Receiver, request: Request<Body>, what: &str) {
    let (runs, stored) = (receiver.runs(), receiver.store.len());
    let answer = receiver.send(request).await;
    assert!(answer.status.is_success(), "{what}: {:?}", answer.outcome);
    assert_eq!(answer.outcome, Some(Outcome::Completed), "{what}");
    assert_eq!((receiver.runs(), receiver.store.len()), (runs + 1, stored + 1), "{what}: run once, stored once");
}

pub(crate) fn untouched(receiver: &Receiver, what: &str) {
    assert_eq!(receiver.runs(), 0, "{what}: the handler ran");
    assert!(receiver.store.is_empty(), "{what}: something was stored");
}

/// Every 401 is the same, to the byte.
fn assert_uniform(answer: &Answer, what: &str) {
    let headers = HeaderMap::from_iter([(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"))]);
    assert_eq!((&answer.headers, &answer.body[..]), (&headers, &b""[..]), "{what}");
}
