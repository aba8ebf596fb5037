//! Schemes that a user describes: what is read out of a description, and what is refused when it is built.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::Request;
use tower_webhook::ConfigErrorKind;
use tower_webhook::identity::{IdSource, TypeSource};
use tower_webhook::rejection::RejectionKind::{MalformedSignature, MissingSignature, SignatureMismatch, Stale};
use tower_webhook::scheme::{Algorithm, Encoding, Template, TemplateBuilder};
use tower_webhook::testing::{ManualClock, TestSender};

use crate::schemes::endpoint::{Endpoint, header, set};
use crate::schemes::preset::SECRET;
use crate::schemes::signing::hmac_sha256;
use crate::support::NOW;

const BODY: &str = r#"{"id":"evt_1","type":"thing.done"}"#;

fn builder() -> TemplateBuilder {
    Template::builder("acme").signature("x-acme-signature", "v1={hex}")
}

fn error(builder: TemplateBuilder, what: &str) -> String {
    let error = builder.build(SECRET).err().unwrap_or_else(|| panic!("{what} was built"));
    assert!(matches!(error.kind(), ConfigErrorKind::Scheme | ConfigErrorKind::Name), "{what}: {error}");
    assert!(!error.to_string().contains(SECRET));
    error.to_string()
}

fn delivered(scheme: Template) -> Request<Bytes> {
    TestSender::new(scheme).clock(ManualClock::at_unix(NOW)).deliver(BODY).request_as()
}

#[test]
fn form_that_cannot_be_read_does_not_build() {
    for form in [
        "",
        "hex",
        "{hex",
        "hex}",
        "{}",
        "{Hex}",
        "{md5}",
        "{signature}",
        "{timestamp}",
        "t={timestamp}",
        "{hex}{base64}",
        "v1={hex} and more",
        "v1={hex},",
        "v1={hex},,v0={hex}",
        "t={timestamp},{hex}",
        "…",
        ",…",
        "v1,…",
    ] {
        let told = error(Template::builder("acme").signature("x-acme-signature", form), form);
        assert!(told.contains("is not a signature format") && told.contains("sha256={hex}"), "{form}: {told}");
    }
    error(Template::builder("acme"), "no signature at all");
}

#[test]
fn signed_text_that_cannot_be_read_does_not_build() {
    for text in
        ["{body", "body}", "{Body}", "{}", "{{body}}", "{body}{body}", "{payload}", "}{body}", "{timestamp.body}"]
    {
        let told = error(builder().timestamp("x-acme-timestamp").signed(text), text);
        assert!(told.contains("is not a valid signed text") && told.contains("{timestamp}"), "{text}: {told}");
    }
}

#[test]
fn what_is_signed_must_come_from_somewhere() {
    for (text, place) in [("{timestamp}.{body}", "{timestamp}"), ("{id}.{body}", "{id}"), ("{url}{body}", "{url}")] {
        let told = error(builder().signed(text), text);
        assert!(told.contains(place) && told.contains("say where it comes from"), "{text}: {told}");
    }
    // In every one of the families.
    let second = builder().timestamp("x-acme-timestamp").or_signature("acme-signature").signed("{timestamp}{body}");
    assert!(error(second, "a family without a timestamp").contains("{timestamp}"));
    let second = builder().id("x-acme-id").or_signature("acme-signature").signed("{id}{body}");
    assert!(error(second, "a family without an id").contains("{id}"));
    for url in ["", "/in", "example.com"] {
        error(builder().url(url), url);
    }
}

#[test]
fn invalid_names_do_not_build() {
    for name in ["", "not a name", "x:y", "é"] {
        error(Template::builder("acme").signature(name, "{hex}"), name);
        error(builder().timestamp(name), name);
        error(builder().id(name), name);
        error(builder().or_signature(name), name);
        assert!(builder().build(SECRET).expect("a scheme").header(name).is_err(), "{name}");
    }
    for path in ["", ".", "a..b", "a.b.c.d.e.f.g.h.i"] {
        error(builder().body_timestamp(path), path);
    }
    error(builder().or_version("v2", Algorithm::HmacSha1), "another version where there is no list");
}

/// Nobody signed it: whoever replays a delivery writes a fresh one.
// Otherwise: it is built, the unsigned timestamp is checked, and told as `signed_at`.
#[test]
fn timestamp_that_is_not_signed_does_not_build() {
    error(builder().timestamp("x-acme-timestamp").signed("{body}"), "a timestamp beside what is signed");
    error(Template::builder("acme").signature("x-acme-signature", "t={timestamp},v1={hex}"), "one in the list");
}

/// `IdSource::signed` is only for schemes that sign one, and here the scheme can tell.
// Otherwise: it is built, and `id_is_authenticated` says yes of a header that nobody signed.
#[test]
fn id_that_is_not_signed_is_no_signed_id() {
    error(builder().id("x-acme-id").id_source(IdSource::signed()), "an id beside what is signed");
}

/// One list, one encoding: which of them would be meant?
// Otherwise: the last one is taken for all, so that no `v1` can ever match.
#[test]
fn list_of_two_encodings_does_not_build() {
    error(Template::builder("acme").signature("x-acme-signature", "v1={hex},v2={base64}"), "hex and base64");
    error(
        Template::builder("acme").signature("x-acme-signature", "t:{timestamp},v1={hex}").signed("{timestamp}{body}"),
        "two ways to write a pair",
    );
}

#[tokio::test]
async fn description_is_what_is_read() {
    let templates = [
        builder(),
        builder().signed("{body}"),
        builder().timestamp("x-acme-timestamp").signed("{timestamp}{body}"),
        builder().timestamp("x-acme-timestamp").in_millis().signed("{body}|{timestamp}"),
        builder().id("x-acme-id").timestamp("x-acme-timestamp").signed("{id}\n{timestamp}\n{body}"),
        builder().url("https://a.example").signed("{method} {url}\n{body}"),
        builder().algorithm(Algorithm::HmacSha1),
        builder().algorithm(Algorithm::KeyedSha256),
        builder().secret_encoding(Encoding::Base64),
        builder().secret_encoding(Encoding::Hex),
        Template::builder("acme")
            .signature("x-acme-signature", "a={base64};b={timestamp};…")
            .signed("{timestamp}{body}"),
        Template::builder("acme").signature("x-acme-signature", "{base64}"),
        Template::builder("acme").signature("x-acme-signature", "Signature: {hex}"),
        Template::builder("acme").signature("x-acme-signature", "t:{timestamp}|s:{hex}").signed("{timestamp}{body}"),
    ];
    for (number, template) in templates.into_iter().enumerate() {
        let scheme = template.build(SECRET).unwrap_or_else(|error| panic!("{number}: {error}"));
        let (endpoint, sent) = (Endpoint::new(scheme.clone()), delivered(scheme));
        endpoint.accepts(sent.clone(), &format!("template {number}")).await;
        let mut changed = sent;
        *changed.body_mut() = Bytes::from_static(br#"{"id":"evt_2"}"#);
        assert_eq!(endpoint.refuses(changed, 401, &format!("template {number}")).await, SignatureMismatch);
    }
}

#[tokio::test]
async fn literals_around_the_body_are_signed() {
    let scheme = builder().signed("begin:{body}:end").build(SECRET).expect("a scheme");
    let with = |text: String| {
        let mut request = Request::post("/").body(Bytes::from_static(BODY.as_bytes())).expect("a request");
        let tag = hex::encode(hmac_sha256(SECRET.as_bytes(), text.as_bytes()));
        set(&mut request, "x-acme-signature", format!("v1={tag}"));
        request
    };
    Endpoint::new(scheme.clone()).accepts(with(format!("begin:{BODY}:end")), "all of it").await;
    for text in [BODY.to_owned(), format!("begin:{BODY}"), format!("{BODY}:end"), format!("begin:{BODY}:END")] {
        Endpoint::new(scheme.clone()).refuses(with(text.clone()), 401, &text).await;
    }
}

#[tokio::test]
async fn list_may_have_two_versions_of_two_algorithms() {
    let scheme = |secrets: &[&str]| {
        Template::builder("acme")
            .signature("x-acme-signature", "v1={hex},…")
            .or_version("legacy", Algorithm::HmacSha1)
            .key(|text| {
                let algorithm = if text.starts_with("old") { Algorithm::HmacSha1 } else { Algorithm::HmacSha256 };
                tower_webhook::secrets::Key::new(algorithm, text.as_bytes())
            })
            .build(secrets.to_vec())
            .expect("a scheme")
    };
    let both = delivered(scheme(&["new", "old"]));
    assert!(header(&both, "x-acme-signature").contains(",legacy="), "signed with both");
    Endpoint::new(scheme(&["new"])).accepts(both.clone(), "by the new").await;
    Endpoint::new(scheme(&["old"])).accepts(both.clone(), "by the old").await;
    let swapped = header(&both, "x-acme-signature").replace("v1=", "x=").replace("legacy=", "v1=");
    let mut downgraded = both;
    set(&mut downgraded, "x-acme-signature", swapped);
    assert_eq!(Endpoint::new(scheme(&["old"])).refuses(downgraded, 401, "SHA-1 as v1").await, MalformedSignature);
}

#[tokio::test]
async fn header_can_be_renamed_and_takes_its_place() {
    let scheme = tower_webhook::scheme::shopify(SECRET).unwrap().header("x-acme-signature").unwrap();
    let sent = delivered(scheme.clone());
    Endpoint::new(scheme.clone()).accepts(sent.clone(), "the new name").await;
    let mut old = sent;
    let value = old.headers_mut().remove("x-acme-signature").expect("a signature");
    set(&mut old, "shopify-hmac-sha256", &value);
    set(&mut old, "x-shopify-hmac-sha256", value);
    assert_eq!(Endpoint::new(scheme).refuses(old, 401, "the old names").await, MissingSignature);
}

#[tokio::test]
async fn facts_of_the_sender_reach_the_event() {
    let scheme = builder()
        .timestamp("x-acme-timestamp")
        .signed("{timestamp}.{body}")
        .tolerance(Duration::ZERO)
        .id_source(IdSource::json("type").unwrap())
        .type_source(TypeSource::json("id").unwrap())
        .build(SECRET)
        .expect("a scheme");
    let endpoint = Endpoint::new(scheme.clone());
    let event = endpoint.accepts(delivered(scheme.clone()), "this very second").await;
    assert_eq!((event.id(), event.event_type()), ("thing.done", Some("evt_1")));
    endpoint.clock.advance(Duration::from_secs(1));
    assert_eq!(endpoint.refuses(delivered(scheme), 401, "a second later").await, Stale);
}

/// A path of several keys, as ids have.
// Otherwise: the testing kit writes one key with dots in it, which is not where the time is read.
#[tokio::test]
async fn timestamp_deep_in_the_body_can_be_sent() {
    let scheme = builder().body_timestamp("meta.sent_at").build(SECRET).expect("a scheme");
    Endpoint::new(scheme.clone()).accepts(delivered(scheme), "written by the kit").await;
}

/// Where the id ends must be signed, or it could take up what follows it: another id, and a shorter body.
#[test]
fn signed_id_stands_before_a_timestamp_between_two_equal_literals() {
    let described = |text: &str| builder().id("x-acme-id").timestamp("x-acme-timestamp").signed(text).build(SECRET);
    for text in ["{id}.{timestamp}.{body}", "v1:{id}:{timestamp}:{body}", "{id}\n{timestamp}\n{body}"] {
        assert!(described(text).is_ok(), "{text}");
    }
    for text in [
        "{timestamp}.{id}.{body}",
        "{id}{timestamp}{body}",
        "{id}.{timestamp}{body}",
        "{id}.{timestamp}:{body}",
        "{body}.{id}.{timestamp}",
    ] {
        assert!(described(text).expect_err(text).to_string().contains("split elsewhere"), "{text}");
    }
}

#[test]
fn headers_come_after_the_signature_that_they_belong_to() {
    let early = Template::builder("acme").timestamp("x-acme-timestamp").signature("x-acme-signature", "{hex}");
    assert!(error(early.signed("{timestamp}.{body}"), "early").contains("after the signature that they belong to"));
    let twice = builder().body_timestamp("at").timestamp("x-acme-timestamp").signed("{timestamp}.{body}");
    assert!(error(twice, "two timestamps").contains("drop one"));
    let token = Template::builder("acme").signature("x-acme-token", "{token}").algorithm(Algorithm::Token);
    assert!(error(token, "a token over the body").contains("a token signs nothing"));
}
