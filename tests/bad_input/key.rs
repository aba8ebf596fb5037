//! Rows 53 to 61: which key signed, and what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512, Sha512_256};
use tower_webhook::ConfigErrorKind;
use tower_webhook::clock::Clock;
use tower_webhook::rejection::RejectionKind::{
    MalformedSignature, NoActiveSecret, SignatureMismatch, Stale, UnknownTenant, UnsupportedSignature,
};
use tower_webhook::scheme::{self, Scheme};
use tower_webhook::secrets::{IntoSecrets, Secret, TenantSecrets};

use crate::bad_input::case::{BODY, accepted_by, header_by, receiver_with, refused, refused_by, request, tag};
use crate::support::{NOW, SECRET};

#[tokio::test]
async fn whole_text_of_the_secret_is_the_key() {
    let (literal, stripped, decoded) =
        ("whsec_c2VjcmV0LWtleS1ieXRlcw==", "c2VjcmV0LWtleS1ieXRlcw==", "secret-key-bytes");
    let scheme = |secret| scheme::timestamped(secret).expect("a secret");
    for (what, secret, signer) in [
        ("53: signed with the empty key", literal, ""),
        ("54: whsec_ literal, signed with the decoded", literal, decoded),
        ("54: whsec_ literal, signed with the stripped", literal, stripped),
        ("54: stripped, signed with the literal", stripped, literal),
        ("54: stripped, signed with the decoded", stripped, decoded),
        ("54: the prefix alone", literal, "whsec_"),
        ("54: with a line break", literal, "whsec_c2VjcmV0LWtleS1ieXRlcw==\n"),
    ] {
        let receiver = receiver_with(scheme(secret));
        refused_by(&receiver, request(header_by(signer, BODY), BODY), 401, SignatureMismatch, what).await;
        accepted_by(&receiver, request(header_by(secret, BODY), BODY), what).await;
    }
}

#[tokio::test]
async fn replaced_secret_is_retired() {
    let what = "55: retired secret, replaced";
    let scheme = scheme::timestamped(["whsec_old", "whsec_kept"]).expect("secrets");
    let secrets = scheme.secrets().clone();
    let receiver = receiver_with(scheme);
    secrets.replace(["whsec_kept", "whsec_new"]).expect("secrets");
    refused_by(&receiver, request(header_by("whsec_old", BODY), BODY), 401, SignatureMismatch, what).await;
    for (secret, body) in [("whsec_kept", r#"{"id":"1"}"#), ("whsec_new", r#"{"id":"2"}"#)] {
        accepted_by(&receiver, request(header_by(secret, body), body), what).await;
    }
}

#[tokio::test]
async fn expired_secret_is_retired() {
    let what = "55: retired secret, expired";
    let minute = Duration::from_secs(60);
    for (others, kind) in [(vec!["whsec_new"], SignatureMismatch), (vec![], NoActiveSecret)] {
        let clock = crate::support::Receiver::new().clock;
        let old = Secret::new("whsec_old").expect("a secret").label("old").expires_at(clock.now() + minute);
        let others = others.into_iter().map(|text| Secret::new(text).expect("a secret"));
        let scheme = scheme::timestamped(Vec::from_iter(others.chain([old]))).expect("secrets");

        let in_time = receiver_with(scheme.clone());
        in_time.clock.advance(minute - Duration::from_nanos(1));
        accepted_by(&in_time, request(header_by("whsec_old", BODY), BODY), what).await;

        // Signed while it was valid, and received at the very moment at which it no longer is.
        let too_late = receiver_with(scheme);
        too_late.clock.advance(minute);
        refused_by(&too_late, request(header_by("whsec_old", BODY), BODY), 401, kind, what).await;
    }
}

fn tenants() -> TenantSecrets {
    TenantSecrets::new(
        |head| head.text_header("x-tenant").map(str::to_owned),
        |tenant| async move {
            let known = ["acme", "evil"].contains(&&*tenant);
            Ok(known.then(|| Secret::new(format!("whsec_{tenant}")).map(|secret| vec![secret])).transpose()?)
        },
    )
}

fn to_tenant(tenant: &str, secret: &str) -> Request<Body> {
    let mut request = request(header_by(secret, BODY), BODY);
    request.headers_mut().insert("x-tenant", HeaderValue::from_str(tenant).expect("text"));
    request
}

#[tokio::test]
async fn tenants_secrets_are_their_own() {
    for (what, tenant, secret, kind) in [
        ("56: another tenant's secret", "acme", "whsec_evil", SignatureMismatch),
        ("56: another tenant's secret, the other way", "evil", "whsec_acme", SignatureMismatch),
        ("56: unknown tenant", "nobody", "whsec_nobody", UnknownTenant),
        ("56: unknown tenant, a known secret", "nobody", "whsec_acme", UnknownTenant),
        ("56: a tenant in another spelling", "ACME", "whsec_acme", UnknownTenant),
        ("56: empty tenant", "", "whsec_acme", UnknownTenant),
        ("56: overlong tenant", &"a".repeat(256), "whsec_acme", UnknownTenant),
    ] {
        let receiver = receiver_with(scheme::timestamped(tenants()).expect("a lookup"));
        refused_by(&receiver, to_tenant(tenant, secret), 401, kind, what).await;
    }
    let receiver = receiver_with(scheme::timestamped(tenants()).expect("a lookup"));
    refused_by(&receiver, request(header_by("whsec_acme", BODY), BODY), 401, UnknownTenant, "56: no tenant").await;
    for tenant in ["acme", "evil"] {
        let what = "56: the same event for two tenants is two events";
        accepted_by(&receiver, to_tenant(tenant, &format!("whsec_{tenant}")), what).await;
    }
}

#[tokio::test]
async fn header_that_can_be_refused_costs_no_lookup() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let secrets = TenantSecrets::new(
        |_| Some("acme".to_owned()),
        move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            async { Ok(Some(vec![Secret::new("whsec_acme")?])) }
        },
    );
    let receiver = receiver_with(scheme::timestamped(secrets).expect("a lookup"));
    let good = header_by("whsec_acme", BODY);
    for (what, header, kind) in [
        ("19: stale", format!("t=1,v1={}", tag("whsec_acme", format!("1.{BODY}"))), Stale),
        ("24: only v0", good.replace("v1", "v0"), UnsupportedSignature),
        ("30: empty v1", format!("t={NOW},v1="), MalformedSignature),
        ("35: non-hex", format!("t={NOW},v1=zz"), MalformedSignature),
        ("47: 17 v1", format!("{good}{}", ",v1=00".repeat(16)), MalformedSignature),
    ] {
        refused_by(&receiver, request(header, BODY), 401, kind, what).await;
        assert_eq!(asked.load(Ordering::SeqCst), 0, "{what}");
    }
}

#[tokio::test]
async fn only_the_exact_message_is_signed() {
    for (what, message) in [
        ("57: body signed without t.", BODY.to_owned()),
        ("57: t alone", NOW.to_string()),
        ("57: t. alone", format!("{NOW}.")),
        ("58: t:body", format!("{NOW}:{BODY}")),
        ("58: t and body without a dot", format!("{NOW}{BODY}")),
        ("58: body.t", format!("{BODY}.{NOW}")),
        ("58: t=t.body", format!("t={NOW}.{BODY}")),
        ("59: re-serialised JSON, with spaces", format!(r#"{NOW}.{{"id": "evt_1", "type": "test.event"}}"#)),
        ("59: re-serialised JSON, other order", format!(r#"{NOW}.{{"type":"test.event","id":"evt_1"}}"#)),
        ("59: re-serialised JSON, other escapes", format!(r#"{NOW}.{{"id":"evt\u005f1","type":"test.event"}}"#)),
        ("59: re-serialised JSON, with a line break", format!("{NOW}.{BODY}\n")),
    ] {
        let header = format!("t={NOW},v1={}", tag(SECRET, message));
        refused(request(header, BODY), 401, SignatureMismatch, what).await;
    }
}

#[tokio::test]
async fn only_hmac_sha256_counts() {
    let message = format!("{NOW}.{BODY}");
    let keyed = [SECRET, &message].concat();
    // No crate of this one computes SHA-1.
    let sha1 = "04cb5081d289f7e7b146c70db86b4a6b2052c943";
    let sha512 = hmac::<Hmac<Sha512>>(&message);
    for (what, v1, kind) in [
        ("60: HMAC-SHA1", sha1.to_owned(), MalformedSignature),
        ("60: HMAC-SHA1, padded", format!("{sha1:0<64}"), SignatureMismatch),
        ("60: HMAC-SHA512", sha512.clone(), MalformedSignature),
        ("60: HMAC-SHA512, cut", sha512[..64].to_owned(), SignatureMismatch),
        ("60: HMAC-SHA512/256", hmac::<Hmac<Sha512_256>>(&message), SignatureMismatch),
        ("60: HMAC-SHA384", hmac::<Hmac<Sha384>>(&message), MalformedSignature),
        ("60: SHA256 without a key", hex::encode(Sha256::digest(&message)), SignatureMismatch),
        ("60: SHA256 of key and message", hex::encode(Sha256::digest(keyed)), SignatureMismatch),
        ("60: key and message swapped", tag(&message, SECRET), SignatureMismatch),
    ] {
        refused(request(format!("t={NOW},v1={v1}"), BODY), 401, kind, what).await;
    }
}

fn hmac<M: Mac + KeyInit>(message: &str) -> String {
    let mut mac = <M as KeyInit>::new_from_slice(SECRET.as_bytes()).expect("any key will do");
    mac.update(message.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

#[tokio::test]
async fn invalid_secret_does_not_build() {
    fn error(secrets: impl IntoSecrets, what: &str) {
        let error = scheme::timestamped(secrets).expect_err(what);
        assert_eq!(error.kind(), ConfigErrorKind::Secret, "{what}");
        assert!(!error.to_string().contains("good_part"), "{what}: {error}");
    }
    let scheme = scheme::timestamped(SECRET).expect("a secret");
    let secrets = scheme.secrets().clone();
    for (what, text) in [
        ("61: empty", ""),
        ("61: blank", "   "),
        ("61: blank, of line breaks", "\r\n\n"),
        ("61: trailing newline", "good_part\n"),
        ("61: trailing CRLF", "good_part\r\n"),
        ("61: trailing space", "good_part "),
        ("61: leading space", " good_part"),
        ("61: trailing no-break space", "good_part\u{a0}"),
    ] {
        assert_eq!(Secret::new(text).expect_err(what).kind(), ConfigErrorKind::Secret, "{what}");
        error(text, what);
        error(text.to_owned(), what);
        error([text], what);
        error(vec!["fine", text], what);
        assert_eq!(scheme::stripe([text, "fine"]).expect_err(what).kind(), ConfigErrorKind::Secret, "{what}");
        assert_eq!(secrets.replace(["fine", text]).expect_err(what).kind(), ConfigErrorKind::Secret, "{what}");
    }
    let none = secrets.replace(Vec::<Secret>::new()).expect_err("61: none at all");
    assert_eq!(none.kind(), ConfigErrorKind::Secrets);
    assert_eq!(scheme::timestamped(Vec::<Secret>::new()).expect_err("61: none").kind(), ConfigErrorKind::Secrets);

    let receiver = receiver_with(scheme);
    for key in ["fine", ""] {
        let delivery = request(header_by(key, BODY), BODY);
        refused_by(&receiver, delivery, 401, SignatureMismatch, "61: half of a failed set").await;
    }
    accepted_by(&receiver, request(header_by(SECRET, BODY), BODY), "61: the set in use stays").await;
}
