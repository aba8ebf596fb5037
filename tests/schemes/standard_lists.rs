//! The list of signatures of Standard Webhooks: how it must read, and how long it may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use futures_util::{StreamExt, stream};
use tower_webhook::rejection::RejectionKind::{MalformedSignature, SignatureMismatch};
use tower_webhook::scheme;

use crate::schemes::endpoint::{DELIVERY_ID, Endpoint};
use crate::schemes::standard::{HMAC, both, endpoint, public_key, signed, v1, v1a};

const WRONG: &str = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// As many signatures of a version, the right one last.
fn list(wrong: &str, count: usize, right: &str) -> String {
    format!("{}{right}", format!("{wrong} ").repeat(count - 1))
}

/// An Ed25519 signature that is not this message's.
fn wrong_v1a() -> String {
    v1a("another")
}

#[tokio::test]
async fn any_signature_of_the_list_may_match() {
    for signatures in [
        format!("{WRONG} {}", v1(DELIVERY_ID)),
        format!("{} {WRONG}", v1(DELIVERY_ID)),
        format!("v2,x v1a,x {} v3,y", v1(DELIVERY_ID)),
        format!("v1, {}", v1(DELIVERY_ID)),
        format!("{} {}", wrong_v1a(), v1(DELIVERY_ID)),
        format!("{WRONG} {}", v1a(DELIVERY_ID)),
    ] {
        both().accepts(signed(DELIVERY_ID, &signatures), &signatures).await;
    }
}

#[tokio::test]
async fn list_has_one_syntax() {
    let good = v1(DELIVERY_ID);
    let bare = good.strip_prefix("v1,").expect("a version");
    for signatures in [
        format!("{good}  {good}"),
        format!(" {good}"),
        format!("{good} "),
        format!("{good}\t{good}"),
        format!("{good},{good}"),
        format!("{good};{good}"),
        good.replacen("v1,", "v1=", 1),
        good.replacen("v1,", "v1, ", 1) + " x",
        good.replacen("v1,", "v1,,", 1),
        good.replacen("v1,", ",", 1),
        bare.to_owned(),
        "v1".to_owned(),
        "v1,".to_owned(),
        "v1, v1,".to_owned(),
        format!("\"{good}\""),
        format!("{good} x"),
    ] {
        let kind = both().refuses(signed(DELIVERY_ID, &signatures), 401, &signatures).await;
        assert_eq!(kind, MalformedSignature, "{signatures}");
    }
}

#[tokio::test]
async fn sixteen_signatures_are_looked_at_and_no_more() {
    let right = v1(DELIVERY_ID);
    both().accepts(signed(DELIVERY_ID, &list(WRONG, 16, &right)), "16").await;
    for count in [17, 50, 80] {
        let kind = both().refuses(signed(DELIVERY_ID, &list(WRONG, count, &right)), 401, "too many").await;
        assert_eq!(kind, MalformedSignature, "{count}");
    }
    // Those that cannot be decoded cost something, too, and count.
    let kind = both().refuses(signed(DELIVERY_ID, &list("v1,x", 17, &right)), 401, "undecodable").await;
    assert_eq!(kind, MalformedSignature);
    // Those of other versions are never looked at.
    both().accepts(signed(DELIVERY_ID, &list("v2,x", 100, &right)), "100 of another version").await;
}

#[tokio::test]
async fn four_asymmetric_signatures_are_verified_and_no_more() {
    for (wrong, count, right, accepted) in [
        (wrong_v1a(), 4, v1a(DELIVERY_ID), true),
        (wrong_v1a(), 5, v1a(DELIVERY_ID), false),
        (wrong_v1a(), 16, v1a(DELIVERY_ID), false),
        (wrong_v1a(), 5, v1(DELIVERY_ID), true),
        (wrong_v1a(), 6, v1(DELIVERY_ID), false),
        (WRONG.to_owned(), 16, v1a(DELIVERY_ID), true),
        ("v1a,x".to_owned(), 16, v1a(DELIVERY_ID), true),
    ] {
        let (what, signatures) = (format!("{count} with {right}"), list(&wrong, count, &right));
        let request = signed(DELIVERY_ID, &signatures);
        match accepted {
            true => drop(both().accepts(request, &what).await),
            false => assert_eq!(both().refuses(request, 401, &what).await, MalformedSignature, "{what}"),
        }
    }
}

/// With no key to verify them under, they are as expensive to read, and refused as early.
#[tokio::test]
async fn cap_does_not_depend_on_the_keys() {
    for secrets in [vec![HMAC.to_owned()], vec![public_key()]] {
        let request = signed(DELIVERY_ID, &list(&wrong_v1a(), 5, &wrong_v1a()));
        assert_eq!(endpoint(secrets).refuses(request, 401, "five").await, MalformedSignature);
    }
}

#[tokio::test]
async fn too_many_signatures_are_refused_before_the_body_is_read() {
    let polled = Arc::new(AtomicUsize::new(0));
    let counter = polled.clone();
    let frames = stream::repeat(Ok::<_, std::convert::Infallible>(Bytes::from_static(b"x"))).inspect(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let layer = tower_webhook::WebhookLayer::new(
        scheme::standard_webhooks(vec![HMAC.to_owned(), public_key()]).expect("secrets"),
        tower_webhook::store::MemoryStore::new(),
    )
    .clock(tower_webhook::testing::ManualClock::at_unix(crate::support::NOW));
    let app: axum::Router = axum::Router::new().fallback(axum::routing::any(|| async {})).layer(layer);
    let request = signed(DELIVERY_ID, &list(&wrong_v1a(), 5, &v1a(DELIVERY_ID))).map(|_| Body::from_stream(frames));
    let response = tower::ServiceExt::oneshot(app, request).await.expect("an answer");
    assert_eq!((response.status().as_u16(), polled.load(Ordering::SeqCst)), (401, 0));
}

/// Any of eight keys and sixteen signatures: a pair in the last place is found.
#[tokio::test]
async fn every_signature_is_compared_with_every_secret() {
    let mut secrets: Vec<String> = (0..6).map(|n| format!("whsec_{}", "QUJD".repeat(8 + n))).collect();
    secrets.extend([public_key(), HMAC.to_owned()]);
    let full = endpoint(secrets.clone());
    let event = full.accepts(signed(DELIVERY_ID, &list(WRONG, 16, &v1(DELIVERY_ID))), "the last of both").await;
    assert_eq!(event.secret_label(), "8");
    let none = signed("delivery-2", &list(WRONG, 16, WRONG));
    assert_eq!(full.refuses(none, 401, "none").await, SignatureMismatch);
    secrets.push(HMAC.to_owned());
    assert!(scheme::standard_webhooks(secrets).is_err(), "nine secrets are too many");
}

#[tokio::test]
async fn same_caps_hold_for_svix() {
    let scheme = || scheme::svix(vec![HMAC.to_owned(), public_key()]).expect("secrets");
    let many = signed(DELIVERY_ID, &list(WRONG, 17, &v1(DELIVERY_ID)));
    assert_eq!(Endpoint::new(scheme()).refuses(many, 401, "17").await, MalformedSignature);
    let asymmetric = signed(DELIVERY_ID, &list(&wrong_v1a(), 5, &v1a(DELIVERY_ID)));
    assert_eq!(Endpoint::new(scheme()).refuses(asymmetric, 401, "5").await, MalformedSignature);
}
