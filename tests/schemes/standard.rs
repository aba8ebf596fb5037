//! Standard Webhooks: two kinds of keys side by side, ids that are signed, and what a secret's prefix means to whom.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind::{self, MalformedSignature, SignatureMismatch, UnsupportedSignature};
use tower_webhook::scheme::{self, Algorithm, Scheme};
use tower_webhook::testing::{ManualClock, TestDelivery, TestSender};

use crate::schemes::endpoint::{DELIVERY_ID, Endpoint, header, set};
use crate::schemes::preset::{ED25519_PUBLIC, SECRET};
use crate::schemes::signing::{hmac_sha256, signature};
use crate::support::NOW;

pub(crate) const BODY: &str = r#"{"type":"thing.done"}"#;
pub(crate) const HMAC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What `HMAC` spells.
pub(crate) fn hmac_key() -> Vec<u8> {
    STANDARD.decode(&HMAC[6..]).expect("base64")
}

pub(crate) fn public_key() -> String {
    format!("whpk_{}", STANDARD.encode(hex::decode(ED25519_PUBLIC).expect("hex")))
}

pub(crate) fn private_key() -> String {
    format!("whsk_{}", STANDARD.encode(hex::decode(SECRET).expect("hex")))
}

/// A delivery by a sender with these secrets.
fn sent_by(secrets: Vec<String>) -> TestDelivery {
    let scheme = scheme::standard_webhooks(secrets).expect("secrets");
    TestSender::new(scheme).clock(ManualClock::at_unix(NOW)).deliver(BODY).id(DELIVERY_ID)
}

/// A delivery with this signature header.
pub(crate) fn signed(id: &str, signatures: &str) -> Request<Bytes> {
    let mut request = Request::post("/webhooks").body(Bytes::from_static(BODY.as_bytes())).expect("a request");
    set(&mut request, "webhook-id", id);
    set(&mut request, "webhook-timestamp", NOW.to_string());
    set(&mut request, "webhook-signature", signatures);
    request
}

/// What is signed of [`signed`].
pub(crate) fn message(id: &str) -> Vec<u8> {
    format!("{id}.{NOW}.{BODY}").into_bytes()
}

pub(crate) fn v1(id: &str) -> String {
    format!("v1,{}", STANDARD.encode(hmac_sha256(&hmac_key(), &message(id))))
}

pub(crate) fn v1a(id: &str) -> String {
    let key = hex::decode(SECRET).expect("hex");
    format!("v1a,{}", STANDARD.encode(signature(Algorithm::Ed25519, &key, &message(id))))
}

pub(crate) fn endpoint(secrets: Vec<String>) -> Endpoint {
    Endpoint::new(scheme::standard_webhooks(secrets).expect("secrets"))
}

pub(crate) fn both() -> Endpoint {
    endpoint(vec![HMAC.to_owned(), public_key()])
}

#[tokio::test]
async fn both_kinds_of_keys_verify_side_by_side() {
    for (what, secrets, label) in [
        ("by the first", vec![HMAC.to_owned()], "1"),
        ("by the second", vec![private_key()], "2"),
        ("by both", vec![private_key(), HMAC.to_owned()], "1"),
    ] {
        let request: Request<Bytes> = sent_by(secrets.clone()).request_as();
        assert_eq!(header(&request, "webhook-signature").split(' ').count(), secrets.len(), "{what}");
        assert_eq!(both().accepts(request, what).await.secret_label(), label, "{what}");
    }
}

#[tokio::test]
async fn key_of_one_kind_is_rotated_to_the_other_without_a_gap() {
    let scheme = scheme::standard_webhooks(HMAC).expect("a secret");
    let secrets = scheme.secrets().clone();
    let endpoint = Endpoint::new(scheme);
    let by_hmac = || sent_by(vec![HMAC.to_owned()]).request_as::<Bytes>();
    let by_private = || sent_by(vec![private_key()]).id("delivery-2").request_as::<Bytes>();
    endpoint.accepts(by_hmac(), "before").await;
    assert_eq!(endpoint.refuses(by_private(), 401, "before").await, SignatureMismatch);
    secrets.replace([HMAC.to_owned(), public_key()]).expect("both");
    assert_eq!(endpoint.send(by_hmac()).await.outcome, Some(Outcome::Duplicate), "during");
    endpoint.accepts(by_private(), "during").await;
    secrets.replace([public_key()]).expect("the new one");
    assert_eq!(endpoint.refuses(by_hmac(), 401, "after").await, SignatureMismatch);
    assert_eq!(endpoint.send(by_private()).await.outcome, Some(Outcome::Duplicate), "after");
}

#[tokio::test]
async fn signature_counts_for_its_own_kind_of_key_only() {
    let relabelled = |text: String, from: &str, to: &str| text.replacen(from, to, 1);
    let public = hex::decode(ED25519_PUBLIC).expect("hex");
    // What everybody could compute if a public key were taken for a secret.
    let by_public_key = STANDARD.encode(hmac_sha256(&public, &message(DELIVERY_ID)));
    for (what, secrets, signatures) in [
        ("v1a under a secret", vec![HMAC.to_owned()], v1a(DELIVERY_ID)),
        ("v1 under a public key", vec![public_key()], v1(DELIVERY_ID)),
        ("a mac called v1a", vec![HMAC.to_owned()], relabelled(v1(DELIVERY_ID), "v1,", "v1a,")),
        (
            "a mac called v1a, both keys",
            vec![HMAC.to_owned(), public_key()],
            relabelled(v1(DELIVERY_ID), "v1,", "v1a,"),
        ),
        ("an ed25519 signature called v1", vec![public_key()], relabelled(v1a(DELIVERY_ID), "v1a,", "v1,")),
        ("a mac under the public key", vec![public_key()], format!("v1,{by_public_key}")),
        ("the same, called v1a", vec![public_key()], format!("v1a,{by_public_key}")),
        ("the same, both keys", vec![HMAC.to_owned(), public_key()], format!("v1,{by_public_key}")),
    ] {
        let kind = endpoint(secrets).refuses(signed(DELIVERY_ID, &signatures), 401, what).await;
        assert!(matches!(kind, SignatureMismatch | MalformedSignature), "{what}: {kind:?}");
    }
}

#[tokio::test]
async fn other_versions_do_not_count() {
    for version in ["v0", "v2", "V1", "v1b", "v10", "1", "v1aa"] {
        let signatures = v1(DELIVERY_ID).replacen("v1,", &format!("{version},"), 1);
        let kind = both().refuses(signed(DELIVERY_ID, &signatures), 401, version).await;
        assert_eq!(kind, UnsupportedSignature, "{version}");
        both().accepts(signed(DELIVERY_ID, &format!("{signatures} {}", v1(DELIVERY_ID))), version).await;
    }
}

/// `msg.T.U.x` could be the event `msg` signed at T, or the event `msg.T` signed at U, if T can be a timestamp.
#[tokio::test]
async fn id_with_a_timestamp_in_it_is_refused_though_it_is_signed() {
    for id in ["msg.1700000000", "a.1700000000.b", ".1700000000", &format!("{DELIVERY_ID}.{NOW}"), "1.2000000000"] {
        let kind = both().refuses(signed(id, &v1(id)), 401, id).await;
        assert_eq!(kind, MalformedSignature, "{id}");
    }
    for id in ["msg.a", "msg.", ".msg", "a..b", "1.a", "17", "msg.1a", "msg.-1", "a.b.c", "order.42", "2024.01.02"] {
        assert_eq!(both().accepts(signed(id, &v1(id)), id).await.id(), id);
    }
}

/// The attack that this rule is against, with a body that begins with a number and a dot.
#[tokio::test]
async fn captured_delivery_cannot_move_its_timestamp_into_its_id() {
    let endpoint = both();
    let body = format!("{NOW}.{BODY}");
    let text = format!("msg.{NOW}.{body}");
    let signature = format!("v1,{}", STANDARD.encode(hmac_sha256(&hmac_key(), text.as_bytes())));
    let mut genuine = signed("msg", &signature);
    *genuine.body_mut() = body.into();
    endpoint.accepts(genuine, "as it was signed").await;
    let moved = signed(&format!("msg.{NOW}"), &signature);
    assert_eq!(endpoint.refuses(moved, 401, "split elsewhere").await, MalformedSignature);
}

#[tokio::test]
async fn invalid_id_is_refused_after_verification() {
    let long = "a".repeat(256);
    for id in [" ", "\t", &long, "tower-webhook:x"] {
        let answer = both().refused(signed(id, &v1(id)), 400, id).await;
        assert_eq!(answer.rejection(), Some(RejectionKind::InvalidId), "{id:?}");
    }
    let longest = "a".repeat(255);
    for id in ["é", "a b", &longest, ":{}*/"] {
        assert_eq!(both().accepts(signed(id, &v1(id)), id).await.id(), id);
    }
}

/// Sent by `svix` under another name, in the family that carries the signature.
#[tokio::test]
async fn unsigned_id_of_the_other_family_names_no_event() {
    for scheme in [scheme::svix(HMAC), scheme::clerk(HMAC), scheme::resend(HMAC)] {
        let endpoint = Endpoint::new(scheme.expect("a secret"));
        let event = endpoint.accepts(signed(DELIVERY_ID, &v1(DELIVERY_ID)), "the delivery").await;
        assert_eq!((event.id(), event.id_is_authenticated()), (DELIVERY_ID, true));
        for replayed in ["another", "", "msg.1"] {
            let mut replay = signed(DELIVERY_ID, &v1(DELIVERY_ID));
            set(&mut replay, "svix-id", replayed);
            set(&mut replay, "svix-timestamp", (NOW + 1).to_string());
            assert_eq!(endpoint.send(replay).await.outcome, Some(Outcome::Duplicate), "replayed as {replayed:?}");
        }
        assert_eq!(endpoint.runs(), 1);
    }
}

/// The first family that has a signature is judged, and nothing is made up for by the other.
#[tokio::test]
async fn signatures_in_both_families_are_judged_by_the_first() {
    let endpoint = Endpoint::new(scheme::svix(HMAC).expect("a secret"));
    for (what, signature, accepted) in [
        ("a wrong one", v1("another"), false),
        ("an empty one", String::new(), false),
        ("one of another version", "v2,AAAA".to_owned(), false),
        ("a right one", v1("second"), true),
    ] {
        let mut request = signed(DELIVERY_ID, &v1(DELIVERY_ID));
        set(&mut request, "svix-id", "second");
        set(&mut request, "svix-timestamp", NOW.to_string());
        set(&mut request, "svix-signature", signature);
        match accepted {
            true => assert_eq!(endpoint.accepts(request, what).await.id(), "second"),
            false => drop(endpoint.refuses(request, 401, what).await),
        }
    }
}

/// Stripe, Standard Webhooks and OpenAI each make another key of one text.
#[tokio::test]
async fn meaning_of_a_secrets_prefix_depends_on_the_scheme() {
    let without = &HMAC[6..];
    let text = |key: &[u8]| format!("v1,{}", STANDARD.encode(hmac_sha256(key, &message(DELIVERY_ID))));
    let schemes: [(&str, Arc<dyn Scheme>, Vec<u8>); 4] = [
        ("standard", Arc::new(scheme::standard_webhooks(HMAC).unwrap()), hmac_key()),
        ("standard, no prefix", Arc::new(scheme::standard_webhooks(without).unwrap()), hmac_key()),
        ("openai", Arc::new(scheme::openai(HMAC).unwrap()), hmac_key()),
        ("openai, no prefix", Arc::new(scheme::openai(without).unwrap()), without.as_bytes().to_vec()),
    ];
    for (what, scheme, key) in schemes {
        for other in [hmac_key(), without.as_bytes().to_vec(), HMAC.as_bytes().to_vec()] {
            let (endpoint, request) = (Endpoint::new(scheme.clone()), signed(DELIVERY_ID, &text(&other)));
            match other == key {
                true => drop(endpoint.accepts(request, what).await),
                false => assert_eq!(endpoint.refuses(request, 401, what).await, SignatureMismatch, "{what}"),
            }
        }
    }
}
