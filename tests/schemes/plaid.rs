//! Plaid's JWTs, and the keys that are looked up for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::Request;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tower_webhook::rejection::{Rejection, RejectionKind};
use tower_webhook::scheme::{Head, Scheme, plaid, plaid_keys, verify};
use tower_webhook::secrets::Secret;
use tower_webhook::testing::{ManualClock, TestDelivery, TestSender};

const PRIVATE: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgjb6e+rm4xZF07t3pAx+mh81i6aQmUSrZAPVEqOVo3guhRANC\
    AAQfRLsArVEr2sX0gvGUnCVkeEyAYfqgn1veDhCPGAN83zUrBJHUtRumcsyNRq0pxAO1N/JmBkpjdCIcj1QGfOsR";
const JWK: &str = r#"{"alg":"ES256","crv":"P-256","kid":"test","kty":"EC","use":"sig",
    "x":"H0S7AK1RK9rF9ILxlJwlZHhMgGH6oJ9b3g4QjxgDfN8","y":"NSsEkdS1G6ZyzI1GrSnEA7U38mYGSmN0IhyPVAZ86xE"}"#;
const BODY: &str = r#"{"webhook_type":"ITEM","webhook_code":"ERROR","item_id":"i"}"#;
const HEADER: &str = "plaid-verification";

const NOW: u64 = 1_700_000_000;

fn clock() -> ManualClock {
    ManualClock::at_unix(NOW)
}

fn delivery() -> TestDelivery {
    TestSender::new(plaid(PRIVATE).expect("a private key")).clock(clock()).deliver(BODY)
}

async fn judge(scheme: &impl Scheme, request: Request<Bytes>) -> Result<String, Rejection> {
    let (parts, body) = request.into_parts();
    let now = UNIX_EPOCH + Duration::from_secs(NOW);
    let verified = verify(scheme, &Head::new(&parts, now), &body).await?;
    Ok(verified.id().expect("an id").to_owned())
}

fn refused(judged: Result<String, Rejection>) -> RejectionKind {
    judged.expect_err("must be refused").kind()
}

/// The request with one part of its JWT replaced.
fn with_part(index: usize, text: impl AsRef<[u8]>) -> Request<Bytes> {
    let mut split: Vec<String> = jwt().split('.').map(str::to_owned).collect();
    split[index] = URL_SAFE_NO_PAD.encode(text);
    with_jwt(&split.join("."))
}

fn jwt() -> String {
    delivery().request_as::<Bytes>().headers()[HEADER].to_str().expect("text").to_owned()
}

/// The request with another text in the JWT's place.
fn with_jwt(jwt: &str) -> Request<Bytes> {
    let mut request = delivery().request_as::<Bytes>();
    request.headers_mut().insert(HEADER, jwt.parse().expect("a header"));
    request
}

#[tokio::test]
async fn jwt_is_verified_with_the_key_that_it_names() {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = lookups.clone();
    let scheme = plaid(plaid_keys(move |key_id| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { Ok((key_id == "test").then(|| Secret::new(JWK)).transpose()?) }
    }))
    .expect("a lookup");
    assert!(judge(&scheme, delivery().request_as()).await.is_ok());
    assert!(judge(&scheme, delivery().request_as()).await.is_ok());
    assert_eq!(lookups.load(Ordering::Relaxed), 1, "keys are cached");

    let other = with_part(0, r#"{"alg":"ES256","kid":"other"}"#);
    assert_eq!(refused(judge(&scheme, other).await), RejectionKind::UnknownTenant);
    assert_eq!(lookups.load(Ordering::Relaxed), 2);
    let stale = delivery().aged(Duration::from_secs(301)).request_as();
    assert_eq!(refused(judge(&scheme, stale).await), RejectionKind::Stale);
    assert_eq!(lookups.load(Ordering::Relaxed), 2, "what the head alone refuses costs no lookup");
}

/// Anyone can name a key, with a JWT that looks right until its signature is checked.
#[tokio::test(start_paused = true)]
async fn forged_jwts_look_up_no_more_keys_at_once_than_allowed() {
    let counts: Arc<(AtomicUsize, AtomicUsize)> = Arc::default();
    let counted = counts.clone();
    let keys = plaid_keys(move |_| {
        let counted = counted.clone();
        async move {
            let (running, most) = &*counted;
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(None)
        }
    });
    let scheme = Arc::new(plaid(keys).expect("a lookup"));
    let (genuine, jwt) = (delivery().request_as::<Bytes>(), jwt());
    let (_, rest) = jwt.split_once('.').expect("three parts");
    let mut forgers = tokio::task::JoinSet::new();
    for n in 0..5_000 {
        let (scheme, mut request) = (scheme.clone(), genuine.clone());
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"ES256","kid":"made-up-{n}"}}"#));
        request.headers_mut().insert(HEADER, format!("{header}.{rest}").parse().expect("a header"));
        forgers.spawn(async move { refused(judge(&*scheme, request).await) });
    }
    assert!(forgers.join_all().await.into_iter().all(|kind| kind == RejectionKind::UnknownTenant));
    let most = counts.1.load(Ordering::SeqCst);
    assert!((1..=32).contains(&most), "{most} at once");
}

#[test]
fn retries_go_on_for_a_day() {
    let profile = plaid(JWK).expect("a public key").profile();
    assert_eq!(profile.retry_window, Some(Duration::from_secs(24 * 3600)));
}

#[tokio::test]
async fn body_is_covered_by_its_digest() {
    let (parts, body) = delivery().request_as::<Bytes>().into_parts();
    let (scheme, now) = (plaid(JWK).expect("a public key"), UNIX_EPOCH + Duration::from_secs(NOW));
    assert!(verify(&scheme, &Head::new(&parts, now), &body).await.expect("genuine").covers_body());
}

#[tokio::test]
async fn key_id_is_no_tenant() {
    use axum::{Router, body::Body, routing::post};
    use tower::ServiceExt;
    use tower_webhook::{WebhookEvent, WebhookLayer, store::MemoryStore};

    let keys = plaid_keys(|_| async { Ok(Some(Secret::new(JWK)?)) });
    let layer = WebhookLayer::new(plaid(keys).expect("a lookup"), MemoryStore::new()).clock(clock());
    let on_event = |event: WebhookEvent| async move { assert_eq!(event.tenant(), None) };
    let app: Router = Router::new().route("/webhooks", post(on_event)).layer(layer);
    assert_eq!(app.oneshot(delivery().request_as::<Body>()).await.expect("an answer").status(), 200);
}

/// The JWT is a proof that could be replayed for five minutes.
#[tokio::test]
async fn inbox_does_not_keep_the_jwt() {
    use axum::{Router, body::Body};
    use tower::ServiceExt;
    use tower_webhook::queue::{Filter, Page, Queue};
    use tower_webhook::{WebhookLayer, store::MemoryStore};

    let inbox = MemoryStore::new();
    let layer = WebhookLayer::inbox(plaid(JWK).expect("a public key"), inbox.clone()).clock(clock());
    let request = delivery().request_as::<Body>();
    let jwt = request.headers()[HEADER].to_str().expect("text").to_owned();
    let app: Router = Router::new().fallback(|| async {}).layer(layer);
    assert_eq!(app.oneshot(request).await.expect("an answer").status(), 200);
    let events = inbox.list(&Filter::all(), &Page::first(1)).await.expect("an answer");
    let stored = inbox.get(&events[0].key).await.expect("an answer").expect("the event").request.expect("a request");
    assert!(!String::from_utf8_lossy(&stored.head).contains(&jwt));
}

#[tokio::test]
async fn changed_bodies_claims_and_signatures_are_refused() {
    let scheme = plaid(JWK).expect("a public key");
    assert!(judge(&scheme, delivery().request_as()).await.is_ok());
    assert_eq!(refused(judge(&scheme, delivery().tampered().request_as()).await), RejectionKind::SignatureMismatch);

    let digest = "0".repeat(64);
    let claims = format!(r#"{{"iat":1700000000,"request_body_sha256":"{digest}"}}"#);
    assert_eq!(refused(judge(&scheme, with_part(1, claims)).await), RejectionKind::SignatureMismatch);
    let claims = r#"{"iat":1700000000,"request_body_sha256":"9fd0"}"#;
    assert_eq!(refused(judge(&scheme, with_part(1, claims)).await), RejectionKind::SignatureMismatch);
    assert_eq!(refused(judge(&scheme, with_part(2, "short")).await), RejectionKind::MalformedSignature);
}

#[tokio::test]
async fn jwt_that_is_nearly_right_is_refused() {
    let scheme = plaid(JWK).expect("a public key");
    let jwt = jwt();
    let (signed, signature) = jwt.rsplit_once('.').expect("three parts");
    for (what, text) in [
        ("truncated", jwt[..jwt.len() - 1].to_owned()),
        ("extended", format!("{jwt}A")),
        ("padded", format!("{jwt}==")),
        ("a fourth part", format!("{jwt}.")),
        ("two parts", signed.to_owned()),
        ("an empty signature", format!("{signed}.")),
        ("a doubled signature", format!("{signed}.{signature}{signature}")),
        ("hex", format!("{signed}.{}", hex::encode(URL_SAFE_NO_PAD.decode(signature).expect("base64")))),
        ("white space", format!("{jwt} ")),
        ("dots", "..".to_owned()),
        ("no JWT", "Bearer".to_owned()),
    ] {
        assert_eq!(refused(judge(&scheme, with_jwt(&text)).await), RejectionKind::MalformedSignature, "{what}");
    }
    let zeros = with_part(2, [0; 64]);
    assert_eq!(refused(judge(&scheme, zeros).await), RejectionKind::MalformedSignature, "no numbers of a signature");
    let other = with_part(2, [1; 64]);
    assert_eq!(refused(judge(&scheme, other).await), RejectionKind::SignatureMismatch);
}

/// As RFC 7518 demands: the two numbers side by side, however right the same two are in DER.
#[tokio::test]
async fn der_signature_of_a_jwt_is_refused() {
    let scheme = plaid(PRIVATE).expect("a private key");
    let secrets = scheme.secrets().current().expect("a set");
    let jwt = jwt();
    let (signed, _) = jwt.rsplit_once('.').expect("three parts");
    let der = secrets.first_active(SystemTime::now()).expect("a key").sign(&[signed.as_bytes()]).expect("a signature");
    assert_eq!(refused(judge(&scheme, with_part(2, der)).await), RejectionKind::MalformedSignature);
}

#[tokio::test]
async fn repeated_header_is_refused_even_if_both_are_equal() {
    let mut twice = delivery().request_as::<Bytes>();
    twice.headers_mut().append(HEADER, jwt().parse().expect("a header"));
    assert_eq!(refused(judge(&plaid(JWK).expect("a key"), twice).await), RejectionKind::RepeatedSignature);
}

#[tokio::test]
async fn jwt_is_accepted_for_five_minutes_both_ways() {
    let scheme = plaid(JWK).expect("a public key");
    let issued = |at: u64| {
        let sender = TestSender::new(plaid(PRIVATE).expect("a private key")).clock(ManualClock::at_unix(at));
        sender.deliver(BODY).request_as::<Bytes>()
    };
    for at in [NOW - 300, NOW + 300] {
        assert!(judge(&scheme, issued(at)).await.is_ok(), "{at}");
    }
    for (at, kind) in [(NOW - 301, RejectionKind::Stale), (NOW + 301, RejectionKind::Early)] {
        assert_eq!(refused(judge(&scheme, issued(at)).await), kind);
    }
}

/// The header names a key that was looked up for it; a signature of another one is none.
#[tokio::test]
async fn jwt_signed_with_another_key_than_it_names_is_refused() {
    let other = r#"{"crv":"P-256","kid":"test","kty":"EC",
        "x":"4l8Zqsh1zWp01VcLF_zhdUccpAD-KIGzPOSVNq26UPo","y":"XaR_DPfaP3XFPxzP-6--2Rc5zmfJ2PX4c8EoWPa_q94"}"#;
    let scheme = plaid(plaid_keys(move |_| async move { Ok(Some(Secret::new(other)?)) })).expect("a lookup");
    assert_eq!(refused(judge(&scheme, delivery().request_as()).await), RejectionKind::SignatureMismatch);
    let nameless = with_part(0, r#"{"alg":"ES256"}"#);
    assert_eq!(refused(judge(&scheme, nameless).await), RejectionKind::UnknownTenant);
}

#[tokio::test]
async fn only_es256_counts() {
    let scheme = plaid(JWK).expect("a public key");
    for header in [r#"{"alg":"none"}"#, r#"{"alg":"HS256"}"#, r#"{"kid":"test"}"#] {
        assert_eq!(
            refused(judge(&scheme, with_part(0, header)).await),
            RejectionKind::UnsupportedSignature,
            "{header}"
        );
    }
    for (index, text) in [(0, "no json"), (1, "{}"), (1, r#"{"iat":"now","request_body_sha256":""}"#)] {
        assert_eq!(refused(judge(&scheme, with_part(index, text)).await), RejectionKind::MalformedSignature, "{text}");
    }
    let missing = Request::new(Bytes::from_static(BODY.as_bytes()));
    assert_eq!(refused(judge(&scheme, missing).await), RejectionKind::MissingSignature);
}

#[tokio::test]
async fn replayed_jwt_has_the_same_id_and_a_new_one_another() {
    let scheme = plaid(JWK).expect("a public key");
    let (first, again) = (delivery().request_as::<Bytes>(), delivery().request_as::<Bytes>());
    let first = judge(&scheme, first).await.expect("genuine");
    assert_eq!(
        first,
        judge(&scheme, again).await.expect("genuine"),
        "the numbers of a signature are not part of the id"
    );
    let later = delivery().aged(Duration::from_secs(1)).request_as();
    assert_ne!(first, judge(&scheme, later).await.expect("genuine"));
}

#[test]
fn invalid_key_does_not_build() {
    for text in [JWK.replace("P-256", "P-384"), JWK.replace("H0S7", "AAAA"), "{}".to_owned(), "AAAA".to_owned()] {
        let error = plaid(text.clone()).expect_err("no key");
        assert!(!error.to_string().contains(&text), "{error}");
    }
}
