//! Signatures that are nearly right: a character off, spelled otherwise, of another algorithm, of another message.

use axum::body::Bytes;
use axum::http::Request;
use tower_webhook::scheme::{Algorithm, Encoding};

use crate::schemes::endpoint::{Endpoint, header, request, set};
use crate::schemes::preset::{PRESETS, Preset};
use crate::schemes::signing::{ByHand, spell, unspell};

/// Presets whose signature is in a header.
fn in_headers() -> impl Iterator<Item = (&'static Preset, &'static str)> {
    PRESETS.iter().filter_map(|preset| Some((preset, preset.header?)))
}

/// The genuine signature's text.
fn signature_of(preset: &Preset, sent: &Request<Bytes>) -> String {
    let value = header(sent, preset.header.expect("a header"));
    let (_, signature) =
        value.rsplit_once(preset.marker()).filter(|_| !preset.marker().is_empty()).unwrap_or(("", value));
    signature.to_owned()
}

/// The genuine delivery with another text in the signature's place.
fn with_signature(preset: &Preset, change: impl FnOnce(&str) -> String) -> Request<Bytes> {
    let mut sent = request(preset);
    let genuine = signature_of(preset, &sent);
    let value = header(&sent, preset.header.expect("a header")).strip_suffix(&*genuine).expect("it is last").to_owned();
    set(&mut sent, preset.header.expect("a header"), value + &change(&genuine));
    sent
}

/// Another digit of the same alphabet.
fn flip(text: &str, at: usize) -> String {
    let other = if text.as_bytes()[at] == b'0' { '1' } else { '0' };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}

async fn refused(preset: &Preset, sent: Request<Bytes>, what: &str) {
    let what = format!("{}: {what}", preset.name);
    Endpoint::new(preset.scheme()).refuses(sent, preset.statuses.1, &what).await;
}

#[tokio::test]
async fn signature_that_is_a_character_off_is_refused() {
    for (preset, _) in in_headers() {
        let length = signature_of(preset, &request(preset)).len();
        refused(preset, with_signature(preset, |text| text[..text.len() - 1].to_owned()), "truncated").await;
        refused(preset, with_signature(preset, |text| text[1..].to_owned()), "without its first").await;
        for more in ["0", "00", "A", "=", "\u{7e}"] {
            refused(preset, with_signature(preset, |text| format!("{text}{more}")), &format!("extended by {more}"))
                .await;
        }
        for at in 0..length {
            refused(preset, with_signature(preset, |text| flip(text, at)), &format!("flipped at {at}")).await;
        }
    }
}

#[tokio::test]
async fn signature_that_is_no_signature_is_refused() {
    for (preset, _) in in_headers() {
        for (what, other) in [("a word", "signature"), ("zeros", &*"0".repeat(64)), ("a padding", "==")] {
            refused(preset, with_signature(preset, |_| other.to_owned()), what).await;
        }
        refused(preset, with_signature(preset, |text| text.repeat(2)), "doubled").await;
        refused(preset, with_signature(preset, |text| format!("\"{text}\"")), "quoted").await;
        refused(preset, with_signature(preset, |text| format!("0x{text}")), "with 0x").await;
        // Where nothing stands before it, an empty signature is an empty header: see `bad_headers`.
        if !preset.marker().is_empty() {
            refused(preset, with_signature(preset, |_| String::new()), "empty").await;
        }
    }
}

#[tokio::test]
async fn white_space_around_a_signature_is_refused() {
    for (preset, name) in in_headers() {
        for space in [" ", "\t"] {
            refused(preset, with_signature(preset, |text| format!("{text}{space}")), "space behind").await;
            refused(preset, with_signature(preset, |text| format!("{space}{text}")), "space before").await;
            let mut sent = request(preset);
            let value = format!("{space}{}", header(&sent, name));
            set(&mut sent, name, value);
            refused(preset, sent, "space in front of all").await;
        }
    }
}

/// The prefix names neither the hash nor the version: it is demanded, and that is all.
#[tokio::test]
async fn signature_behind_another_prefix_is_refused() {
    for (preset, name) in in_headers() {
        let sent = request(preset);
        let (value, marker) = (header(&sent, name).to_owned(), preset.marker());
        let signature = signature_of(preset, &sent);
        let before = &value[..value.len() - signature.len() - marker.len()];
        let mut others = vec!["sha1=", "sha256=", "sha512=", "v0=", "v1=", "v2=", "h1=", "v1,", "v1a,", "md5="];
        if !marker.is_empty() {
            others.extend(["", "="]);
        }
        let upper = marker.to_uppercase();
        if upper != marker {
            others.push(&upper);
        }
        let own = marker.trim_start_matches([',', ';']);
        for other in others.into_iter().filter(|other| *other != own) {
            let mut sent = sent.clone();
            set(&mut sent, name, format!("{before}{}{other}{signature}", &marker[..marker.len() - own.len()]));
            refused(preset, sent, &format!("behind {other:?}")).await;
        }
    }
}

#[tokio::test]
async fn signature_in_the_other_encoding_is_refused() {
    for (preset, _) in in_headers() {
        let others: &[Encoding] = match preset.encoding {
            Encoding::Hex => &[Encoding::Base64],
            Encoding::Base64 => &[Encoding::Hex],
            // A token is compared as it is.
            Encoding::Text => &[Encoding::Hex, Encoding::Base64],
        };
        for other in others {
            let sent = with_signature(preset, |text| spell(*other, &unspell(preset.encoding, text)));
            refused(preset, sent, &format!("in {other:?}")).await;
        }
    }
}

#[tokio::test]
async fn base64_has_one_spelling_and_hex_two_cases() {
    for (preset, _) in in_headers() {
        match preset.encoding {
            Encoding::Hex => {
                let sent = with_signature(preset, str::to_uppercase);
                Endpoint::new(preset.scheme()).accepts(sent, &format!("{} in upper case", preset.name)).await;
            }
            Encoding::Base64 => {
                let unpadded = with_signature(preset, |text| text.trim_end_matches('=').to_owned());
                if signature_of(preset, &request(preset)).ends_with('=') {
                    refused(preset, unpadded, "unpadded").await;
                }
                if signature_of(preset, &request(preset)).contains(['+', '/']) {
                    refused(
                        preset,
                        with_signature(preset, |text| text.replace("+", "-").replace("/", "_")),
                        "url-safe",
                    )
                    .await;
                }
            }
            Encoding::Text => {}
        }
    }
}

/// A MAC of the right message under the right key, by the wrong hash.
#[tokio::test]
async fn signature_of_another_algorithm_is_refused() {
    let algorithms = [Algorithm::HmacSha256, Algorithm::HmacSha1, Algorithm::KeyedSha256];
    for preset in PRESETS {
        let Some(own) = ByHand::of(preset) else { continue };
        for algorithm in algorithms.into_iter().filter(|algorithm| *algorithm != preset.algorithm) {
            let other = ByHand { algorithm, ..own.clone() };
            refused(preset, other.request(), &format!("by {algorithm}")).await;
            // Cut or filled to the length that is expected.
            let mut bytes = other.signature();
            bytes.resize(own.signature().len(), 0);
            refused(preset, own.with_signature(&spell(preset.encoding, &bytes)), &format!("by {algorithm}, fitted"))
                .await;
        }
        refused(preset, own.with_signature(&spell(Encoding::Text, b"0")), "the plain text 0").await;
    }
}

/// Whoever gets one provider's secret to sign something must not have signed for another.
#[tokio::test]
async fn signature_of_another_providers_message_is_refused() {
    let texts: std::collections::BTreeSet<&str> = PRESETS.iter().filter_map(|preset| preset.signs).collect();
    let more = ["", "{timestamp}", "{url}", "{body}{timestamp}", "{timestamp}\n{body}", "{body}\n", "{id}{body}"];
    for preset in PRESETS {
        let Some(own) = ByHand::of(preset) else { continue };
        for signs in texts.iter().chain(&more).filter(|text| Some(**text) != preset.signs) {
            let other = ByHand { signs: (*signs).to_owned(), ..own.clone() };
            refused(preset, other.request(), &format!("over {signs:?}")).await;
        }
    }
}

/// GitLab's token, Adyen's and Mailgun's bodies are not covered: that is in their docs, and in `in_body`.
#[tokio::test]
async fn every_bit_of_the_body_is_covered() {
    for preset in PRESETS.iter().filter(|preset| preset.signs.is_some()) {
        let genuine = request(preset);
        let endpoint = Endpoint::new(preset.scheme());
        for at in 0..genuine.body().len() {
            let mut body = genuine.body().to_vec();
            body[at] ^= 1;
            let mut sent = genuine.clone();
            *sent.body_mut() = body.into();
            endpoint.refuses(sent, preset.statuses.1, &format!("{}: bit at {at}", preset.name)).await;
        }
        for (what, body) in [
            ("shortened", genuine.body().slice(1..)),
            ("extended", [genuine.body(), &b"\n"[..]].concat().into()),
            ("emptied", Bytes::new()),
        ] {
            let mut sent = genuine.clone();
            *sent.body_mut() = body;
            // A form's line break is a part of its last value.
            endpoint.refuses(sent, preset.statuses.1, &format!("{}: body {what}", preset.name)).await;
        }
    }
}

#[tokio::test]
async fn signature_under_another_secret_is_refused() {
    let other_ed25519 = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    for preset in PRESETS {
        let other = match preset.algorithm {
            // A key of the same kind that is not the pair's.
            Algorithm::EcdsaP256 => {
                "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
            }
            Algorithm::Ed25519 => &other_ed25519[64..],
            _ if preset.name == "gitlab-signed" => "YSBzaWduaW5nIHRva2VuIGFzIEdpdExhYidzLCAzMi4=",
            _ => other_ed25519,
        };
        let endpoint = Endpoint::new(preset.under(other));
        endpoint.refuses(request(preset), preset.statuses.1, preset.name).await;
    }
}
