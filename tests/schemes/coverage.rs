//! An id that the signature does not cover is nobody's word, whatever its source says of it.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::Request;
use tower_webhook::identity::IdSource;
use tower_webhook::rejection::RejectionKind::Replayed;
use tower_webhook::scheme::{Algorithm, Custom, Encoding, Proof, Scheme};
use tower_webhook::secrets::{Key, Secrets};
use tower_webhook::{WebhookEvent, WebhookLayer};

use crate::schemes::endpoint::{Endpoint, request, set};
use crate::schemes::preset::{Preset, SECRET};
use crate::schemes::signing::hmac_sha256;
use crate::schemes::twilio::{HOOK, over, sent};

const DAY: Duration = Duration::from_secs(24 * 3600);
const BODY: &[u8] = br#"{"id":"evt_1"}"#;

fn json(path: &str) -> IdSource {
    IdSource::json(path).expect("a path")
}

/// The event that a handler gets, and whether the replay guard asked the store about its body.
async fn guarded(scheme: impl Scheme, id: IdSource, sent: Request<Bytes>) -> (WebhookEvent, bool) {
    let configure = |layer: WebhookLayer| layer.id_source(id).replay_guard(DAY).expect("a window");
    let endpoint = Endpoint::configured(scheme, configure);
    let event = endpoint.accepts(sent, "genuine").await;
    let asked = endpoint.store.keys().iter().any(|key| key.contains("replay-guard"));
    (event, asked)
}

/// The same, of a preset's own delivery.
async fn of_preset(name: &str, id: IdSource) -> (bool, bool) {
    let preset = Preset::named(name);
    let (event, asked) = guarded(preset.scheme(), id, request(&preset)).await;
    (event.id_is_authenticated(), asked)
}

// Otherwise: any body with GitLab's token has an id that counts as signed, and the guard is never asked.
#[tokio::test]
async fn id_in_a_body_that_is_not_covered_is_unauthenticated_and_guarded() {
    for (name, id) in [
        ("gitlab", json("id")),
        ("gitlab", IdSource::body_digest()),
        ("mailgun", json("event-data.id")),
        ("mailgun", IdSource::body_digest()),
        ("mailgun", IdSource::signed().or(json("event-data.id"))),
        ("adyen", json("live")),
        ("adyen", IdSource::signed_by(|_, _| Some("psp_1".to_owned()))),
        ("twilio", IdSource::body_digest()),
        ("twilio-shared-key", IdSource::body_digest()),
    ] {
        let words = id.to_string();
        assert_eq!(of_preset(name, id).await, (false, true), "{name} by {words}");
    }
}

#[tokio::test]
async fn id_that_is_covered_is_authenticated_and_needs_no_guard() {
    for (name, id) in [
        ("github", json("id")),
        ("github", IdSource::body_digest()),
        ("hubspot-v1", IdSource::body_digest()),
        ("mailgun", IdSource::signed()),
        ("adyen", IdSource::signed()),
        ("standard-webhooks", IdSource::signed()),
        ("standard-webhooks", json("id")),
        ("linear", json("action")),
    ] {
        let words = id.to_string();
        assert_eq!(of_preset(name, id).await, (true, false), "{name} by {words}");
    }
}

/// A form's parameters are sorted before they are signed, so another order is another body of the same signature.
#[tokio::test]
async fn twilio_covers_a_body_by_its_digest_and_no_form() {
    let scheme = || Preset::named("twilio").scheme();
    let digest = "bodySHA256=".to_owned() + &hex::encode(<sha2::Sha256 as sha2::Digest>::digest(BODY));
    let text = std::str::from_utf8(BODY).expect("text");
    let digested = sent(&format!("/in?{digest}"), "application/json", text, &over(&format!("{HOOK}?{digest}")));
    let (event, asked) = guarded(scheme(), json("id"), digested).await;
    assert_eq!((event.id_is_authenticated(), asked), (true, false));

    let form = sent("/in", "application/x-www-form-urlencoded", "B=2&A=1", &over(&format!("{HOOK}A1B2")));
    let (event, asked) = guarded(scheme(), IdSource::body_digest(), form).await;
    assert_eq!((event.id_is_authenticated(), asked), (false, true));
}

/// A scheme with these proofs of the hex in `x-proof`, whose MAC is over `id-1` or over the body.
fn closure(read: impl Fn(&[u8]) -> Vec<Proof> + Send + Sync + 'static) -> Custom {
    let secrets = Secrets::new(SECRET, |text| Key::hmac_sha256(text.as_bytes())).expect("a secret");
    Custom::by_body("acme", secrets, move |head, _| head.proof_header("x-proof").map(&read))
}

fn signed(mut proof: Proof, signature: &[u8]) -> Proof {
    proof.add(Algorithm::HmacSha256, Encoding::Hex, signature);
    proof
}

fn post(proof: &str) -> Request<Bytes> {
    let mut request = Request::post("/").body(Bytes::from_static(BODY)).expect("a request");
    set(&mut request, "x-proof", proof);
    request
}

#[tokio::test]
async fn closure_says_what_it_covers() {
    let of_id = hex::encode(hmac_sha256(SECRET.as_bytes(), b"id-1"));
    let of_body = hex::encode(hmac_sha256(SECRET.as_bytes(), BODY));
    let message = |signature: &[u8]| signed(Proof::of(b"id-1").id("id-1"), signature);
    let digested = |signature: &[u8]| signed(Proof::of(b"id-1").with_digest_of_body(), signature);
    let whole = |signature: &[u8]| signed(Proof::new(), signature);
    let split = |both: &[u8]| (both[..64].to_vec(), both[64..].to_vec());
    for (what, scheme, sent, id, authenticated) in [
        ("a message", closure(move |proof| vec![message(proof)]), of_id.clone(), json("id"), false),
        ("the id in it", closure(move |proof| vec![message(proof)]), of_id.clone(), IdSource::signed(), true),
        ("a digest", closure(move |proof| vec![digested(proof)]), of_id.clone(), json("id"), true),
        ("the body", closure(move |proof| vec![whole(proof)]), of_body.clone(), json("id"), true),
        (
            "a message, and the body as well",
            closure(move |both| {
                let (first, second) = split(both);
                vec![message(&first), whole(&second)]
            }),
            of_id.clone() + &of_body,
            json("id"),
            true,
        ),
        // Which of the two it was decides, not what it could have been.
        (
            "a message or the body",
            closure(move |proof| vec![whole(proof).or(message(proof))]),
            of_id,
            json("id"),
            false,
        ),
        (
            "the body or a message",
            closure(move |proof| vec![message(proof).or(whole(proof))]),
            of_body,
            json("id"),
            true,
        ),
    ] {
        let (event, asked) = guarded(scheme, id, post(&sent)).await;
        assert_eq!((event.id_is_authenticated(), asked), (authenticated, !authenticated), "{what}");
    }
}

/// Whatever the closure says that it proves.
#[tokio::test]
async fn token_covers_nothing() {
    let token = |proof: fn() -> Proof| {
        let secrets = Secrets::new(SECRET, |text| Key::new(Algorithm::Token, text.as_bytes())).expect("a secret");
        Custom::by_head("acme", secrets, move |head| {
            let mut proof = proof();
            proof.add(Algorithm::Token, Encoding::Text, head.proof_header("x-proof")?);
            Ok(proof)
        })
    };
    for (proof, id) in [
        (Proof::new as fn() -> Proof, json("id")),
        (|| Proof::of(b"x").with_digest_of_body(), json("id")),
        (|| Proof::new().id("id-1"), IdSource::signed()),
    ] {
        let words = id.to_string();
        let (event, asked) = guarded(token(proof), id, post(SECRET)).await;
        assert_eq!((event.id_is_authenticated(), asked), (false, true), "{words}");
    }
}

#[tokio::test]
async fn guard_binds_such_a_body_to_its_id() {
    let preset = Preset::named("gitlab");
    let header = IdSource::signed_header("x-id").expect("a name");
    let configure = |layer: WebhookLayer| layer.id_source(header).replay_guard(DAY).expect("a window");
    let endpoint = Endpoint::configured(preset.scheme(), configure);
    let sent = |id: &str| {
        let mut sent = request(&preset);
        set(&mut sent, "x-id", id);
        sent
    };
    endpoint.accepts(sent("1"), "first").await;
    assert_eq!(endpoint.send(sent("2")).await.rejection(), Some(Replayed), "a token signs no header");
}
