//! Adyen and Mailgun sign fields of the body, and GitLab's token signs nothing: what of a body is covered, and what is not.

use axum::body::Bytes;
use axum::http::Request;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind::{Early, MalformedSignature, MissingSignature, SignatureMismatch, Stale};
use tower_webhook::scheme::{self, Tolerance};
use tower_webhook::testing::TestSender;

use crate::schemes::endpoint::{Endpoint, request};
use crate::schemes::preset::{Preset, SECRET};
use crate::schemes::signing::hmac_sha256;
use crate::support::NOW;

fn post(body: impl Into<Bytes>) -> Request<Bytes> {
    Request::post("/webhooks").body(body.into()).expect("a request")
}

/// The body of a preset's own delivery, signed.
fn signed_body(name: &str) -> String {
    String::from_utf8(request(&Preset::named(name)).body().to_vec()).expect("text")
}

/// An item with these fields, signed by hand.
fn item(reference: &str, code: &str) -> String {
    let message = format!("{reference}::Acme:order 1:1000:EUR:{code}:true");
    let signature = STANDARD.encode(hmac_sha256(&hex::decode(SECRET).expect("hex"), message.as_bytes()));
    format!(
        r#"{{"NotificationRequestItem":{{"pspReference":"{reference}","merchantAccountCode":"Acme","merchantReference":"order 1","amount":{{"value":1000,"currency":"EUR"}},"eventCode":"{code}","success":"true","additionalData":{{"hmacSignature":"{signature}"}}}}}}"#
    )
}

fn items(items: &[String]) -> Request<Bytes> {
    post(format!(r#"{{"live":"false","notificationItems":[{}]}}"#, items.join(",")))
}

#[tokio::test]
async fn each_of_adyens_eight_fields_is_covered() {
    let genuine = signed_body("adyen");
    Endpoint::preset("adyen").accepts(post(genuine.clone()), "as it was signed").await;
    for (from, to) in [
        (r#""pspReference":"psp_1""#, r#""pspReference":"psp_2""#),
        (r#""originalReference":"""#, r#""originalReference":"x""#),
        ("Acme", "Evil"),
        ("order 1", "order 2"),
        ("1000", "1001"),
        ("1000", "1000.0"),
        ("1000", "1e3"),
        ("EUR", "USD"),
        ("AUTHORISATION", "CANCELLATION"),
        (r#""success":"true""#, r#""success":"false""#),
        (r#""success":"true""#, r#""success":"True""#),
    ] {
        let changed = genuine.replace(from, to);
        assert_ne!(changed, genuine);
        let kind = Endpoint::preset("adyen").refuses(post(changed), 401, to).await;
        assert_eq!(kind, SignatureMismatch, "{to}");
    }
}

/// In its docs: whoever captured a delivery can change it, but it is the same event.
#[tokio::test]
async fn rest_of_adyens_body_is_not_covered_and_makes_no_other_event() {
    let endpoint = Endpoint::preset("adyen");
    let genuine = signed_body("adyen");
    endpoint.accepts(post(genuine.clone()), "as it was signed").await;
    for changed in [genuine.replace(r#""live":"false""#, r#""live":"true""#), genuine.replace("{\"live", "{ \"live")] {
        assert_ne!(changed, genuine);
        assert_eq!(endpoint.send(post(changed)).await.outcome, Some(Outcome::Duplicate));
    }
    assert_eq!(endpoint.runs(), 1);
}

#[tokio::test]
async fn every_item_of_a_batch_must_be_signed() {
    let (first, second) = (item("psp_1", "AUTHORISATION"), item("psp_2", "REFUND"));
    Endpoint::preset("adyen").accepts(items(&[first.clone(), second.clone()]), "both").await;
    let unsigned = second.split(",\"additionalData\"").next().expect("a part").to_owned() + "}}";
    for (what, batch, kind) in [
        ("a forged one last", vec![first.clone(), second.replace("REFUND", "CHARGEBACK")], SignatureMismatch),
        ("a forged one first", vec![first.replace("psp_1", "psp_9"), second.clone()], SignatureMismatch),
        ("an unsigned one last", vec![first.clone(), unsigned.clone()], MissingSignature),
        ("an unsigned one first", vec![unsigned, first.clone()], MissingSignature),
        ("none at all", vec![], MissingSignature),
        ("another's signature", vec![first.replace("psp_1", "psp_2")], SignatureMismatch),
    ] {
        assert_eq!(Endpoint::preset("adyen").refuses(items(&batch), 401, what).await, kind, "{what}");
    }
}

#[tokio::test]
async fn id_of_a_batch_is_of_its_items_in_their_order() {
    let (first, second) = (item("psp_1", "AUTHORISATION"), item("psp_2", "REFUND"));
    let endpoint = Endpoint::preset("adyen");
    let mut ids = std::collections::BTreeSet::new();
    for batch in [vec![first.clone()], vec![second.clone()], vec![first.clone(), second.clone()], vec![second, first]] {
        ids.insert(endpoint.accepts(items(&batch), "a batch").await.id().to_owned());
        assert_eq!(endpoint.send(items(&batch)).await.outcome, Some(Outcome::Duplicate));
    }
    assert_eq!(ids.len(), 4);
}

#[tokio::test]
async fn adyens_body_that_cannot_be_read_is_refused_and_never_panics() {
    let genuine = item("psp_1", "AUTHORISATION");
    let signature = genuine.split("hmacSignature\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("one");
    for body in [
        String::new(),
        "{}".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        r#"{"notificationItems":null}"#.to_owned(),
        r#"{"notificationItems":{}}"#.to_owned(),
        r#"{"notificationItems":"x"}"#.to_owned(),
        r#"{"notificationItems":[1]}"#.to_owned(),
        r#"{"notificationItems":[{}]}"#.to_owned(),
        r#"{"notificationItems":[{"NotificationRequestItem":null}]}"#.to_owned(),
        r#"{"notificationItems":[{"NotificationRequestItem":{"additionalData":{"hmacSignature":1}}}]}"#.to_owned(),
        r#"{"notificationItems":[{"NotificationRequestItem":{"additionalData":{"hmacSignature":"notValidSign"}}}]}"#
            .to_owned(),
        format!(r#"{{"notificationItems":[{genuine}],"notificationItems":[]}}"#),
        format!(r#"{{"notificationItems":[{}]}}"#, genuine.replace("\"success\"", "\"eventCode\":\"X\",\"success\"")),
        format!(r#"{{"notificationItems":[{}]}}"#, genuine.replace(signature, "")),
        format!(r#"{{"notificationItems":[{}]}}"#, genuine.replace(signature, &signature[1..])),
        format!(r#"{{"notificationItems":[{}]}}"#, genuine.replace(signature, &signature.replace('=', "A"))),
        format!(r#"{{"notificationItems":[{}]}}"#, genuine.replace(signature, signature.trim_end_matches('='))),
        format!(r#"{{"notificationItems":[{genuine}]}} x"#),
        format!(r#"{{"notificationItems":[{genuine}"#),
    ] {
        Endpoint::preset("adyen").refuses(post(body.clone()), 401, &body).await;
    }
}

/// Mailgun's delivery, signed by hand.
fn mailgun(timestamp: &str, token: &str) -> Request<Bytes> {
    let signature = hex::encode(hmac_sha256(SECRET.as_bytes(), format!("{timestamp}{token}").as_bytes()));
    with_fields(timestamp, token, &signature)
}

fn with_fields(timestamp: &str, token: &str, signature: &str) -> Request<Bytes> {
    post(format!(
        r#"{{"signature":{{"timestamp":"{timestamp}","token":"{token}","signature":"{signature}"}},"event-data":{{"event":"opened"}}}}"#
    ))
}

#[tokio::test]
async fn mailguns_token_is_used_once() {
    let endpoint = Endpoint::preset("mailgun");
    let event = endpoint.accepts(mailgun(&NOW.to_string(), "token-1"), "the delivery").await;
    assert_eq!((event.id(), event.event_type(), event.id_is_authenticated()), ("token-1", Some("opened"), true));
    // The event beside the signature is not covered: what stops a forged one is that the token is known.
    let text = String::from_utf8(event.body().to_vec()).expect("text");
    let forged = endpoint.send(post(text.replace("opened", "failed"))).await;
    assert_eq!((forged.outcome, endpoint.runs()), (Some(Outcome::Duplicate), 1));
}

#[tokio::test]
async fn mailguns_signature_is_of_its_timestamp_and_token() {
    let now = NOW.to_string();
    let right = hex::encode(hmac_sha256(SECRET.as_bytes(), format!("{now}token").as_bytes()));
    Endpoint::preset("mailgun").accepts(with_fields(&now, "token", &right.to_uppercase()), "upper case").await;
    for (what, timestamp, token, signature, kind) in [
        ("another token", &*now, "Token", &*right, SignatureMismatch),
        ("another time", &(NOW + 1).to_string(), "token", &right, SignatureMismatch),
        ("a short signature", &now, "token", &right[1..], MalformedSignature),
        ("a long one", &now, "token", &format!("{right}0"), MalformedSignature),
        ("an empty one", &now, "token", "", MalformedSignature),
        ("base64", &now, "token", &STANDARD.encode(hex::decode(&right).expect("hex")), MalformedSignature),
        ("a digit moved to the token", &now[..9], "0token", &right, Stale),
        ("a word for a time", "now", "token", &right, MalformedSignature),
        ("an empty time", "", "token", &right, MalformedSignature),
        ("milliseconds", &format!("{now}000"), "token", &right, MalformedSignature),
    ] {
        let sent = with_fields(timestamp, token, signature);
        assert_eq!(Endpoint::preset("mailgun").refuses(sent, 401, what).await, kind, "{what}");
    }
    for body in [
        "",
        "{}",
        "[]",
        r#"{"signature":null}"#,
        r#"{"signature":{"timestamp":1700000000,"token":"t","signature":"00"}}"#,
        r#"{"signature":{"timestamp":"1700000000","signature":"00"}}"#,
        r#"{"signature":{"timestamp":"1700000000","token":"t"}}"#,
        r#"{"signature":{"timestamp":"1700000000","token":"t","signature":5}}"#,
        r#"{"signature":{},"signature":{}}"#,
    ] {
        Endpoint::preset("mailgun").refuses(post(body), 401, body).await;
    }
}

#[tokio::test]
async fn mailguns_digits_do_not_move_between_timestamp_and_token() {
    let unchecked = || Endpoint::new(scheme::mailgun(SECRET).unwrap().tolerance(Tolerance::InsecureUnchecked));
    for endpoint in [Endpoint::preset("mailgun"), unchecked()] {
        endpoint.accepts(mailgun(&NOW.to_string(), "123abc"), "as it was signed").await;
        let signature = hex::encode(hmac_sha256(SECRET.as_bytes(), format!("{NOW}123abc").as_bytes()));
        for at in (1..13).filter(|at| *at != 10) {
            let text = format!("{NOW}123abc");
            let (timestamp, token) = text.split_at(at);
            let kind = endpoint.refuses(with_fields(timestamp, token, &signature), 401, timestamp).await;
            assert!(matches!(kind, Stale | Early | MalformedSignature), "{timestamp}: {kind:?}");
        }
    }
}

/// A tolerance as long as all time checks as little as none.
// Otherwise: only the unchecked one demands ten digits, so that under a tolerance of decades a known token becomes a new one.
#[tokio::test]
async fn mailguns_digits_do_not_move_under_any_tolerance() {
    let decades = std::time::Duration::from_secs(60 * 365 * 24 * 3600);
    let endpoint = Endpoint::new(scheme::mailgun(SECRET).unwrap().tolerance(decades));
    endpoint.accepts(mailgun(&NOW.to_string(), "abc"), "as it was signed").await;
    let signature = hex::encode(hmac_sha256(SECRET.as_bytes(), format!("{NOW}abc").as_bytes()));
    let cut = with_fields(&NOW.to_string()[..9], "0abc", &signature);
    endpoint.refuses(cut, 401, "a digit in the token").await;
}

#[tokio::test]
async fn either_of_mailguns_two_signatures_may_match() {
    let now = NOW.to_string();
    let right = hex::encode(hmac_sha256(SECRET.as_bytes(), format!("{now}token").as_bytes()));
    let wrong = "0".repeat(64);
    for (own, parent, accepted) in [(&right, &wrong, true), (&wrong, &right, true), (&wrong, &wrong, false)] {
        let sent = post(format!(
            r#"{{"signature":{{"timestamp":"{now}","token":"token","signature":"{own}","parent-signature":"{parent}"}}}}"#
        ));
        match accepted {
            true => drop(Endpoint::preset("mailgun").accepts(sent, "one is right").await),
            false => drop(Endpoint::preset("mailgun").refuses(sent, 401, "none is right").await),
        }
    }
}

/// In its docs: nothing is signed. What is in the token's place must be the token, to the byte.
#[tokio::test]
async fn gitlabs_token_covers_no_byte_of_the_body() {
    let preset = Preset::named("gitlab");
    let mut any_body = request(&preset);
    *any_body.body_mut() = Bytes::from_static(b"anything");
    let event = Endpoint::preset("gitlab").accepts(any_body, "any body").await;
    assert!(!event.id_is_authenticated());
    let longer = format!("{SECRET}0");
    for token in ["", "x", &SECRET[1..], &longer, &SECRET.to_uppercase()] {
        let mut sent = request(&preset);
        crate::schemes::endpoint::set(&mut sent, "x-gitlab-token", token);
        Endpoint::preset("gitlab").refuses(sent, 401, token).await;
    }
}

#[test]
#[should_panic(expected = "notificationItems")]
fn adyen_signs_nothing_but_items() {
    let _ = TestSender::new(Preset::named("adyen").sending()).deliver("{}").request_as::<Bytes>();
}
