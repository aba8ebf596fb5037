//! Timestamps that are signed rightly, and still are none, or are not of now.

use axum::body::Bytes;
use axum::http::Request;
use tower_webhook::rejection::RejectionKind::{self, Early, MalformedSignature, Stale};

use crate::schemes::endpoint::{Endpoint, delivery_at};
use crate::schemes::preset::{PRESETS, Preset};
use crate::schemes::signing::ByHand;
use crate::support::NOW;

fn timestamped() -> impl Iterator<Item = (&'static Preset, u64)> {
    PRESETS.iter().filter_map(|preset| Some((preset, preset.tolerance?)))
}

fn signed_at(preset: &Preset, unix: u64) -> Request<Bytes> {
    delivery_at(preset, unix).request_as()
}

#[tokio::test]
async fn timestamp_at_the_edge_of_the_tolerance_is_accepted() {
    for (preset, tolerance) in timestamped() {
        for unix in [NOW - tolerance, NOW - 1, NOW, NOW + 1, NOW + tolerance] {
            let what = format!("{} at {unix}", preset.name);
            Endpoint::new(preset.scheme()).accepts(signed_at(preset, unix), &what).await;
        }
    }
}

#[tokio::test]
async fn timestamp_a_second_beyond_the_tolerance_is_refused() {
    for (preset, tolerance) in timestamped() {
        for (unix, kind) in [(NOW - tolerance - 1, Stale), (NOW + tolerance + 1, Early), (1, Stale), (NOW * 2, Early)] {
            let what = format!("{} at {unix}", preset.name);
            let refusal = Endpoint::new(preset.scheme()).refuses(signed_at(preset, unix), 401, &what).await;
            assert_eq!(refusal, kind, "{what}");
        }
    }
}

/// A captured delivery grows old, whatever was accepted before.
#[tokio::test]
async fn accepted_delivery_is_refused_once_it_is_stale() {
    for (preset, tolerance) in timestamped() {
        let endpoint = Endpoint::new(preset.scheme());
        let sent = signed_at(preset, NOW);
        endpoint.accepts(sent.clone(), preset.name).await;
        endpoint.clock.advance(std::time::Duration::from_secs(tolerance + 1));
        assert_eq!(endpoint.refuses(sent, 401, preset.name).await, Stale, "{}", preset.name);
    }
}

/// Zoom does not say that it signs its retries anew: its docs here say what to do if it does not.
#[tokio::test]
async fn zooms_retry_with_its_first_signature_needs_a_wider_tolerance() {
    let two_hours = std::time::Duration::from_secs(2 * 3600);
    let wider = tower_webhook::scheme::zoom(crate::schemes::preset::SECRET).expect("a secret").tolerance(two_hours);
    let (preset, last_retry) = (Preset::named("zoom"), NOW - 85 * 60);
    assert_eq!(Endpoint::preset("zoom").refuses(signed_at(&preset, last_retry), 401, "five minutes").await, Stale);
    Endpoint::new(wider).accepts(signed_at(&preset, last_retry), "two hours").await;
}

/// Signed by hand over the very text, so that nothing but the text is wrong.
#[tokio::test]
async fn timestamp_has_one_spelling() {
    for (preset, _) in timestamped() {
        let Some(own) = ByHand::of(preset) else { continue };
        if preset.name == "linear" {
            continue; // In the body: see below.
        }
        let right = own.timestamp.clone();
        Endpoint::new(preset.scheme()).accepts(own.request(), preset.name).await;
        for text in [
            "abc".to_owned(),
            "0".repeat(20),
            format!("+{right}"),
            format!("-{right}"),
            format!("0{right}"),
            format!(" {right}"),
            format!("{right} "),
            format!("{right}.0"),
            format!("{right}e0"),
            format!("{right}."),
            format!("0x{right}"),
            format!("{right},{right}"),
            "9".repeat(30),
            i64::MAX.to_string(),
            "\"1700000000\"".to_owned(),
            "-1".to_owned(),
        ] {
            let what = format!("{} with {text:?}", preset.name);
            let signed = ByHand { timestamp: text, ..own.clone() };
            let kind = Endpoint::new(preset.scheme()).refuses(signed.request(), 401, &what).await;
            assert_eq!(kind, MalformedSignature, "{what}");
        }
    }
}

#[tokio::test]
async fn timestamp_in_the_other_unit_is_refused() {
    for (preset, _) in timestamped() {
        let Some(own) = ByHand::of(preset) else { continue };
        let (text, kind): (String, RejectionKind) = match preset.in_millis {
            true => (NOW.to_string(), Stale),
            false => (format!("{NOW}000"), MalformedSignature),
        };
        let body = own.body.clone();
        let body = match preset.name {
            "linear" => String::from_utf8(body).expect("text").replace(&own.timestamp, &text).into_bytes(),
            _ => body,
        };
        let signed = ByHand { timestamp: text, body, ..own };
        assert_eq!(Endpoint::new(preset.scheme()).refuses(signed.request(), 401, preset.name).await, kind);
    }
}

#[tokio::test]
async fn linears_timestamp_is_a_number_of_the_body_and_there_once() {
    let own = ByHand::of(&Preset::named("linear")).expect("signed by hand");
    let with = |body: &str| ByHand { body: body.as_bytes().to_vec(), ..own.clone() }.request();
    let accepted = [r#"{"webhookTimestamp":1700000000000}"#, r#"{"webhookTimestamp":"1700000000000","type":"Issue"}"#];
    for body in accepted {
        Endpoint::preset("linear").accepts(with(body), body).await;
    }
    for body in [
        r#"{"type":"Issue"}"#,
        r#"{"webhookTimestamp":null}"#,
        r#"{"webhookTimestamp":1.7e12}"#,
        r#"{"webhookTimestamp":1700000000000.0}"#,
        r#"{"webhookTimestamp":-1700000000000}"#,
        r#"{"webhookTimestamp":"0001700000000000"}"#,
        r#"{"webhookTimestamp":[1700000000000]}"#,
        r#"{"data":{"webhookTimestamp":1700000000000}}"#,
        r#"{"webhookTimestamp":1,"webhookTimestamp":1700000000000}"#,
        r#"{"webhookTimestamp":1700000000000,"webhookTimest\u0061mp":1700000000000}"#,
        r#"{"webhookTimestamp":1700000000000} "x""#,
        "",
        "[1700000000000]",
        "webhookTimestamp=1700000000000",
    ] {
        assert!(matches!(Endpoint::preset("linear").refuses(with(body), 401, body).await, MalformedSignature | Stale));
    }
}

/// It says the same as the body, or something else: it is not signed.
#[tokio::test]
async fn linears_unsigned_timestamp_header_is_ignored() {
    let preset = Preset::named("linear");
    for (unix, accepted) in [(NOW, true), (NOW - 61, false)] {
        let mut sent = signed_at(&preset, unix);
        crate::schemes::endpoint::set(&mut sent, "linear-timestamp", format!("{NOW}000"));
        match accepted {
            true => drop(Endpoint::preset("linear").accepts(sent, "fresh").await),
            false => drop(Endpoint::preset("linear").refuses(sent, 401, "stale").await),
        }
    }
}
