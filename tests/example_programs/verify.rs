//! The verdicts and hints of the `verify` example, over published and constructed deliveries.

use std::io::Write;
use std::process::{Command, Stdio};

use bytes::Bytes;
use serde_json::json;
use tower_webhook::scheme::{self, Tolerance};
use tower_webhook::testing::TestSender;

use crate::examples::captured::Captured;
use crate::support::example::example;

/// Where official SDKs disagree with each other, what we do, and why. Each such vector has its line here.
const OUR_CHOICES: &[(&str, &str)] = &[
    // Hex is decoded, and some senders write it so.
    ("uppercase hex", "accept"),
    // The MAC covers the text of `t`, so one moment has one spelling.
    ("t with a leading zero", "reject:malformed_signature"),
    ("t negative", "reject:malformed_signature"),
    // Two servers may each take another one.
    ("two t values, first one signed", "reject:malformed_signature"),
    // Secrets are copied by hand, and the padding is no part of the key.
    ("secret missing one = of padding", "accept"),
    // One MAC has one spelling.
    ("non-canonical base64 of the right MAC (last digit E->F, discarded bits differ)", "reject:malformed_signature"),
    // What is signed could be split into an id, a timestamp and a body in two ways.
    ("dot moved from body into id", "reject:malformed_signature"),
    // Zero is the very second; not to check is said in so many words.
    ("zero tolerance, exact second", "accept"),
    // Beyond what Standard Webhooks allows, and nobody sends it.
    ("bare signature without v1,", "reject:malformed_signature"),
    // The form is demanded, whatever some builds of an SDK strip.
    ("no prefix", "reject:malformed_signature"),
    // Bounded on both sides.
    ("301 s in the future", "reject:early"),
    // There is nothing to compare; it is not even of now.
    ("no h1", "reject:stale"),
];

/// Vectors that never come to be verified, and that for the reason which they are about.
const NOT_VERIFIED: &[(&str, &str)] = &[
    // Stripe's SDK verifies with it, in vain, and then hints at the space.
    ("node: secret with a trailing space", "reject:bad_secret"),
    ("empty secret", "reject:bad_secret"),
    ("secret is just whsec_", "reject:bad_secret"),
];

fn vectors() -> Vec<Captured> {
    serde_json::from_str(include_str!("../data/vectors.json")).expect("an array of deliveries")
}

fn vector(name: &str) -> Captured {
    vectors().into_iter().find(|vector| vector.name == name).expect("a vector of that name")
}

/// Signed at 1700000000 over an indented body, under `whsec_test_secret`.
fn valid() -> Captured {
    vector("node: valid signature, default tolerance")
}

async fn hint(delivery: &Captured) -> String {
    let verdict = delivery.judge().await;
    verdict.hint().unwrap_or_else(|| panic!("{} must be rejected", delivery.name)).to_owned()
}

#[tokio::test]
async fn vectors_give_the_expected_verdict() {
    let vectors = vectors();
    assert!(vectors.len() >= 192, "none of them is lost");
    for vector in vectors.iter().filter(|vector| vector.policy.is_none()) {
        let expected = vector.expect.as_deref().expect("a vector says what to expect");
        let verdict = vector.judge().await;
        assert!(verdict.agrees_with(expected), "{}: expected {expected}, got {verdict}", vector.name);
    }
}

/// A vector that is refused because it could not be read, or because its secret was not taken, shows nothing of the scheme.
#[tokio::test]
async fn rejected_vectors_are_rejected_by_their_scheme() {
    let mut not_verified = Vec::new();
    for vector in vectors() {
        let verdict = vector.judge().await.to_string();
        if matches!(&*verdict, "reject:unknown_scheme" | "reject:malformed_request" | "reject:bad_secret") {
            not_verified.push((vector.name, verdict));
        }
    }
    let not_verified: Vec<_> = not_verified.iter().map(|(name, verdict)| (&**name, &**verdict)).collect();
    assert_eq!(not_verified, NOT_VERIFIED);
}

/// None slips by: a vector that leaves the verdict open has a line, and a line has such a vector.
#[tokio::test]
async fn where_sdks_disagree_we_have_chosen() {
    let open: Vec<Captured> = vectors().into_iter().filter(|vector| vector.policy.is_some()).collect();
    let names: Vec<&str> = open.iter().map(|vector| &*vector.name).collect();
    assert_eq!(names, OUR_CHOICES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (vector, (name, chosen)) in open.iter().zip(OUR_CHOICES) {
        assert_eq!(vector.judge().await.to_string(), *chosen, "{name}");
    }
}

#[tokio::test]
async fn secret_with_white_space_is_named() {
    let vector = vector("node: secret with a trailing space");
    assert_eq!(vector.judge().await.to_string(), "reject:bad_secret");
    assert!(hint(&vector).await.contains("without the white space around it"));

    let unrelated = Captured { secret: "another ".to_owned(), ..valid() };
    assert!(hint(&unrelated).await.contains("begins or ends with white space"));
}

#[tokio::test]
async fn secret_in_quotes_or_without_its_prefix_is_named() {
    let quoted = Captured { secret: "\"whsec_test_secret\"".to_owned(), ..valid() };
    assert!(hint(&quoted).await.contains("without the quotes"));
    let cut = Captured { secret: "test_secret".to_owned(), ..valid() };
    assert!(hint(&cut).await.contains("the prefix belongs to it"));

    let calendly = vector("valid (exactly the Stripe scheme)");
    let prefixed = Captured { secret: format!("whsec_{}", calendly.secret), ..calendly };
    assert!(hint(&prefixed).await.contains("for the part after `whsec_`"));
}

#[tokio::test]
async fn stale_delivery_is_told_by_how_much() {
    let vector = vector("node: 15 s old, tolerance 10, wall clock");
    assert_eq!(vector.judge().await.to_string(), "reject:stale");
    assert!(hint(&vector).await.contains("too old, by 5 s"));
}

#[tokio::test]
async fn missing_tolerance_is_the_schemes_and_null_is_unchecked() {
    let text = r#"{"provider":"calendly","name":"","secret":"x","headers":{},"body":"","now":0}"#;
    let absent: Captured = serde_json::from_str(text).expect("a delivery");
    assert_eq!(absent.tolerance, None);
    let null: Captured = serde_json::from_str(&text.replace("0}", "0,\"tolerance\":null}")).expect("a delivery");
    assert_eq!(null.tolerance, Some(Tolerance::InsecureUnchecked));

    let calendly =
        Captured { tolerance: None, now: Some(1_700_000_181), ..vector("valid (exactly the Stripe scheme)") };
    assert!(hint(&calendly).await.contains("too old, by 1 s"));
}

#[tokio::test]
async fn missing_now_is_the_current_time() {
    let sender = TestSender::new(scheme::stripe("whsec_test_secret").expect("a secret"));
    let signed = sender.deliver("{}").request_as::<Bytes>();
    let signature = signed.headers()["stripe-signature"].to_str().expect("text").to_owned();
    let fresh = Captured {
        headers: [("Stripe-Signature".to_owned(), signature)].into(),
        body: "{}".to_owned(),
        now: None,
        ..valid()
    };
    assert_eq!(fresh.judge().await.to_string(), "accept");
    assert_eq!(Captured { now: None, ..valid() }.judge().await.to_string(), "reject:stale");
}

#[tokio::test]
async fn missing_url_is_asked_for_where_it_is_signed() {
    let square = vectors().into_iter().find(|vector| vector.provider == "square").expect("a vector of Square");
    assert_eq!(square.judge().await.to_string(), "accept");
    assert!(hint(&Captured { url: None, ..square }).await.contains("with `url` or --url"));
}

/// HubSpot sends the signature of every version that it has.
#[tokio::test]
async fn hubspots_third_version_goes_before_the_older_ones() {
    let stale = vector("v3 300.001 s old");
    let now = stale.now.map(|now| now - 1);
    let mut fresh = Captured { now, ..stale };
    assert_eq!(fresh.judge().await.to_string(), "accept");
    for version in ["v1", "v2"] {
        fresh.headers.insert("X-HubSpot-Signature-Version".to_owned(), version.to_owned());
        fresh.headers.insert("X-HubSpot-Signature".to_owned(), "0".repeat(64));
        assert_eq!(fresh.judge().await.to_string(), "accept", "beside {version}");
    }
}

/// The flag stands in for the `url` that a delivery lacks, and for no other.
#[test]
fn url_of_the_command_line_is_for_deliveries_without_one() {
    let square = vectors().into_iter().find(|vector| vector.provider == "square").expect("a vector of Square");
    let url = square.url.clone().expect("its url");
    let bare = json!({
        "provider": "square", "name": "bare", "secret": square.secret, "headers": square.headers, "body": square.body,
    });
    let mut named = bare.clone();
    named["name"] = "named".into();
    named["url"] = "https://elsewhere.example/".into();
    let mut child = Command::new(example("verify"))
        .args(["--url", &url, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the verify example starts");
    write!(child.stdin.take().expect("its standard input"), "{}", json!([bare, named])).expect("a pipe");
    let output = child.wait_with_output().expect("an exit");
    let expected = "square\tbare\taccept\nsquare\tnamed\treject:signature_mismatch\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[tokio::test]
async fn changed_line_breaks_are_named() {
    assert!(hint(&vector("LF turned into CRLF")).await.contains("with every CRLF as LF"));
    let longer = Captured { body: valid().body + "\n", ..valid() };
    assert!(hint(&longer).await.contains("without the newline at the end"));
}

#[tokio::test]
async fn json_printed_anew_is_named() {
    let compact = valid().body.replace("\n  ", "").replace("\n", "").replace("\": ", "\":");
    assert!(hint(&Captured { body: compact, ..valid() }).await.contains("as indented JSON"));
}

#[tokio::test]
async fn malformed_header_is_told_how_it_must_read() {
    assert!(hint(&vector("node: header is prose")).await.contains("it must read t={timestamp},v1={hex}"));
    assert!(hint(&vector("no t at all")).await.contains("its timestamp is missing"));
}

#[tokio::test]
async fn unexplained_mismatch_is_left_open() {
    let vector = vector("body changed by one byte");
    assert_eq!(vector.judge().await.to_string(), "reject:signature_mismatch");
    assert!(hint(&vector).await.contains("or the body was altered on its way"));
}

#[tokio::test]
async fn unknown_provider_is_told_the_known_ones() {
    let unknown = Captured { provider: "acme".to_owned(), ..valid() };
    assert_eq!(unknown.judge().await.to_string(), "reject:unknown_scheme");
    assert!(hint(&unknown).await.contains("pagerduty, plaid, resend, sendgrid, sentry"));
}

#[tokio::test]
async fn invalid_request_is_rejected() {
    let mut broken = valid();
    broken.headers.insert("not a name".to_owned(), String::new());
    assert_eq!(broken.judge().await.to_string(), "reject:malformed_request");
}
