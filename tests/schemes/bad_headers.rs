//! Headers of the proof that are missing, empty, repeated or too long.

use axum::http::Request;
use tower_webhook::rejection::RejectionKind::{MalformedSignature, MissingSignature, RepeatedSignature};

use crate::schemes::endpoint::{Endpoint, add, header, request, set, unsigned};
use crate::schemes::preset::{PRESETS, Preset};

/// Asserts that it is refused as unsigned.
async fn refused_as_unsigned(preset: &Preset, sent: Request<axum::body::Bytes>, what: &str) {
    let (unsigned, _) = preset.statuses;
    let answer = Endpoint::new(preset.scheme()).refused(sent, unsigned, what).await;
    assert_eq!(answer.rejection(), Some(MissingSignature), "{what}");
    assert!(answer.body.is_empty(), "{what}: {:?}", answer.body);
}

#[tokio::test]
async fn delivery_without_any_proof_is_refused() {
    for preset in PRESETS {
        refused_as_unsigned(preset, unsigned(preset), preset.name).await;
    }
}

#[tokio::test]
async fn each_header_of_the_proof_is_demanded() {
    let mut tried = 0;
    for preset in PRESETS {
        for name in preset.proof_headers() {
            let what = format!("{} without {name}", preset.name);
            let mut sent = request(preset);
            sent.headers_mut().remove(name).expect("the kit sends it");
            refused_as_unsigned(preset, sent, &what).await;
            tried += 1;
        }
    }
    assert!(tried > PRESETS.len(), "most have one, and some have three");
}

#[tokio::test]
async fn empty_header_of_the_proof_is_a_missing_one() {
    for preset in PRESETS {
        for name in preset.proof_headers() {
            let mut sent = request(preset);
            set(&mut sent, name, "");
            refused_as_unsigned(preset, sent, &format!("{} with an empty {name}", preset.name)).await;
        }
    }
}

/// Two servers on the way may each take another one of them.
#[tokio::test]
async fn repeated_header_of_the_proof_is_refused_even_if_both_are_equal() {
    for preset in PRESETS {
        for name in preset.proof_headers() {
            let genuine = header(&request(preset), name).to_owned();
            for (first, second) in [(&*genuine, &*genuine), (&genuine, "0"), ("0", &genuine), (&genuine, "")] {
                let what = format!("{} with {name} {first:?} and {second:?}", preset.name);
                let mut sent = request(preset);
                set(&mut sent, name, first);
                add(&mut sent, name, second);
                let kind = Endpoint::new(preset.scheme()).refuses(sent, preset.statuses.1, &what).await;
                assert_eq!(kind, RepeatedSignature, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn header_of_the_proof_that_has_no_end_is_refused() {
    for preset in PRESETS {
        for name in preset.proof_headers() {
            let what = format!("{} with a long {name}", preset.name);
            let mut sent = request(preset);
            let long = header(&sent, name).repeat(100);
            set(&mut sent, name, format!("{long}{}", "0".repeat(4097)));
            let kind = Endpoint::new(preset.scheme()).refuses(sent, preset.statuses.1, &what).await;
            assert_eq!(kind, MalformedSignature, "{what}");
        }
    }
}

/// A family of headers that is looked at first is not made up for by the second.
#[tokio::test]
async fn missing_half_of_a_family_is_not_taken_from_the_other() {
    for name in ["svix", "clerk", "resend"] {
        let preset = Preset::named(name);
        for moved in ["svix-id", "svix-timestamp"] {
            let mut sent = request(&preset);
            let value = sent.headers_mut().remove(moved).expect("the kit sends it");
            set(&mut sent, &moved.replace("svix", "webhook"), value);
            refused_as_unsigned(&preset, sent, &format!("{name}: {moved} under its other name")).await;
        }
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused_and_never_panic() {
    for preset in PRESETS {
        for name in preset.proof_headers() {
            let genuine = header(&request(preset), name).to_owned();
            for at in [0, genuine.len() / 2, genuine.len() - 1] {
                let mut bytes = genuine.clone().into_bytes();
                bytes[at] = 0xe9;
                let mut sent = request(preset);
                set(&mut sent, name, bytes);
                let what = format!("{} with 0xe9 at {at} of {name}", preset.name);
                Endpoint::new(preset.scheme()).refuses(sent, preset.statuses.1, &what).await;
            }
        }
    }
}
