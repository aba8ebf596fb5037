//! What is compared: routers, and the requests that each is sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::post;
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use tower_webhook::scheme;
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{WebhookEvent, WebhookLayer};

use super::payload;

const SECRET: &str = "whsec_bench_secret";

pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) app: Router,
    pub(crate) prepare: Box<dyn Fn(usize) -> Vec<Request<Body>>>,
}

impl Variant {
    fn new(name: &'static str, app: Router, prepare: impl Fn(usize) -> Vec<Request<Body>> + 'static) -> Self {
        // As `axum::serve` does: routes are made once, and not for every request.
        Self { name, app: app.with_state(()), prepare: Box::new(prepare) }
    }
}

pub(crate) fn deliveries(size: usize) -> Vec<Variant> {
    let same = move |count| (0..count).map(|_| signed("evt_same", size)).collect();
    let fresh = move |count| (0..count).map(|_| signed(&new_id(), size)).collect();
    vec![
        Variant::new("bare", Router::new().route("/webhooks", post(bare)), fresh),
        Variant::new("ideal", ideal(), fresh),
        Variant::new("fresh", layered(), fresh),
        Variant::new("duplicate", layered(), same),
        Variant::new("handwritten", Router::new().route("/webhooks", post(handwritten)), fresh),
    ]
}

pub(crate) fn refusals() -> Vec<Variant> {
    let without = |count| (0..count).map(|_| request(HeaderMap::new(), Bytes::from_static(b"{}"))).collect();
    let with = |value: &'static str| {
        move |count| {
            let headers = || {
                HeaderMap::from_iter([("webhook-signature".parse().expect("a name"), value.parse().expect("a value"))])
            };
            (0..count).map(|_| request(headers(), Bytes::from_static(b"{}"))).collect()
        }
    };
    const STALE: &str = "t=1600000000,v1=00000000000000000000000000000000000000000000000000000000000000000000";
    let bare_401 = Router::new().route("/webhooks", post(|| async { StatusCode::UNAUTHORIZED }));
    vec![
        Variant::new("bare 401", bare_401, with(STALE)),
        Variant::new("missing header", layered(), without),
        Variant::new("malformed header", layered(), with("t=now,v1=00")),
        Variant::new("stale header", layered(), with(STALE)),
    ]
}

fn layered() -> Router {
    let layer = WebhookLayer::new(scheme::timestamped(SECRET).expect("a secret"), MemoryStore::new());
    Router::new().route("/webhooks", post(on_event)).layer(layer)
}

async fn on_event(event: WebhookEvent) {
    std::hint::black_box(event.id());
}

/// The floor: routing, and an answer. It does not touch the body.
async fn bare() {}

#[derive(serde::Deserialize)]
struct Envelope<'a> {
    id: &'a str,
    r#type: &'a str,
}

/// What cannot be saved: the floor, one MAC keyed beforehand, one pass for the envelope.
fn ideal() -> Router {
    let keyed = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any key fits");
    let handler = move |body: Bytes| async move {
        let mut mac = keyed.clone();
        mac.update(b"1700000000.");
        mac.update(&body);
        std::hint::black_box(mac.finalize().into_bytes());
        let envelope: Envelope<'_> = serde_json::from_slice(&body).expect("an envelope");
        std::hint::black_box((envelope.id, envelope.r#type));
    };
    Router::new().route("/webhooks", post(handler))
}

/// What is usually written by hand: the signed text formatted, the digest in hex, the body as a tree.
async fn handwritten(headers: HeaderMap, body: String) -> StatusCode {
    let header = headers["webhook-signature"].to_str().expect("text");
    let mut parts = header.split(',');
    let timestamp = parts.next().and_then(|part| part.strip_prefix("t=")).expect("t");
    let signature = parts.next().and_then(|part| part.strip_prefix("v1=")).expect("v1");
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any key fits");
    mac.update(format!("{timestamp}.{body}").as_bytes());
    let expected = hex::encode(mac.finalize().into_bytes());
    let age = unix_time().abs_diff(timestamp.parse().expect("a number"));
    if expected != signature || age > 300 {
        return StatusCode::UNAUTHORIZED;
    }
    let event: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    std::hint::black_box((event["id"].as_str(), event["type"].as_str()));
    StatusCode::OK
}

fn signed(id: &str, size: usize) -> Request<Body> {
    TestSender::new(scheme::timestamped(SECRET).expect("a secret")).deliver(payload::event(id, size)).request_as()
}

fn request(headers: HeaderMap, body: Bytes) -> Request<Body> {
    let mut request = Request::post("/webhooks").body(Body::from(body)).expect("a request");
    request.headers_mut().extend(headers);
    request
}

fn new_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("evt_{:016}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
