//! Why a delivery does not verify, as `scheme::diagnose` finds it out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::Request;
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use tower_webhook::rejection::{Rejection, RejectionKind};
use tower_webhook::scheme::{
    self, Algorithm, Diagnosis, Finding, Head, Scheme, SecretSlip, Suspect, Suspects, UrlPart,
};
use tower_webhook::secrets::{Key, Secret, Secrets, TenantSecrets};
use tower_webhook::testing::{ManualClock, TestSender};

use crate::schemes::endpoint::{delivery, delivery_at, set};
use crate::schemes::preset::{P256_PRIVATE, P256_PUBLIC, PRESETS, Preset, SECRET, named};
use crate::schemes::signing::{ByHand, spell};
use crate::support::NOW;

/// Being hex, base64 and text, it is a secret of nearly every scheme.
const OTHER: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
const OTHER_ED25519: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const OTHER_P256: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqTxd43gyp8IOEto2LdIfjRQrIbsd4SXZkLW6jDutdhXSJCWHw8REntlo7aNDthvj+y7GjUuFDb/R1NGe1OPzpA==";
const OTHER_TOKEN: &str = "whsec_//////////////////////////////////////////8=";

fn other_secret(preset: &Preset) -> &'static str {
    match preset.algorithm {
        Algorithm::Ed25519 => OTHER_ED25519,
        Algorithm::EcdsaP256 => OTHER_P256,
        _ if preset.name == "gitlab-signed" => OTHER_TOKEN,
        _ => OTHER,
    }
}

fn at(unix: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(unix)
}

async fn diagnose(scheme: &impl Scheme, request: Request<Bytes>, suspects: impl Into<Suspects>) -> Diagnosis {
    let (parts, body) = request.into_parts();
    scheme::diagnose(scheme, &Head::new(&parts, at(NOW)), &body, suspects).await
}

/// A delivery of the default scheme that was signed with `signed` for its body and arrives with another one.
fn arrives(signed: &str, arrived: &str) -> Request<Bytes> {
    let sender = TestSender::new(scheme::timestamped(SECRET).expect("a secret")).clock(ManualClock::at_unix(NOW));
    sender.deliver(signed.to_owned()).request_as::<Bytes>().map(|_| arrived.to_owned().into())
}

async fn why_altered(signed: &str, arrived: &str) -> String {
    let diagnosis =
        diagnose(&scheme::timestamped(SECRET).expect("a secret"), arrives(signed, arrived), Suspects::none()).await;
    assert!(matches!(diagnosis.findings(), [Finding::AlteredBody { .. }]), "{signed:?} {arrived:?}: {diagnosis}");
    diagnosis.to_string()
}

#[tokio::test]
async fn delivery_that_verifies_needs_no_explanation() {
    for preset in PRESETS {
        let diagnosis = diagnose(&preset.scheme(), delivery(preset).request_as(), OTHER).await;
        assert!(diagnosis.verifies() && diagnosis.findings().is_empty(), "{}: {diagnosis}", preset.name);
        assert_eq!(diagnosis.to_string(), "the delivery verifies");
    }
}

#[tokio::test]
async fn every_preset_names_the_suspect_that_signed() {
    for preset in PRESETS {
        let scheme = preset.under(other_secret(preset));
        let suspects = [Suspect::new("another mode"), Suspect::new(preset.secret()).label("the test mode")];
        let request = delivery(preset).request_as();
        let diagnosis = diagnose(&scheme, request.clone(), suspects).await;
        let [Finding::OtherSecret { label, .. }] = diagnosis.findings() else { panic!("{}: {diagnosis}", preset.name) };
        assert_eq!(label.as_deref(), Some("the test mode"), "{}", preset.name);
        assert_eq!(diagnosis.rejection().map(Rejection::kind), Some(RejectionKind::SignatureMismatch));
        let unsuspecting = diagnose(&scheme, request, Suspects::none()).await;
        assert!(unsuspecting.findings().is_empty(), "{}: {unsuspecting}", preset.name);
    }
}

#[tokio::test]
async fn plaids_jwt_is_diagnosed_too() {
    let sender = TestSender::new(named("plaid", P256_PRIVATE)).clock(ManualClock::at_unix(NOW));
    let event = sender.deliver(r#"{"webhook_code":"ERROR"}"#);
    let right = named("plaid", P256_PUBLIC);
    assert!(diagnose(&right, event.request_as(), Suspects::none()).await.verifies());
    let swapped = diagnose(&named("plaid", OTHER_P256), event.request_as(), P256_PUBLIC).await;
    assert!(matches!(swapped.findings(), [Finding::OtherSecret { .. }]), "{swapped}");
    let altered = event.request_as::<Bytes>().map(|_| r#"{"webhook_code": "ERROR"}"#.into());
    let altered = diagnose(&right, altered, Suspects::none()).await;
    assert!(matches!(altered.findings(), [Finding::AlteredBody { .. }]), "{altered}");
}

/// Neither a secret, nor what would be the right signature, nor the body: whatever is found.
#[tokio::test]
async fn diagnosis_holds_nothing_private() {
    for preset in PRESETS {
        let mut right = delivery(preset).request_as::<Bytes>();
        let body = String::from_utf8(right.body().to_vec()).expect("text");
        let signature = preset.header.map(|name| right.headers()[name].to_str().expect("text").to_owned());
        let other = other_secret(preset);
        let suspects = || [format!(" {}", preset.secret()), format!("\"{}\"", preset.secret()), OTHER.to_owned()];
        let by_secret = diagnose(&preset.under(other), right.clone(), suspects()).await;
        *right.body_mut() = format!("{body}\n").into();
        let by_body = diagnose(&preset.scheme(), right, suspects()).await;
        for diagnosis in [by_secret, by_body] {
            let text = format!("{diagnosis} {diagnosis:?} {:?}", Suspects::from(suspects()));
            for private in [Some(preset.secret()), Some(other), Some(&*body), signature.as_deref()] {
                assert!(private.is_none_or(|private| !text.contains(private)), "{}: {text}", preset.name);
            }
        }
    }
}

#[tokio::test]
async fn timestamps_outside_of_the_tolerance_are_told_from_forged_ones() {
    let mut timestamped = 0;
    for preset in PRESETS {
        let Some(tolerance) = preset.tolerance else { continue };
        timestamped += 1;
        let (late, early) = (delivery_at(preset, NOW - tolerance - 100), delivery_at(preset, NOW + tolerance + 100));
        let diagnosis = diagnose(&preset.scheme(), late.request_as(), Suspects::none()).await;
        let [Finding::Late { seconds: 100, genuine: Some(true), .. }] = diagnosis.findings() else {
            panic!("{}: {diagnosis}", preset.name)
        };
        assert!(diagnosis.to_string().contains("too old, by 100 s"), "{diagnosis}");
        let diagnosis = diagnose(&preset.scheme(), early.request_as(), Suspects::none()).await;
        let [Finding::Early { seconds: 100, genuine: Some(true), .. }] = diagnosis.findings() else {
            panic!("{}: {diagnosis}", preset.name)
        };
        let swapped = diagnose(&preset.under(other_secret(preset)), late.request_as(), preset.secret()).await;
        let found = swapped.findings();
        assert!(
            matches!(found, [Finding::Late { genuine: Some(false), .. }, Finding::OtherSecret { .. }]),
            "{}: {swapped}",
            preset.name
        );
    }
    assert!(timestamped > 10);
}

#[tokio::test]
async fn slips_of_a_secret_are_named() {
    for (text, expected) in [
        (format!("{SECRET}\n"), SecretSlip::WhiteSpace),
        (format!("'{SECRET}'"), SecretSlip::Quotes),
        (format!(" \"{SECRET}\" "), SecretSlip::Quotes),
        (format!("whsec_{SECRET}"), SecretSlip::Prefix),
    ] {
        let scheme = scheme::github(OTHER).expect("a secret");
        let diagnosis = diagnose(&scheme, delivery(&Preset::named("github")).request_as(), text.clone()).await;
        let [Finding::MisspeltSecret { slip, label: None, .. }] = diagnosis.findings() else {
            panic!("{text:?}: {diagnosis}")
        };
        assert_eq!(*slip, expected, "{text:?}");
    }
}

/// What the sender takes for its key, and how the receiver's scheme reads the secret.
#[tokio::test]
async fn secret_that_only_one_side_decodes_is_named() {
    let bytes = [7; 32];
    let secret = format!("whsec_{}", spell(scheme::Encoding::Base64, &bytes));
    let by_hand = |name: &str, key: &[u8]| {
        ByHand { key: key.to_vec(), ..ByHand::of(&Preset::named(name)).expect("signed by hand") }.request()
    };
    let bare = &secret["whsec_".len()..];
    for (name, key, expected) in [
        ("standard-webhooks", secret.as_bytes(), SecretSlip::TextIsKey),
        ("standard-webhooks", bare.as_bytes(), SecretSlip::TextIsKey),
        ("stripe", &bytes, SecretSlip::Base64),
        ("stripe", bare.as_bytes(), SecretSlip::Prefix),
    ] {
        let diagnosis = diagnose(&named(name, &secret), by_hand(name, key), &*secret).await;
        let [Finding::MisspeltSecret { slip, .. }] = diagnosis.findings() else { panic!("{name}: {diagnosis}") };
        assert_eq!(*slip, expected, "{name}");
    }
    let hex = spell(scheme::Encoding::Hex, &bytes);
    let diagnosis = diagnose(&named("github", &hex), by_hand("github", &bytes), &*hex).await;
    assert!(matches!(diagnosis.findings(), [Finding::MisspeltSecret { slip: SecretSlip::Hex, .. }]), "{diagnosis}");
}

#[tokio::test]
async fn expired_secret_is_named() {
    let old = Secret::new(SECRET).expect("a secret").label("2025").expires_at(at(NOW - 1));
    let scheme = scheme::github([old.clone(), Secret::new(OTHER).expect("a secret")]).expect("secrets");
    let request = || delivery(&Preset::named("github")).request_as();
    let diagnosis = diagnose(&scheme, request(), Suspects::none()).await;
    let [Finding::ExpiredSecret { label, .. }] = diagnosis.findings() else { panic!("{diagnosis}") };
    assert_eq!(&**label, "2025");
    // None is left.
    let diagnosis = diagnose(&scheme::github(old).expect("a secret"), request(), Suspects::none()).await;
    assert_eq!(diagnosis.rejection().map(Rejection::kind), Some(RejectionKind::NoActiveSecret));
    assert!(matches!(diagnosis.findings(), [Finding::ExpiredSecret { .. }]), "{diagnosis}");
}

#[tokio::test]
async fn tenant_that_is_unknown_or_has_another_secret_is_diagnosed() {
    let tenants = TenantSecrets::new(
        |head| head.uri().path().strip_prefix("/webhooks/").map(str::to_owned),
        |tenant| async move { Ok((tenant == "acme").then(|| Secret::new(OTHER)).transpose()?.map(|secret| vec![secret])) },
    );
    let scheme = scheme::timestamped(tenants).expect("a scheme");
    for (path, kind) in
        [("/webhooks/acme", RejectionKind::SignatureMismatch), ("/webhooks/nobody", RejectionKind::UnknownTenant)]
    {
        let mut request = arrives("{}", "{}");
        *request.uri_mut() = path.parse().expect("a path");
        let diagnosis = diagnose(&scheme, request, SECRET).await;
        assert_eq!(diagnosis.rejection().map(Rejection::kind), Some(kind));
        assert!(matches!(diagnosis.findings(), [Finding::OtherSecret { .. }]), "{path}: {diagnosis}");
    }
}

#[tokio::test]
async fn closure_is_diagnosed_as_any_other_scheme() {
    let secrets = |text: &str| Secrets::new(text, |text| Key::hmac_sha256(text.as_bytes())).expect("a secret");
    let scheme = scheme::Custom::by_head("acme", secrets(OTHER), |head| {
        let mut proof = scheme::Proof::new().prefix(head.uri().path().as_bytes());
        proof.add(Algorithm::HmacSha256, scheme::Encoding::Hex, head.proof_header("x-acme-proof")?);
        Ok(proof)
    });
    let signed = |path: &str, body: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("a key");
        mac.update(path.as_bytes());
        mac.update(body.as_bytes());
        let proof = hex::encode(mac.finalize().into_bytes());
        Request::post("/hook").header("x-acme-proof", proof).body(Bytes::from(r#"{"a":1}"#)).expect("a request")
    };
    let diagnosis = diagnose(&scheme, signed("/hook", r#"{"a":1}"#), SECRET).await;
    assert!(matches!(diagnosis.findings(), [Finding::OtherSecret { .. }]), "{diagnosis}");
    // Two accidents at once: a swapped secret, and a body that was printed anew.
    let diagnosis = diagnose(&scheme, signed("/hook", "{\n  \"a\": 1\n}"), SECRET).await;
    let found = diagnosis.findings();
    assert!(matches!(found, [Finding::OtherSecret { .. }, Finding::AlteredBody { .. }]), "{diagnosis}");
    // The path of the request is all that such a scheme can be asked about.
    let signs_url = scheme::Profile::default();
    let signs_url = scheme.clone().with_profile({
        let mut profile = signs_url;
        profile.signs_url = true;
        profile
    });
    let mut request = signed("/api/hook", r#"{"a":1}"#);
    set(&mut request, "x-forwarded-prefix", "/api");
    let diagnosis = diagnose(&signs_url, request, SECRET).await;
    let [Finding::OtherSecret { .. }, Finding::OtherUrl { url, .. }] = diagnosis.findings() else {
        panic!("{diagnosis}")
    };
    assert_eq!(&**url, "/api/hook");
}

#[tokio::test]
async fn what_happened_to_the_body_is_named() {
    let compact = r#"{"b":"é/<\"","a":[1.0,{}]}"#;
    for (signed, arrived, words) in [
        ("a\nb", "a\r\nb", "with every CRLF as LF"),
        ("a\r\nb", "a\nb", "with every LF as CRLF"),
        ("{}", "{}\n", "without the newline at the end"),
        ("{}\n", "{}", "with a newline at the end"),
        (compact, "eyJiIjoiw6kvPFwiIiwiYSI6WzEuMCx7fV19", "for the body decoded from base64"),
        (compact, "{\n  \"b\": \"é/<\\\"\", \"a\": [1.0, { }] }", "as compact JSON:"),
        ("{\"b\": \"é/<\\\"\", \"a\": [1.0, {}]}", compact, "as JSON with a space after commas and colons:"),
        ("{\n  \"b\": \"é/<\\\"\",\n  \"a\": [\n    1.0,\n    {}\n  ]\n}", compact, "as indented JSON:"),
        (
            "{\n    \"b\": \"é/<\\\"\",\n    \"a\": [\n        1.0,\n        {}\n    ]\n}",
            compact,
            "as JSON indented by 4 spaces:",
        ),
        (r#"{"b":"\u00e9/<\"","a":[1.0,{}]}"#, compact, "as compact JSON, with all but ASCII escaped:"),
        (r#"{"b":"\u00e9\/<\"","a":[1.0,{}]}"#, compact, "as compact JSON, with slashes and all but ASCII escaped:"),
        (r#"{"b":"é\/<\"","a":[1.0,{}]}"#, compact, "as compact JSON, with slashes escaped:"),
        (r#"{"b":"é/\u003c\"","a":[1.0,{}]}"#, compact, "as compact JSON, with <, > and & escaped:"),
        (compact, r#"{"b":"\u00E9\/\u003c\"","a":[1.0,{}]}"#, "as compact JSON, with no needless escapes:"),
        (r#"{"a":[1.0,{}],"b":"é/<\""}"#, compact, "as compact JSON, with its keys in alphabetical order:"),
    ] {
        let why = why_altered(signed, arrived).await;
        assert!(why.contains(words), "{words:?} in {why:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_found_out_is_suspected_or_left_open() {
    let scheme = scheme::timestamped(SECRET).expect("a secret");
    let diagnosis = diagnose(&scheme, arrives("one", "other"), Suspects::none()).await;
    assert!(diagnosis.findings().is_empty());
    assert!(diagnosis.to_string().ends_with("no usual accident explains it"), "{diagnosis}");
    let diagnosis = diagnose(&scheme, arrives("{}", ""), Suspects::none()).await;
    assert_eq!(diagnosis.findings(), [Finding::EmptyBody]);
    let text = diagnosis.to_string();
    assert!(text.starts_with("no signature matches") && text.contains("; the body is empty"), "{text}");
    let (signed, sorted) = (r#"{"f":6,"e":5,"d":4,"c":3,"b":2,"a":1}"#, r#"{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}"#);
    assert_eq!(diagnose(&scheme, arrives(signed, sorted), Suspects::none()).await.findings(), [Finding::SortedKeys]);
    // What says itself what is wrong needs no search.
    let mut request = arrives("{}", "{}");
    set(&mut request, "webhook-signature", "prose");
    let diagnosis = diagnose(&scheme, request, Suspects::none()).await;
    assert_eq!(Some(diagnosis.to_string()), diagnosis.rejection().map(ToString::to_string));
}

#[tokio::test]
async fn url_that_a_proxy_changed_is_named() {
    use UrlPart::{Host, Path, Port, Query, Scheme as UrlScheme};
    for name in ["square", "hubspot", "hubspot-v2", "twilio", "twilio-shared-key"] {
        for (signed, configured, uri, header, parts) in [
            ("https://a.example/in", "http://a.example/in", "/in", ("x-none", ""), &[UrlScheme][..]),
            ("https://a.example/in", "https://a.example/in/", "/in", ("x-none", ""), &[Path]),
            ("https://a.example/api/in", "https://a.example", "/in", ("x-forwarded-prefix", "/api"), &[Path]),
            (
                "https://a.example/in",
                "https://10.0.0.1:8080/in",
                "/in",
                ("x-forwarded-host", "a.example"),
                &[Host, Port],
            ),
            ("https://a.example/in", "http://inner/in", "/in", ("host", "a.example"), &[UrlScheme, Host]),
            ("https://a.example:8443/in", "https://a.example/in", "/in", ("host", "a.example:8443"), &[Port]),
            ("https://a.example/in?k=1", "https://a.example/in?k=2", "/in?k=1", ("x-none", ""), &[Query]),
        ] {
            let scheme: std::sync::Arc<dyn Scheme> = match name {
                "square" => std::sync::Arc::new(scheme::square(SECRET, configured).expect("a scheme")),
                "hubspot" => std::sync::Arc::new(scheme::hubspot(SECRET, configured).expect("a scheme")),
                "hubspot-v2" => std::sync::Arc::new(scheme::hubspot_v2(SECRET, configured).expect("a scheme")),
                "twilio" => std::sync::Arc::new(scheme::twilio(SECRET, configured).expect("a scheme")),
                _ => std::sync::Arc::new(scheme::twilio_shared_key(SECRET, configured).expect("a scheme")),
            };
            let by_hand = ByHand::of(&Preset::named(name)).expect("signed by hand");
            let mut request = ByHand { url: signed.to_owned(), ..by_hand }.request();
            *request.uri_mut() = uri.parse().expect("a path");
            set(&mut request, header.0, header.1);
            let diagnosis = diagnose(&scheme, request, Suspects::none()).await;
            let [Finding::OtherUrl { url, differs, .. }] = diagnosis.findings() else {
                panic!("{name}: {signed} at {configured}: {diagnosis}")
            };
            assert_eq!((&**url, &**differs), (signed.split('?').next().expect("a url"), parts), "{name}: {configured}");
        }
    }
}
