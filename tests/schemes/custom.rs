//! Schemes that are closures: one proof or several, by the head or by the body.

use axum::body::Bytes;
use axum::http::{HeaderName, Request};
use tower_webhook::identity::IdSource;
use tower_webhook::rejection::RejectionKind::{self, MalformedSignature, MissingSignature, SignatureMismatch};
use tower_webhook::scheme::{Algorithm, Custom, Encoding, Profile, Proof};
use tower_webhook::secrets::{Key, Secrets};
use tower_webhook::testing::TestSender;

use crate::schemes::endpoint::{Endpoint, set};
use crate::schemes::preset::SECRET;
use crate::schemes::signing::hmac_sha256;

const BODY: &str = r#"{"id":"evt_1"}"#;
const SIGNATURE: &str = "x-acme-signature";

fn secrets() -> Secrets {
    Secrets::new(SECRET, |text| Key::hmac_sha256(text.as_bytes())).expect("a secret")
}

fn tag(message: impl AsRef<[u8]>) -> String {
    hex::encode(hmac_sha256(SECRET.as_bytes(), message.as_ref()))
}

fn sent(signature: &str) -> Request<Bytes> {
    let mut request = Request::post("/").body(Bytes::from_static(BODY.as_bytes())).expect("a request");
    set(&mut request, SIGNATURE, signature);
    request
}

/// A proof with these signatures, divided by commas.
fn with_signatures(mut proof: Proof, signatures: &[u8]) -> Proof {
    for signature in signatures.split(|byte| *byte == b',') {
        proof.add(Algorithm::HmacSha256, Encoding::Hex, signature);
    }
    proof
}

fn by_head(read: impl Fn(&[u8]) -> Proof + Send + Sync + 'static) -> Endpoint {
    Endpoint::new(Custom::by_head("acme", secrets(), move |head| head.proof_header(SIGNATURE).map(&read)))
}

#[tokio::test]
async fn closure_over_the_head_says_what_is_signed() {
    let endpoint = by_head(|value| with_signatures(Proof::new().prefix(b"a:").suffix(b":z"), value));
    endpoint.accepts(sent(&tag(format!("a:{BODY}:z"))), "all of it").await;
    assert_eq!(endpoint.refuses(sent(&tag(BODY)), 401, "the body alone").await, SignatureMismatch);
    assert_eq!(endpoint.refuses(sent("zz"), 401, "no hex").await, MalformedSignature);
    let unsigned = Request::post("/").body(Bytes::from_static(BODY.as_bytes())).unwrap();
    assert_eq!(endpoint.refuses(unsigned, 401, "no header").await, MissingSignature);
}

#[tokio::test]
async fn closure_that_refuses_is_believed() {
    let endpoint =
        Endpoint::new(Custom::by_head("acme", secrets(), |_| Err(RejectionKind::UnsupportedSignature.into())));
    assert_eq!(endpoint.refuses(sent(&tag(BODY)), 401, "always").await, RejectionKind::UnsupportedSignature);
    let endpoint =
        Endpoint::new(Custom::by_body("acme", secrets(), |_, _| Err(RejectionKind::UnsupportedSignature.into())));
    assert_eq!(endpoint.refuses(sent(&tag(BODY)), 401, "always").await, RejectionKind::UnsupportedSignature);
}

#[tokio::test]
async fn proof_without_a_signature_proves_nothing() {
    for (what, endpoint) in [
        ("by the head", Endpoint::new(Custom::by_head("acme", secrets(), |_| Ok(Proof::new())))),
        ("by the body", Endpoint::new(Custom::by_body("acme", secrets(), |_, _| Ok(vec![Proof::new()])))),
        ("of a message", Endpoint::new(Custom::by_body("acme", secrets(), |_, _| Ok(vec![Proof::of(b"x")])))),
        ("no proof at all", Endpoint::new(Custom::by_body("acme", secrets(), |_, _| Ok(Vec::new())))),
        ("once more in the body", Endpoint::new(Custom::by_body("acme", secrets(), |_, _| Ok(vec![Proof::in_body()])))),
    ] {
        endpoint.refuses(sent(&tag(BODY)), 401, what).await;
    }
}

/// Nobody verified anything: the proof only said that it was to come.
// Otherwise: it is verified against the empty message, and its caps are not checked.
#[tokio::test]
async fn proof_that_stays_in_the_body_proves_nothing() {
    let endpoint = Endpoint::new(Custom::by_body("acme", secrets(), |head, _| {
        Ok(vec![with_signatures(Proof::in_body(), head.proof_header(SIGNATURE)?)])
    }));
    // A signature of nothing is easy to come by, and covers no byte.
    endpoint.refuses(sent(&tag("")), 401, "a signature of nothing").await;
}

#[tokio::test]
async fn closure_over_the_body_may_demand_several_proofs() {
    let scheme = Custom::by_body("acme", secrets(), |head, body| {
        let value = head.proof_header(SIGNATURE)?;
        let (first, second) = value.split_at(value.iter().position(|byte| *byte == b'+').unwrap_or(0));
        let mut whole = Proof::new().id("signed-id");
        whole.add(Algorithm::HmacSha256, Encoding::Hex, first);
        let mut length = Proof::of(body.len().to_string().as_bytes());
        length.add(Algorithm::HmacSha256, Encoding::Hex, second.strip_prefix(b"+").unwrap_or(second));
        Ok(vec![whole, length])
    })
    .with_profile(Profile::default().id(IdSource::signed()));
    let (whole, length, wrong) = (tag(BODY), tag(BODY.len().to_string()), tag("x"));
    let event = Endpoint::new(scheme.clone()).accepts(sent(&format!("{whole}+{length}")), "both").await;
    assert_eq!((event.id(), event.id_is_authenticated()), ("signed-id", true));
    for signatures in [
        format!("{whole}+{wrong}"),
        format!("{wrong}+{length}"),
        format!("{length}+{whole}"),
        whole.clone(),
        format!("{whole}+"),
    ] {
        Endpoint::new(scheme.clone()).refuses(sent(&signatures), 401, &signatures).await;
    }
}

#[tokio::test]
async fn either_of_two_messages_may_be_signed() {
    let endpoint = || {
        by_head(|value| {
            with_signatures(Proof::new().prefix(b"a").id("a"), value)
                .or(with_signatures(Proof::new().prefix(b"b").id("b"), value))
        })
    };
    for prefix in ["a", "b"] {
        endpoint().accepts(sent(&tag(format!("{prefix}{BODY}"))), prefix).await;
    }
    for prefix in ["", "c", "ab"] {
        assert_eq!(endpoint().refuses(sent(&tag(format!("{prefix}{BODY}"))), 401, prefix).await, SignatureMismatch);
    }
}

#[tokio::test]
async fn id_is_that_of_the_message_which_was_signed() {
    let scheme = Custom::by_head("acme", secrets(), |head| {
        let value = head.proof_header(SIGNATURE)?;
        let proof = |name: &str| with_signatures(Proof::new().prefix(name.as_bytes()).id(name), value);
        Ok(proof("a").or(proof("b")))
    })
    .with_profile(Profile::default().id(IdSource::signed()));
    for name in ["a", "b"] {
        let event = Endpoint::new(scheme.clone()).accepts(sent(&tag(format!("{name}{BODY}"))), name).await;
        assert_eq!(event.id(), name);
    }
}

// Otherwise: the third takes the second's place, which is never tried.
#[tokio::test]
async fn any_of_three_messages_may_be_signed() {
    let endpoint = || {
        by_head(|value| {
            let proof = |prefix: &[u8]| with_signatures(Proof::new().prefix(prefix), value);
            proof(b"a").or(proof(b"b")).or(proof(b"c"))
        })
    };
    for prefix in ["a", "b", "c"] {
        endpoint().accepts(sent(&tag(format!("{prefix}{BODY}"))), prefix).await;
    }
}

// Otherwise: only the first is asked whether there is anything to compare.
#[tokio::test]
async fn second_message_may_have_the_only_signature() {
    let endpoint = by_head(|value| Proof::new().or(with_signatures(Proof::new(), value)));
    endpoint.accepts(sent(&tag(BODY)), "in the second").await;
}

// As above: Whatever is over the cap in the second is compared all the same.
#[tokio::test]
async fn cap_holds_for_the_second_message_too() {
    let many = format!("{}{}", format!("{},", "00".repeat(32)).repeat(30), tag(format!("b{BODY}")));
    let first = by_head(|value| with_signatures(Proof::new().prefix(b"b"), value));
    assert_eq!(first.refuses(sent(&many), 401, "in the first").await, MalformedSignature);
    let second = by_head(|value| {
        let mut proof = Proof::new();
        proof.add(Algorithm::HmacSha256, Encoding::Hex, &value[..64]);
        proof.or(with_signatures(Proof::new().prefix(b"b"), value))
    });
    assert_eq!(second.refuses(sent(&many), 401, "in the second").await, MalformedSignature);
}

#[tokio::test]
async fn demanded_header_is_demanded() {
    let header = HeaderName::from_static("x-acme-other");
    let by_body = Custom::by_body("acme", secrets(), |head, _| {
        Ok(vec![with_signatures(Proof::new(), head.proof_header(SIGNATURE)?)])
    })
    .required_header(header);
    let endpoint = Endpoint::new(by_body);
    assert_eq!(endpoint.refuses(sent(&tag(BODY)), 401, "without it").await, MissingSignature);
    let mut with = sent(&tag(BODY));
    set(&mut with, "x-acme-other", "x");
    endpoint.accepts(with, "with it").await;
}

// Otherwise: a scheme over the head forgets what it demands.
#[tokio::test]
async fn demanded_header_is_demanded_by_the_head_too() {
    let scheme =
        Custom::by_head("acme", secrets(), |head| Ok(with_signatures(Proof::new(), head.proof_header(SIGNATURE)?)))
            .required_header(HeaderName::from_static("x-acme-other"));
    Endpoint::new(scheme).refuses(sent(&tag(BODY)), 401, "without it").await;
}

#[tokio::test]
async fn closure_can_be_told_how_to_sign() {
    let scheme =
        Custom::by_head("acme", secrets(), |head| Ok(with_signatures(Proof::new(), head.proof_header(SIGNATURE)?)))
            .signing(|message, secrets| {
                let tag = secrets.first_active(message.signed_at)?.sign(&[message.body()])?;
                message.set_header(&HeaderName::from_static(SIGNATURE), &hex::encode(tag))
            });
    Endpoint::new(scheme.clone()).accepts(TestSender::new(scheme).deliver(BODY).request_as(), "signed").await;
}

#[test]
#[should_panic(expected = "only verifies")]
fn closure_that_was_not_told_cannot_sign() {
    let _ =
        TestSender::new(Custom::by_head("acme", secrets(), |_| Ok(Proof::new()))).deliver(BODY).request_as::<Bytes>();
}

/// A panic of a user's closure is theirs; garbage in a request is nobody's reason to panic.
#[tokio::test]
async fn garbage_is_no_signature() {
    let endpoint = by_head(|value| with_signatures(Proof::new(), value));
    for garbage in ["é", "\u{1F980}", ",", ",,,,", "0", &"f".repeat(4096)] {
        endpoint.refuses(sent(garbage), 401, garbage).await;
    }
}
