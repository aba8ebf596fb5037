//! Behind an inbox: a handler gets what it would have got inline, and the inbox gets no credential.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, Request, StatusCode, Uri};
use axum::routing::any;
use tower::ServiceExt;
use tower_webhook::identity::{IdSource, TypeSource};
use tower_webhook::inbox::Inbox;
use tower_webhook::queue::{Filter, Page, Queue};
use tower_webhook::rejection::Rejection;
use tower_webhook::scheme::{Custom, Encoding, Head, HeaderPattern, Outgoing, Profile, Proof, Scheme, Template};
use tower_webhook::secrets::{Algorithm, Key, SecretSet, Secrets};
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::{ManualClock, TestSender};
use tower_webhook::{ConfigError, ConfigErrorKind, WebhookEvent, WebhookLayer, Worker};

use crate::schemes::endpoint::{delivery, set};
use crate::schemes::preset::{EventType, Id, PRESETS, Preset, SECRET};
use crate::support::NOW;

/// Headers that some proxy, platform or sender adds, and that are worth something to a thief.
const CREDENTIALS: [&str; 23] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "auth",
    "x-auth",
    "x-basic-auth",
    "x-webhook-auth",
    "x-auth-user-pass",
    "cf-access-jwt-assertion",
    "x-goog-iap-jwt-assertion",
    "x-amzn-oidc-data",
    "x-amzn-oidc-identity",
    "x-ms-client-principal",
    "x-forwarded-client-cert",
    "x-session-id",
    "x-bearer",
    "x-jwt",
    "x-csrf",
    "x-otp",
    "x-sig",
    "x-hub-sig",
    "x-access",
    "x-vercel-sc-headers",
];

/// What a handler sees of an event and of the request around it.
#[derive(Clone, Debug)]
struct Seen {
    id: String,
    event_type: Option<String>,
    authenticated: [bool; 2],
    body: Bytes,
    uri: Uri,
    headers: HeaderMap,
}

type Notes = Arc<Mutex<Vec<Seen>>>;

fn noting() -> (Router, Notes) {
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = move |event: WebhookEvent, request: Request<Body>| {
        seen.lock().expect("no panic under the lock").push(Seen {
            id: event.id().to_owned(),
            event_type: event.event_type().map(str::to_owned),
            authenticated: [event.id_is_authenticated(), event.event_type_is_authenticated()],
            body: event.body().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
        });
        std::future::ready(())
    };
    (Router::new().fallback(any(handler)), notes)
}

async fn send(app: Router, request: &Request<Bytes>) {
    let answer = app.oneshot(request.clone().map(Body::from)).await.expect("a router cannot fail");
    assert_eq!(answer.status(), StatusCode::OK);
}

/// What the handler sees inline, what it sees of a worker, and the head as the inbox stored it.
async fn both_ways(
    scheme: Arc<dyn Scheme>,
    request: &Request<Bytes>,
    configure: impl Fn(WebhookLayer) -> WebhookLayer,
) -> (Seen, Seen, String) {
    both_ways_keeping(scheme, request, |inbox| inbox, configure).await
}

/// The same, with options of the inbox.
async fn both_ways_keeping(
    scheme: Arc<dyn Scheme>,
    request: &Request<Bytes>,
    keeping: impl Fn(Inbox) -> Inbox,
    configure: impl Fn(WebhookLayer) -> WebhookLayer,
) -> (Seen, Seen, String) {
    let clock = ManualClock::at_unix(NOW);
    let (handlers, notes) = noting();
    let inline = configure(WebhookLayer::new(scheme.clone(), MemoryStore::new()).clock(clock.clone()));
    send(handlers.clone().layer(inline), request).await;
    let inbox = MemoryStore::new();
    let layer = configure(WebhookLayer::inbox(scheme, keeping(Inbox::new(inbox.clone()))).clock(clock));
    send(handlers.clone().layer(layer), request).await;
    let stored = inbox.list(&Filter::all(), &Page::first(10)).await.expect("an answer");
    let key = &stored.first().expect("the event").key;
    let kept = inbox.get(key).await.expect("an answer").expect("the event");
    let head = String::from_utf8_lossy(&kept.request.expect("a request").head).into_owned();
    assert_eq!(Worker::new(inbox, handlers).run_until_idle().await, 1);
    let seen = notes.lock().expect("no panic under the lock").clone();
    let [inline, worker] = <[Seen; 2]>::try_from(seen).expect("two runs");
    (inline, worker, head)
}

/// The headers that this provider's handlers may go by, as its documentation has them.
fn wanted(preset: &Preset) -> Vec<&'static str> {
    let of_id = match preset.id {
        Id::Unsigned(name) | Id::UnsignedWithType(name) => Some(name),
        _ => None,
    };
    let of_type = match preset.event_type {
        EventType::Header(name) => Some(name),
        _ => None,
    };
    let read = [of_id, of_type, preset.timestamp_header, preset.id_header, Some("content-type"), Some("traceparent")];
    read.into_iter().flatten().chain(preset.headers.iter().copied()).collect()
}

#[tokio::test]
async fn handler_of_every_preset_sees_behind_an_inbox_what_it_sees_inline() {
    for preset in PRESETS {
        let mut request: Request<Bytes> = delivery(preset).request_as();
        for name in preset.headers.iter().chain(&["traceparent"]) {
            if !request.headers().contains_key(*name) {
                set(&mut request, name, format!("value of {name}"));
            }
        }
        for name in CREDENTIALS {
            set(&mut request, name, format!("hush {name}"));
        }
        let (inline, worker, head) = both_ways(preset.scheme(), &request, |layer| layer).await;
        let facts = |seen: &Seen| (seen.event_type.clone(), seen.authenticated, seen.body.clone(), seen.uri.clone());
        assert_eq!(facts(&worker), facts(&inline), "{}", preset.name);
        // An event without an id has a made-up one, which is another at every delivery.
        if preset.id != Id::None {
            assert_eq!(worker.id, inline.id, "{}", preset.name);
        }
        for name in wanted(preset) {
            assert!(inline.headers.contains_key(name), "{}: {name} was sent", preset.name);
            assert_eq!(worker.headers.get(name), inline.headers.get(name), "{}: {name}", preset.name);
        }
        assert!(!head.contains("hush"), "{}: {head}", preset.name);
        if let Some(signature) = preset.header {
            let sent = request.headers()[signature].to_str().expect("text");
            assert!(!worker.headers.contains_key(signature) && !head.contains(sent), "{}: {head}", preset.name);
        }
    }
}

/// The prefix of the provider brings no token or signature along, whichever scheme of the provider is used.
#[tokio::test]
async fn tokens_and_signatures_with_the_providers_prefix_are_not_kept() {
    for (name, headers) in [
        ("gitlab", &["x-gitlab-token"][..]),
        ("gitlab-signed", &["x-gitlab-token", "webhook-signature"]),
        ("github", &["x-hub-signature", "x-github-token"]),
        ("shopify", &["x-shopify-hmac-sha256", "x-shopify-access-token"]),
        ("hubspot", &["x-hubspot-signature"]),
        ("svix", &["svix-signature", "webhook-signature"]),
        ("sendgrid", &["x-twilio-email-event-webhook-signature", "x-twilio-signature"]),
    ] {
        let preset = Preset::named(name);
        let mut request: Request<Bytes> = delivery(&preset).request_as();
        for header in headers {
            if !request.headers().contains_key(*header) {
                set(&mut request, header, "hush");
            }
        }
        let (_, worker, head) = both_ways(preset.scheme(), &request, |layer| layer).await;
        let kept: Vec<_> = headers.iter().filter(|header| worker.headers.contains_key(**header)).collect();
        assert!(kept.is_empty() && !head.contains("hush"), "{name}: {kept:?}");
    }
}

#[tokio::test]
async fn query_is_kept_without_credentials_unless_they_are_chosen() {
    let preset = Preset::named("github");
    let mut request: Request<Bytes> = delivery(&preset).request_as();
    *request.uri_mut() = "/webhooks?tenant=acme&auth_token=hush&key=1&%74oken=hush".parse().expect("a uri");
    let (inline, worker, head) = both_ways(preset.scheme(), &request, |layer| layer).await;
    assert_eq!(inline.uri, *request.uri());
    assert_eq!(worker.uri, "/webhooks?tenant=acme&auth_token=&key=&%74oken=");
    assert!(!head.contains("hush"));
    let (_, worker, _) =
        both_ways_keeping(preset.scheme(), &request, |inbox| inbox.keep_query_values(["key"]), |layer| layer).await;
    assert_eq!(worker.uri, "/webhooks?tenant=acme&auth_token=&key=1&%74oken=");
}

#[tokio::test]
async fn more_headers_are_kept_by_choice() {
    let preset = Preset::named("github");
    let mut request: Request<Bytes> = delivery(&preset).request_as();
    for (name, value) in [("x-forwarded-for", "10.0.0.1"), ("x-auth", "hush"), ("baggage", "a=b")] {
        set(&mut request, name, value);
    }
    let kept = async |patterns: &'static [&'static str]| {
        let keeping = |inbox: Inbox| inbox.keep_headers(patterns).expect("patterns");
        let (_, worker, _) = both_ways_keeping(preset.scheme(), &request, keeping, |layer| layer).await;
        let names = ["x-forwarded-for", "x-auth", "baggage", "x-hub-signature-256"];
        names.map(|name| worker.headers.contains_key(name))
    };
    assert_eq!(kept(&[]).await, [false; 4]);
    assert_eq!(kept(&["X-Forwarded-*", "baggage"]).await, [true, false, true, false]);
    assert_eq!(kept(&["*"]).await, [true, false, true, false], "a beginning keeps no credentials");
    assert_eq!(
        kept(&["x-auth", "x-hub-signature-256"]).await,
        [false, true, false, true],
        "a name keeps what it names"
    );
}

#[test]
fn text_that_names_no_header_cannot_be_kept() {
    let inbox = Inbox::new(MemoryStore::new());
    let error = inbox.keep_headers(["x acme"]).expect_err("no name");
    assert_eq!(error.kind(), ConfigErrorKind::Name);
    let error = Template::builder("acme").signature("x-acme-signature", "{hex}").own_headers(["x acme-*"]).build("s");
    assert_eq!(error.map(|_| ()).expect_err("no pattern").kind(), ConfigErrorKind::Name);
}

/// A delivery of the scheme's own making, with some headers beside it.
fn delivered(scheme: impl Scheme) -> Request<Bytes> {
    let sender = TestSender::new(scheme).clock(ManualClock::at_unix(NOW));
    let mut request: Request<Bytes> = sender.deliver(r#"{"id":"evt_1"}"#).id("evt_1").event_type("done").request_as();
    for name in ["x-acme-topic", "x-acme-token", "x-other"] {
        set(&mut request, name, "any");
    }
    request
}

fn own(profile: Profile) -> Profile {
    profile.own_headers([HeaderPattern::new("x-acme-*").expect("a pattern")])
}

fn names(seen: &Seen) -> Vec<&str> {
    let mut names: Vec<&str> = seen.headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn described_scheme_keeps_what_it_reads_and_says_to_be_its_own() {
    let described = |own: &[&'static str]| {
        let scheme = Template::builder("acme")
            .signature("x-acme-sum", "{hex}")
            .timestamp("x-acme-time")
            .signed("{timestamp}.{body}")
            .id_source(IdSource::unsigned_header("x-key").expect("a name"))
            .type_source(TypeSource::header("x-kind").expect("a name"))
            .own_headers(own.iter().copied());
        scheme.build(SECRET).expect("a scheme")
    };
    for (own, expected) in [
        (&[][..], &["content-type", "x-acme-time", "x-key", "x-kind"][..]),
        (&["x-acme-*"], &["content-type", "x-acme-time", "x-acme-topic", "x-key", "x-kind"]),
    ] {
        let request = delivered(described(own));
        let (_, worker, _) = both_ways(Arc::new(described(own)), &request, |layer| layer).await;
        assert_eq!(names(&worker), expected);
    }
}

/// Where the layer's own sources are set, their headers count.
#[tokio::test]
async fn headers_of_the_layers_own_sources_are_kept() {
    let scheme = || Template::builder("acme").signature("x-acme-sum", "{hex}").build(SECRET).expect("a scheme");
    let configure = |layer: WebhookLayer| {
        layer
            .id_source(IdSource::unsigned_header("x-acme-topic").expect("a name"))
            .type_source(TypeSource::header("x-other").expect("a name"))
    };
    let (inline, worker, _) = both_ways(Arc::new(scheme()), &delivered(scheme()), configure).await;
    assert_eq!(names(&worker), ["content-type", "x-acme-topic", "x-other"]);
    assert_eq!((worker.id, worker.event_type), (inline.id, inline.event_type));
}

fn closure() -> Custom {
    let secrets = Secrets::new(SECRET, |text| Key::hmac_sha256(text.as_bytes())).expect("a secret");
    Custom::by_head("acme", secrets, read).signing(sign).required_header(HeaderName::from_static("x-acme-sum"))
}

fn read(head: &Head<'_>) -> Result<Proof, Rejection> {
    let mut proof = Proof::new();
    proof.add(Algorithm::HmacSha256, Encoding::Hex, head.proof_header("x-acme-sum")?);
    Ok(proof)
}

fn sign(message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
    let tag = secrets.first_active(message.signed_at)?.sign(&[message.body()])?;
    set(&mut message.request, "x-acme-sum", hex::encode(tag));
    Ok(())
}

/// A scheme written by hand, which says by its profile what is its own and what is the proof.
struct Written(Secrets);

impl Scheme for Written {
    fn name(&self) -> &str {
        "written"
    }

    fn secrets(&self) -> &Secrets {
        &self.0
    }

    fn read(&self, head: &Head<'_>) -> Result<Proof, Rejection> {
        read(head)
    }

    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        sign(message, secrets)
    }

    fn profile(&self) -> Profile {
        own(Profile::default()).proof_headers([HeaderName::from_static("x-acme-sum")])
    }
}

#[tokio::test]
async fn closures_and_written_schemes_keep_their_own_headers_without_the_proof() {
    let plain: Arc<dyn Scheme> = Arc::new(closure());
    let with_own: Arc<dyn Scheme> = Arc::new(closure().with_profile(own(Profile::default())));
    let written: Arc<dyn Scheme> = Arc::new(Written(closure().secrets().clone()));
    for (scheme, expected) in [
        (plain, &["content-type"][..]),
        (with_own, &["content-type", "x-acme-topic"]),
        (written, &["content-type", "x-acme-topic"]),
    ] {
        let (inline, worker, _) = both_ways(scheme.clone(), &delivered(scheme), |layer| layer).await;
        assert_eq!(names(&worker), expected);
        assert_eq!(worker.id, inline.id);
    }
}
