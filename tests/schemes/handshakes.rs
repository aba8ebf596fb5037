//! What providers send to validate an endpoint, and what they must hear. None of it is an event.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{Method, Request};
use serde::Deserialize;
use tower_webhook::Outcome;
use tower_webhook::scheme::{self, Scheme};
use tower_webhook::testing::{ManualClock, TestSender};

use crate::schemes::endpoint::Endpoint;
use crate::schemes::preset::{ED25519_PUBLIC, Preset, SECRET};
use crate::support::NOW;

#[derive(Deserialize)]
struct Handshake {
    provider: String,
    name: String,
    secret: Option<String>,
    request: Sent,
    response: Expected,
    signed: bool,
}

#[derive(Deserialize)]
struct Sent {
    method: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    query: Option<String>,
    #[serde(default)]
    body: String,
}

#[derive(Deserialize)]
struct Expected {
    status: u16,
    content_type: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: String,
}

impl Handshake {
    /// As the receiver has it, and as the provider does.
    fn schemes(&self) -> (Arc<dyn Scheme>, Arc<dyn Scheme>) {
        let secret = self.secret.as_deref().unwrap_or(SECRET);
        match &*self.provider {
            "discord" => (
                Arc::new(scheme::discord(ED25519_PUBLIC).expect("a secret")),
                Arc::new(scheme::discord(SECRET).expect("a secret")),
            ),
            "meta" => {
                let meta = Arc::new(scheme::meta("the app secret", secret).expect("a secret"));
                (meta.clone(), meta)
            }
            name => (crate::schemes::preset::named(name, secret), crate::schemes::preset::named(name, secret)),
        }
    }

    fn request(&self, sending: Arc<dyn Scheme>) -> Request<Bytes> {
        let uri = self.request.query.as_ref().map_or("/webhooks".to_owned(), |query| format!("/webhooks?{query}"));
        if self.signed && self.request.headers.is_empty() {
            let sender = TestSender::new(sending).clock(ManualClock::at_unix(NOW)).uri(&uri);
            return sender.deliver(self.request.body.clone()).request_as();
        }
        let mut request = Request::builder().method(&*self.request.method).uri(uri);
        for (name, value) in &self.request.headers {
            request = request.header(name, value);
        }
        request.body(self.request.body.clone().into()).expect("a request")
    }
}

fn handshakes() -> Vec<Handshake> {
    serde_json::from_str(include_str!("../data/handshakes.json")).expect("an array of handshakes")
}

#[tokio::test]
async fn published_handshakes_get_the_published_answers() {
    let handshakes = handshakes();
    assert!(handshakes.len() >= 9, "none of them is lost");
    for handshake in &handshakes {
        let what = format!("{}: {}", handshake.provider, handshake.name);
        let (receiving, sending) = handshake.schemes();
        let endpoint = Endpoint::new(receiving);
        let answer = endpoint.send(handshake.request(sending)).await;
        let expected = &handshake.response;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (expected.status, expected.body.as_bytes()), "{what}");
        let content_type = answer.headers.get("content-type").map(|value| value.to_str().expect("text"));
        assert_eq!(content_type, expected.content_type.as_deref(), "{what}");
        for (name, value) in &expected.headers {
            assert_eq!(answer.headers.get(name).map(http::HeaderValue::as_bytes), Some(value.as_bytes()), "{what}");
        }
        match expected.status < 300 {
            true => assert_eq!(answer.outcome, Some(Outcome::Handshake), "{what}"),
            false => assert!(answer.rejection().is_some(), "{what}"),
        }
        assert_eq!(endpoint.runs(), 0, "{what}: the handler ran");
        assert!(endpoint.store.keys().is_empty(), "{what}: the store was asked");
    }
}

/// Whatever is echoed must never be taken for markup, and nothing is answered beside it.
#[tokio::test]
async fn answers_have_no_other_headers_than_they_need() {
    let allowed = ["content-type", "x-content-type-options", "content-length"];
    for handshake in &handshakes() {
        let (receiving, sending) = handshake.schemes();
        let answer = Endpoint::new(receiving).send(handshake.request(sending)).await;
        for name in answer.headers.keys() {
            assert!(allowed.contains(&name.as_str()), "{}: {name}", handshake.name);
        }
        if !answer.body.is_empty() {
            assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{}", handshake.name);
        }
    }
}

#[tokio::test]
async fn handshake_is_answered_every_time_it_comes() {
    for handshake in &handshakes() {
        let (receiving, sending) = handshake.schemes();
        let endpoint = Endpoint::new(receiving);
        for _ in 0..3 {
            let answer = endpoint.send(handshake.request(sending.clone())).await;
            assert_eq!(answer.status, handshake.response.status, "{}", handshake.name);
        }
    }
}

#[tokio::test]
async fn xeros_intent_to_receive_is_200_if_signed_rightly() {
    let body = r#"{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"S0m3r4Nd0mt3xt"}"#;
    let sender = TestSender::new(Preset::named("xero").sending());
    let endpoint = Endpoint::preset("xero");
    let answer = endpoint.send(sender.deliver(body).request_as()).await;
    assert_eq!((answer.status.as_u16(), answer.body.len(), answer.outcome), (200, 0, Some(Outcome::Handshake)));
    endpoint.refuses(sender.deliver(body).tampered().request_as(), 401, "wrongly signed").await;
    assert_eq!(endpoint.runs(), 0);
}

#[tokio::test]
async fn intercoms_probe_of_the_endpoint_is_answered() {
    let endpoint = Endpoint::preset("intercom");
    let look = Request::builder().method(Method::HEAD).uri("/webhooks").body(Bytes::new()).unwrap();
    let answer = endpoint.send(look).await;
    assert_eq!((answer.status.as_u16(), answer.body.len(), answer.outcome), (200, 0, Some(Outcome::Handshake)));
}

#[tokio::test]
async fn probes_of_other_presets_are_405() {
    for preset in crate::schemes::preset::PRESETS {
        for (method, uri) in [
            (Method::HEAD, "/webhooks"),
            (Method::GET, "/webhooks"),
            (Method::GET, "/webhooks?challenge=word"),
            (Method::GET, "/webhooks?hub.mode=subscribe&hub.verify_token=verify-token&hub.challenge=1"),
            (Method::OPTIONS, "/webhooks?challenge=word"),
            (Method::PUT, "/webhooks"),
        ] {
            let answered = match preset.name {
                "intercom" => method == Method::HEAD,
                "dropbox" => method == Method::GET && uri.contains("?challenge"),
                "meta" => uri.contains("hub.mode"),
                _ => false,
            };
            let what = format!("{}: {method} {uri}", preset.name);
            let endpoint = Endpoint::new(preset.scheme());
            let request = Request::builder().method(method).uri(uri).body(Bytes::new()).unwrap();
            if answered {
                assert_eq!(endpoint.send(request).await.outcome, Some(Outcome::Handshake), "{what}");
            } else {
                let answer = endpoint.refused(request, 405, &what).await;
                assert_eq!(answer.headers["allow"], "POST", "{what}");
            }
        }
    }
}

/// A POST that validates one provider's endpoint is nothing special to another's.
#[tokio::test]
async fn handshake_of_another_provider_is_an_ordinary_event() {
    let slack = r#"{"type":"url_verification","challenge":"word","id":"evt_1"}"#;
    let zoom = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"word"},"id":"evt_1","type":"x"}"#;
    let ping = r#"{"id":"evt_1","type":1}"#;
    let xero = r#"{"id":"evt_1","events":[]}"#;
    let intercom = r#"{"id":"evt_1","topic":"ping"}"#;
    for body in [slack, zoom, ping, xero, intercom] {
        for name in ["stripe", "standard-webhooks", "vercel", "github"] {
            let preset = Preset::named(name);
            let sender = TestSender::new(preset.sending()).clock(ManualClock::at_unix(NOW));
            Endpoint::preset(name).accepts(sender.deliver(body).request_as(), &format!("{name}: {body}")).await;
        }
    }
    for (name, body) in [("zoom", slack), ("slack", zoom), ("slack", ping), ("zoom", xero), ("slack", intercom)] {
        let sender = TestSender::new(Preset::named(name).sending()).clock(ManualClock::at_unix(NOW));
        Endpoint::preset(name).accepts(sender.deliver(body).request_as(), &format!("{name}: {body}")).await;
    }
}

/// Handshakes are told from events by what only they have.
#[tokio::test]
async fn events_that_resemble_a_handshake_reach_the_handler() {
    for (name, body) in [
        ("discord", r#"{"type":1,"event":{"type":"ENTITLEMENT_CREATE"}}"#),
        ("discord", r#"{"type":0,"event":{"type":"ENTITLEMENT_CREATE"}}"#),
        ("discord", r#"{"type":1,"event":null}"#),
        ("discord", r#"{"id":"1","type":2}"#),
        ("discord", r#"{"id":"1","type":"1"}"#),
        ("discord", r#"{"id":"1","type":1.0}"#),
        ("discord", r#"{"id":"1","data":{"type":1}}"#),
        ("discord", r#"[{"type":1}]"#),
        ("xero", r#"{"events":[{}],"entropy":"x"}"#),
        ("xero", r#"{"events":null}"#),
        ("xero", r#"{"events":{}}"#),
        ("xero", r#"{"data":{"events":[]}}"#),
        ("xero", "[]"),
        ("slack", r#"{"type":"event_callback","challenge":"word","event_id":"1"}"#),
        ("slack", r#"{"type":"url_verification"}"#),
        ("slack", r#"{"event":{"type":"url_verification","challenge":"word"}}"#),
        ("zoom", r#"{"event":"meeting.started","payload":{"plainToken":"word"}}"#),
        ("zoom", r#"{"event":"endpoint.url_validation","plainToken":"word"}"#),
        ("intercom", r#"{"id":"1","topic":"pinged"}"#),
        ("intercom", r#"{"id":"1","type":"ping"}"#),
    ] {
        let sender = TestSender::new(Preset::named(name).sending()).clock(ManualClock::at_unix(NOW));
        Endpoint::preset(name).accepts(sender.deliver(body).request_as(), &format!("{name}: {body}")).await;
    }
}

/// Nobody may be told two things by one body.
#[tokio::test]
async fn handshake_with_a_repeated_key_is_no_handshake() {
    for (name, body) in [
        ("slack", r#"{"type":"url_verification","challenge":"a","challenge":"b"}"#),
        ("zoom", r#"{"event":"endpoint.url_validation","payload":{"plainToken":"a","plainToken":"b"}}"#),
        ("discord", r#"{"type":2,"type":1}"#),
        ("xero", r#"{"events":[],"events":[{}]}"#),
    ] {
        let sender = TestSender::new(Preset::named(name).sending()).clock(ManualClock::at_unix(NOW));
        let answer = Endpoint::preset(name).send(sender.deliver(body).request_as()).await;
        assert_ne!(answer.outcome, Some(Outcome::Handshake), "{name}");
        assert!(answer.body.is_empty(), "{name}: nothing is echoed");
    }
}
