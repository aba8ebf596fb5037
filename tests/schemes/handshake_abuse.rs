//! Handshakes from somebody else: what is unsigned is refused, what is echoed is harmless, and nothing is signed to order.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::Request;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind::{HandshakeRefused, MissingSignature, SignatureMismatch, Stale};
use tower_webhook::testing::{ManualClock, TestDelivery, TestSender};

use crate::schemes::endpoint::{Endpoint, unsigned};
use crate::schemes::preset::{Preset, SECRET, VERIFY_TOKEN};
use crate::schemes::signing::hmac_sha256;
use crate::support::NOW;

const POSTED: &[(&str, &str)] = &[
    ("slack", r#"{"type":"url_verification","challenge":"word"}"#),
    ("zoom", r#"{"event":"endpoint.url_validation","payload":{"plainToken":"word"}}"#),
    ("discord", r#"{"type":1}"#),
    ("discord", r#"{"type":0}"#),
    ("xero", r#"{"events":[]}"#),
    ("intercom", r#"{"topic":"ping"}"#),
];

fn posted(name: &str, body: impl Into<Bytes>) -> TestDelivery {
    TestSender::new(Preset::named(name).sending()).clock(ManualClock::at_unix(NOW)).deliver(body)
}

fn get(query: &str) -> Request<Bytes> {
    Request::get(format!("/webhooks?{query}")).body(Bytes::new()).expect("a request")
}

#[tokio::test]
async fn posted_handshake_is_verified_before_it_is_answered() {
    for (name, body) in POSTED {
        let endpoint = Endpoint::preset(name);
        let signed = posted(name, *body);
        assert_eq!(endpoint.send(signed.request_as()).await.outcome, Some(Outcome::Handshake), "{name}: {body}");
        let mut bare = unsigned(&Preset::named(name));
        *bare.body_mut() = Bytes::from_static(body.as_bytes());
        assert_eq!(endpoint.refuses(bare, 401, name).await, MissingSignature, "{name}");
        assert_eq!(endpoint.refuses(signed.tampered().request_as(), 401, name).await, SignatureMismatch, "{name}");
    }
}

#[tokio::test]
async fn stale_handshake_is_refused() {
    for (name, age) in [("slack", 301), ("zoom", 301), ("discord", 3601)] {
        for (_, body) in POSTED.iter().filter(|(own, _)| *own == name) {
            let old = posted(name, *body).aged(Duration::from_secs(age));
            assert_eq!(Endpoint::preset(name).refuses(old.request_as(), 401, name).await, Stale, "{name}");
        }
    }
}

#[tokio::test]
async fn handshake_under_another_secret_is_refused() {
    for (name, body) in POSTED.iter().filter(|(name, _)| *name != "discord") {
        let other =
            TestSender::new(crate::schemes::preset::named(name, "another secret")).clock(ManualClock::at_unix(NOW));
        Endpoint::preset(name).refuses(other.deliver(*body).request_as(), 401, name).await;
    }
}

/// Even to a sender that holds the secret, the answer is no way to have a delivery signed: what is signed for deliveries has
/// colons in it, and no token that is signed may.
#[tokio::test]
async fn zoom_signs_plain_words_only() {
    let long = "a".repeat(257);
    let kibibyte = "a".repeat(1024);
    let delivery = format!("v0:{NOW}:{{}}");
    for token in [
        "",
        " ",
        "v0:1700000000:body",
        &delivery.replace(['{', '}'], ""),
        r#"v0\u003a1700000000\u003abody"#,
        r#"v0\u003A1700000000\u003A{\"event\":\"meeting.ended\"}"#,
        "a:b",
        r"a\u003ab",
        r"\u003a",
        "two words",
        " word",
        "word ",
        r"word\n",
        r"word\u0000",
        r"\u00e9",
        "é",
        r#"a\"b"#,
        r"a\\b",
        r"a\/b",
        "a.b",
        "a~b",
        "a+b",
        "a/b",
        "a=b",
        "{}",
        "<b>",
        &long,
        &kibibyte,
    ] {
        let body = format!(r#"{{"event":"endpoint.url_validation","payload":{{"plainToken":"{token}"}}}}"#);
        let endpoint = Endpoint::preset("zoom");
        let answer = endpoint.send(posted("zoom", body).request_as()).await;
        assert_eq!(answer.outcome, Some(Outcome::Completed), "{token}: an event like any other");
        assert!(answer.body.is_empty(), "{token}: {:?}", answer.body);
    }
}

/// No answer to any word is the signature of any delivery: its text would have to be the word's.
#[tokio::test]
async fn zooms_answers_are_no_signatures_of_deliveries() {
    let endpoint = Endpoint::preset("zoom");
    for token in ["v0", "1700000000", "v01700000000", "v0_1700000000_", "v0-1700000000-", &"a".repeat(256)] {
        let body = format!(r#"{{"event":"endpoint.url_validation","payload":{{"plainToken":"{token}"}}}}"#);
        let answer = endpoint.send(posted("zoom", body).request_as()).await;
        let answered: serde_json::Value = serde_json::from_slice(&answer.body).expect("json");
        let mac = answered["encryptedToken"].as_str().expect("a mac");
        assert_eq!(mac, hex::encode(hmac_sha256(SECRET.as_bytes(), token.as_bytes())));
        for body in ["", token, "{}"] {
            let mut forged = Request::post("/webhooks").body(Bytes::copy_from_slice(body.as_bytes())).unwrap();
            crate::schemes::endpoint::set(&mut forged, "x-zm-signature", format!("v0={mac}"));
            crate::schemes::endpoint::set(&mut forged, "x-zm-request-timestamp", NOW.to_string());
            endpoint.refuses(forged, 401, token).await;
        }
    }
}

#[tokio::test]
async fn escapes_that_spell_a_plain_word_are_the_word() {
    let body = r#"{"event":"endpoint.url_valid\u0061tion","payload":{"plainToken":"w\u006frd"}}"#;
    let answer = Endpoint::preset("zoom").send(posted("zoom", body).request_as()).await;
    let mac = hex::encode(hmac_sha256(SECRET.as_bytes(), b"word"));
    assert_eq!(answer.body, format!(r#"{{"plainToken":"word","encryptedToken":"{mac}"}}"#));
}

#[tokio::test]
async fn slack_echoes_plain_words_only() {
    let long = "a".repeat(257);
    for challenge in
        ["", " ", "two words", "<script>alert(1)</script>", r"a\r\nset-cookie: x=1", r"\u003cb\u003e", "é", &long]
    {
        let body = format!(r#"{{"type":"url_verification","challenge":"{challenge}"}}"#);
        let answer = Endpoint::preset("slack").send(posted("slack", body).request_as()).await;
        assert_eq!(answer.outcome, Some(Outcome::Completed), "{challenge}: an event like any other");
        assert!(answer.body.is_empty(), "{challenge}");
    }
}

/// Words that are no words: for a browser, a header or a shell.
const NO_WORDS: &[&str] = &[
    "",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "a%0d%0aset-cookie:%20x=1",
    "a%0ab",
    "a+b",
    "a%20b",
    "%00",
    "%22",
    "%26amp;",
    "%C3%A9",
    "%ff",
    "a;b",
    "a%3Ab",
    "$(id)",
    "%",
    "%zz",
];

fn meta(token: &str, challenge: &str) -> String {
    format!("hub.mode=subscribe&hub.verify_token={token}&hub.challenge={challenge}")
}

#[tokio::test]
async fn meta_handshake_with_the_token_is_answered() {
    for (query, challenge) in [
        (meta(VERIFY_TOKEN, "1158201444"), "1158201444"),
        (meta("verify%2Dtoken", "a%2Fb"), "a/b"),
        (format!("hub.challenge=1&hub.verify_token={VERIFY_TOKEN}&x=1&hub.mode=subscribe"), "1"),
    ] {
        let answer = Endpoint::preset("meta").send(get(&query)).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, challenge.as_bytes()), "{query}");
        assert_eq!(answer.headers["content-type"], "text/plain");
    }
}

#[tokio::test]
async fn meta_handshake_without_the_token_is_an_empty_403() {
    let longer = format!("{VERIFY_TOKEN}x");
    let mut queries = vec![
        meta("nope", "1"),
        meta("", "1"),
        meta(&longer, "1"),
        meta(&VERIFY_TOKEN[1..], "1"),
        meta(&VERIFY_TOKEN.to_uppercase(), "1"),
        meta(&format!("%20{VERIFY_TOKEN}"), "1"),
        meta(VERIFY_TOKEN, &"1".repeat(257)),
        "hub.mode=subscribe".to_owned(),
        "hub.mode=subscribe&hub.challenge=1".to_owned(),
        format!("hub.mode=subscribe&hub.verify_token={VERIFY_TOKEN}"),
        format!("hub.mode=subscribe&hub.verify_token={VERIFY_TOKEN}&hub.verify_token={VERIFY_TOKEN}&hub.challenge=1"),
        format!("hub.mode=subscribe&hub.verify_token=nope&hub.verify_token={VERIFY_TOKEN}&hub.challenge=1"),
        format!("{}&hub.challenge=2", meta(VERIFY_TOKEN, "1")),
        format!("{}&hub.challenge=1", meta(VERIFY_TOKEN, "1")),
        // The app's secret is not the token, nor is nothing.
        meta(SECRET, "1"),
    ];
    queries.extend(NO_WORDS.iter().map(|word| meta(VERIFY_TOKEN, word)));
    for query in queries {
        let kind = Endpoint::preset("meta").refuses(get(&query), 403, &query).await;
        assert_eq!(kind, HandshakeRefused, "{query}");
    }
}

#[tokio::test]
async fn meta_answers_no_other_mode_and_no_other_method() {
    let endpoint = Endpoint::preset("meta");
    let good = meta(VERIFY_TOKEN, "1");
    for query in ["", "hub.mode=unsubscribe", &good.replace("subscribe", "x"), &format!("{good}&hub.mode=subscribe")] {
        endpoint.refused(get(query), 405, query).await;
    }
    for method in ["PUT", "HEAD", "DELETE", "OPTIONS"] {
        let request = Request::builder().method(method).uri(format!("/webhooks?{good}")).body(Bytes::new()).unwrap();
        endpoint.refused(request, 405, method).await;
    }
    let post = Request::post(format!("/webhooks?{good}")).body(Bytes::new()).unwrap();
    assert_eq!(endpoint.refuses(post, 401, "a post is a delivery").await, MissingSignature);
}

#[tokio::test]
async fn dropbox_echoes_plain_words_only() {
    let endpoint = Endpoint::preset("dropbox");
    let longest = "a".repeat(256);
    for word in ["the_challenge", "a-b.c~d", "x%2By%3D", &longest] {
        assert_eq!(endpoint.send(get(&format!("challenge={word}"))).await.outcome, Some(Outcome::Handshake), "{word}");
    }
    let long = "a".repeat(257);
    for word in NO_WORDS.iter().copied().chain([&*long]) {
        let answer = endpoint.refused(get(&format!("challenge={word}")), 405, word).await;
        assert_eq!(answer.body, "method not allowed\n", "{word}: what every 405 says");
    }
    for query in ["", "challenge", "x=1", "challenge=a&challenge=b", "challenge=a&challenge=a", "Challenge=a"] {
        endpoint.refused(get(query), 405, query).await;
    }
}

/// A body that is never read cannot keep anything busy.
#[tokio::test]
async fn probe_has_no_body_to_read() {
    let mut probe = get("challenge=word");
    *probe.body_mut() = Bytes::from(vec![b'x'; 2 << 20]);
    assert_eq!(Endpoint::preset("dropbox").send(probe).await.body, "word");
}
