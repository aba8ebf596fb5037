//! A captured delivery cut elsewhere: what is signed is one text, and nothing but the scheme says where its parts end.
//!
//! Whoever captured a delivery has its signature, and may send the same text with the parts' boundaries moved. It must be
//! refused, or be the event that it was: never another one.

use axum::body::Bytes;
use axum::http::Request;
use sha2::block_api::compress256;
use sha2::{Digest, Sha256};
use tower_webhook::Outcome;
use tower_webhook::scheme::{self, Tolerance};
use tower_webhook::testing::{ManualClock, TestSender};

use crate::schemes::endpoint::{Endpoint, header, request, set};
use crate::schemes::preset::{ED25519_PUBLIC, P256_PRIVATE, P256_PUBLIC, Preset, SECRET, URL};
use crate::schemes::standard::HMAC;
use crate::schemes::twilio::{HOOK, over, sent};
use crate::support::NOW;

/// The layer refuses it, or knows the event already.
async fn is_no_new_event(endpoint: &Endpoint, cut: Request<Bytes>, what: &str) {
    let runs = endpoint.runs();
    let answer = endpoint.send(cut).await;
    assert_eq!(endpoint.runs(), runs, "{what} ran as another event: {:?}", answer.outcome);
}

/// The same signature, with `from` bytes of the body at the end of a header.
fn cut_into(header_name: &str, genuine: &Request<Bytes>, at: usize) -> Request<Bytes> {
    let mut cut = genuine.clone();
    let (moved, rest) = (genuine.body().slice(..at), genuine.body().slice(at..));
    let value = [genuine.headers()[header_name].as_bytes(), &moved].concat();
    set(&mut cut, header_name, value);
    *cut.body_mut() = rest;
    cut
}

#[tokio::test]
async fn digits_do_not_move_between_a_timestamp_and_a_body() {
    for name in ["discord", "sendgrid"] {
        let preset = Preset::named(name);
        let timestamp = preset.timestamp_header.expect("a header");
        let endpoint = Endpoint::new(preset.scheme());
        let genuine = request(&preset);
        endpoint.accepts(genuine.clone(), name).await;
        for at in 1..10 {
            let mut cut = genuine.clone();
            let (kept, moved) = header(&genuine, timestamp).split_at(at);
            set(&mut cut, timestamp, kept);
            *cut.body_mut() = [moved.as_bytes(), genuine.body()].concat().into();
            endpoint.refuses(cut, 401, &format!("{name}: {moved} in the body")).await;
        }
    }
}

/// Unchecked, a timestamp may be replayed, as its docs say; but the event is still known, and nothing else may become of it.
// Otherwise: a timestamp that is not checked may be any text, so it takes up the beginning of the body.
#[tokio::test]
async fn unchecked_timestamp_is_no_room_for_a_part_of_the_body() {
    let discord = |key| scheme::discord(key).unwrap().tolerance(Tolerance::InsecureUnchecked);
    let sendgrid = |key| scheme::sendgrid(key).unwrap().tolerance(Tolerance::InsecureUnchecked);
    let slack = scheme::slack(SECRET).unwrap().tolerance(Tolerance::InsecureUnchecked);
    let zoom = scheme::zoom(SECRET).unwrap().tolerance(Tolerance::InsecureUnchecked);
    let slack_body = r#"{"event_id":"evt_1","event":{"type":"message","text":"a:b"}}"#;
    let mut passed = Vec::new();
    for (name, receiving, sending, body) in [
        ("discord", discord(ED25519_PUBLIC), discord(SECRET), r#"{"id":"evt_1","type":2}"#),
        ("sendgrid", sendgrid(P256_PUBLIC), sendgrid(P256_PRIVATE), r#"[{"event":"delivered"}]"#),
        ("slack", slack.clone(), slack, slack_body),
        ("zoom", zoom.clone(), zoom, r#"{"event":"meeting.started"}"#),
    ] {
        let endpoint = Endpoint::new(receiving);
        let genuine: Request<Bytes> =
            TestSender::new(sending).clock(ManualClock::at_unix(NOW)).deliver(body).request_as();
        endpoint.accepts(genuine.clone(), name).await;
        let timestamp = Preset::named(name).timestamp_header.expect("a header");
        let at = body.find(':').expect("a colon");
        let cut = match name {
            // A colon separates the two, and is in every JSON body.
            "slack" | "zoom" => {
                let mut cut = cut_into(timestamp, &genuine, 0);
                set(&mut cut, timestamp, format!("{NOW}:{}", &body[..at]));
                *cut.body_mut() = genuine.body().slice(at + 1..);
                cut
            }
            _ => cut_into(timestamp, &genuine, 1),
        };
        if endpoint.send(cut).await.outcome == Some(Outcome::Completed) {
            passed.push(name);
        }
    }
    assert!(passed.is_empty(), "the rest of a known body ran as another event: {passed:?}");
}

// As above: A part of the id becomes a part of the timestamp.
#[tokio::test]
async fn unchecked_timestamp_is_no_room_for_a_part_of_the_id() {
    let scheme = scheme::standard_webhooks(HMAC).unwrap().tolerance(Tolerance::InsecureUnchecked);
    let endpoint = Endpoint::new(scheme.clone());
    let genuine: Request<Bytes> = TestSender::new(scheme)
        .clock(ManualClock::at_unix(NOW))
        .deliver(r#"{"type":"thing.done"}"#)
        .id("tenant.msg_1")
        .request_as();
    endpoint.accepts(genuine.clone(), "as it was signed").await;
    let mut cut = genuine;
    set(&mut cut, "webhook-id", "tenant");
    set(&mut cut, "webhook-timestamp", format!("msg_1.{NOW}"));
    is_no_new_event(&endpoint, cut, "the id without its second half").await;
}

/// What is checked is digits, so none of this is possible.
#[tokio::test]
async fn checked_timestamp_ends_where_its_digits_end() {
    for name in ["slack", "zoom", "discord", "sendgrid", "stripe", "paddle", "calendly"] {
        let preset = Preset::named(name);
        let endpoint = Endpoint::new(preset.scheme());
        let genuine = request(&preset);
        endpoint.accepts(genuine.clone(), name).await;
        let Some(timestamp) = preset.timestamp_header else { continue };
        for at in 1..genuine.body().len().min(40) {
            let cut = cut_into(timestamp, &genuine, at);
            if cut.headers()[timestamp].to_str().is_ok() {
                endpoint.refuses(cut, 401, &format!("{name}: cut at {at}")).await;
            }
        }
    }
}

/// Where the query is the request's, its end is the body's beginning.
// Otherwise: a query may contain `[` and `{`, so that a body's first bytes become its last ones; HubSpot's ids are digests of what
// is left, and the delivery runs again.
#[tokio::test]
async fn beginning_of_a_body_does_not_become_the_end_of_the_query() {
    for name in ["hubspot", "hubspot-v2", "square"] {
        let preset = Preset::named(name);
        let endpoint = Endpoint::new(preset.scheme());
        let sender = TestSender::new(preset.sending()).clock(ManualClock::at_unix(NOW)).uri("/webhooks?portal=1");
        let genuine: Request<Bytes> = sender.deliver(preset.body).request_as();
        endpoint.accepts(genuine.clone(), name).await;
        for at in 1..3 {
            let mut cut = genuine.clone();
            let Ok(uri) = format!("/webhooks?portal=1{}", &preset.body[..at]).parse() else { continue };
            *cut.uri_mut() = uri;
            *cut.body_mut() = genuine.body().slice(at..);
            is_no_new_event(&endpoint, cut, &format!("{name}: {:?} in the query", &preset.body[..at])).await;
        }
        let mut cut = genuine.clone();
        *cut.uri_mut() = "/webhooks?portal=".parse().expect("a uri");
        *cut.body_mut() = [b"1", &genuine.body()[..]].concat().into();
        is_no_new_event(&endpoint, cut, &format!("{name}: the query's end in the body")).await;
    }
}

/// An SMS whose text is a piece of a URL. Its sender knows what Twilio signs for it, and needs to have captured the signature.
// Otherwise: parameters become a part of the query, a `bodySHA256` among them, and with it any body passes.
#[tokio::test]
async fn parameter_does_not_become_a_digest_in_the_url() {
    let forged = r#"{"anything":"at all"}"#;
    let digest = hex::encode(Sha256::digest(forged));
    let endpoint = Endpoint::new(scheme::twilio(SECRET, HOOK).expect("a url"));
    let parameters = format!("Body&bodySHA256={digest}&From+14155551212MessageSidSM1To+18005551212");
    let signature = over(&format!("{HOOK}?tenant=1{parameters}"));
    let form = format!("Body=%26bodySHA256%3D{digest}%26&From=%2B14155551212&MessageSid=SM1&To=%2B18005551212");
    let genuine = sent("/webhooks?tenant=1", "application/x-www-form-urlencoded", &form, &signature);
    endpoint.accepts(genuine, "the message").await;
    let uri = format!("/webhooks?tenant=1{parameters}");
    is_no_new_event(&endpoint, sent(&uri, "application/json", forged, &signature), "a body of one's own").await;
}

/// SHA-256 of a secret and a message is no MAC: whoever has one signature can append to the message, without the secret.
/// What they append begins with bytes that are no text, so that a receiver of JSON can tell.
// Otherwise: nothing demands that the body is JSON, and the forged body reaches the handler under an id of its own.
#[tokio::test]
async fn body_of_hubspots_old_versions_cannot_be_extended() {
    for name in ["hubspot-v1", "hubspot-v2"] {
        let preset = Preset::named(name);
        let endpoint = Endpoint::new(preset.scheme());
        let genuine = request(&preset);
        endpoint.accepts(genuine.clone(), name).await;
        let before = SECRET.len() + if name == "hubspot-v2" { "POST".len() + URL.len() } else { 0 };
        let tag = hex::decode(header(&genuine, "x-hubspot-signature")).expect("hex");
        let (body, tag) = extended(&tag, before, genuine.body(), b",[{\"eventId\":2}]");
        let mut forged = genuine;
        set(&mut forged, "x-hubspot-signature", hex::encode(tag));
        *forged.body_mut() = body.into();
        is_no_new_event(&endpoint, forged, name).await;
    }
}

/// The body with `more` behind it, and its digest, from the digest of `before` unknown bytes and the body alone.
fn extended(tag: &[u8], before: usize, body: &[u8], more: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let padded = |length: usize, mut bytes: Vec<u8>| {
        bytes.push(0x80);
        while !(length + bytes.len() + 8).is_multiple_of(64) {
            bytes.push(0);
        }
        bytes
    };
    let mut long = padded(before, body.to_vec());
    long.extend(((before + body.len()) as u64 * 8).to_be_bytes());
    let hashed = before + long.len();
    let mut tail = padded(hashed, more.to_vec());
    tail.extend(((hashed + more.len()) as u64 * 8).to_be_bytes());
    let mut state: [u32; 8] =
        std::array::from_fn(|at| u32::from_be_bytes(tag[at * 4..at * 4 + 4].try_into().expect("four bytes")));
    let (blocks, []) = tail.as_chunks::<64>() else { panic!("whole blocks") };
    compress256(&mut state, blocks);
    long.extend_from_slice(more);
    (long, state.iter().flat_map(|word| word.to_be_bytes()).collect())
}

#[test]
fn extending_is_done_right() {
    let (secret, body) = (b"a secret", b"a body");
    let tag = Sha256::digest([&secret[..], body].concat());
    let (long, tag) = extended(&tag, secret.len(), body, b" and more");
    assert_eq!(tag, Sha256::digest([&secret[..], &long].concat()).to_vec());
}

/// Both versions have one header and one secret, and nothing signs which of them it is.
// As above: a body that is not JSON is taken. Signed as v2, it passes for the body of a v1.
#[tokio::test]
async fn delivery_signed_with_hubspots_v2_is_refused_as_v1() {
    let (v1, v2) = (Preset::named("hubspot-v1"), Preset::named("hubspot-v2"));
    let mut downgraded = request(&v2);
    *downgraded.body_mut() = [b"POST", URL.as_bytes(), v2.body.as_bytes()].concat().into();
    is_no_new_event(&Endpoint::new(v1.scheme()), downgraded, "a v2 as a v1").await;
}

/// One message, whatever fields it is cut into: the event is the one that it was.
#[tokio::test]
async fn colons_in_adyens_fields_make_no_other_event() {
    let preset = Preset::named("adyen");
    let endpoint = Endpoint::new(preset.scheme());
    let body = preset.body.replace("order 1", "order:1");
    let genuine: Request<Bytes> = TestSender::new(preset.sending()).deliver(body).request_as();
    endpoint.accepts(genuine.clone(), "as it was signed").await;
    let text = String::from_utf8(genuine.body().to_vec()).expect("text");
    // `psp_1::Acme:order:1:1000:…` with the first field up to the second colon.
    let cut = text
        .replace(
            r#""pspReference":"psp_1","originalReference":"""#,
            r#""pspReference":"psp_1:","originalReference":"Acme""#,
        )
        .replace(r#""merchantAccountCode":"Acme""#, r#""merchantAccountCode":"order""#)
        .replace(r#""merchantReference":"order:1""#, r#""merchantReference":"1""#);
    assert_ne!(cut, text);
    let mut request = genuine;
    *request.body_mut() = cut.into();
    assert_eq!(endpoint.send(request).await.outcome, Some(Outcome::Duplicate));
}
