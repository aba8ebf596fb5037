//! Why a signature does not match: tries the usual accidents, and tells which one explains it.

use super::captured::Captured;
use super::json_layout::{Layout, relaid};

/// The first accident, to the secret or to the body, without which the delivery verifies.
pub(crate) async fn any(delivery: &Captured) -> Option<String> {
    match secret(delivery).await {
        Some(hint) => Some(hint),
        None => body(delivery).await,
    }
}

/// The first accident to the secret without which the delivery verifies.
pub(crate) async fn secret(delivery: &Captured) -> Option<String> {
    for (remedy, secret) in other_secrets(&delivery.secret) {
        if (Captured { secret, ..delivery.clone() }).verifies().await {
            return Some(format!("wrong secret: the signature is right {remedy}"));
        }
    }
    None
}

async fn body(delivery: &Captured) -> Option<String> {
    for (remedy, body) in other_bodies(&delivery.body) {
        if (Captured { body, ..delivery.clone() }).verifies().await {
            return Some(format!("the body was altered: the signature is right {remedy}"));
        }
    }
    None
}

fn other_secrets(secret: &str) -> impl Iterator<Item = (&'static str, String)> {
    let trimmed = secret.trim();
    let bare = trimmed.trim_matches(['"', '\'']);
    let accidents = [
        ("for the secret without the white space around it: remove it", Some(trimmed.to_owned())),
        ("for the secret without the quotes around it: remove them", Some(bare.to_owned())),
        ("for the part after `whsec_`: leave the prefix away", bare.strip_prefix("whsec_").map(str::to_owned)),
        ("for `whsec_` and the secret: the prefix belongs to it", Some(format!("whsec_{bare}"))),
    ];
    kept(accidents)
}

fn other_bodies(body: &str) -> impl Iterator<Item = (&'static str, String)> {
    let unix = body.replace("\r\n", "\n");
    let relaid = |layout| relaid(body, layout);
    let accidents = [
        ("with every CRLF as LF: keep line breaks as they come", Some(unix.clone())),
        ("with every LF as CRLF: keep line breaks as they come", Some(unix.replace('\n', "\r\n"))),
        ("without the newline at the end: it was not sent", Some(body.trim_end_matches(['\r', '\n']).to_owned())),
        ("with a newline at the end: it was lost", Some(format!("{body}\n"))),
        ("as compact JSON: verify the bytes received, not JSON that was formatted", relaid(Layout::Compact)),
        ("as indented JSON: verify the bytes received, not JSON printed anew", relaid(Layout::Indented)),
        ("as JSON with a space after commas and colons: verify the bytes received", relaid(Layout::Spaced)),
    ];
    kept(accidents)
}

fn kept<const N: usize>(
    accidents: [(&'static str, Option<String>); N],
) -> impl Iterator<Item = (&'static str, String)> {
    accidents.into_iter().filter_map(|(remedy, text)| Some((remedy, text?)))
}
