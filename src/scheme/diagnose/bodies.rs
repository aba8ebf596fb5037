//! The bodies that may have been signed, given the one that arrived.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use xxhash_rust::xxh3::xxh3_64;

use super::finding::BodyChange;
use super::json::Json;
use super::json_form::{JsonEscapes, JsonForm, JsonLayout};

const LAYOUTS: [JsonLayout; 4] =
    [JsonLayout::Compact, JsonLayout::Indented { spaces: 2 }, JsonLayout::Indented { spaces: 4 }, JsonLayout::Spaced];

const ESCAPES: [Option<JsonEscapes>; 6] = [
    None,
    Some(JsonEscapes::None),
    Some(JsonEscapes::Ascii),
    Some(JsonEscapes::Php),
    Some(JsonEscapes::Slashes),
    Some(JsonEscapes::Html),
];

/// Calls `tried` with each other body and how the one that arrived differs from it, until `tried` returns something.
/// Equal bodies are tried once.
pub(super) fn find<T>(body: &[u8], mut tried: impl FnMut(&BodyChange, &[u8]) -> Option<T>) -> Option<T> {
    let mut seen = HashSet::from([xxh3_64(body)]);
    let mut try_once = |change: &BodyChange, other: &[u8]| match seen.insert(xxh3_64(other)) {
        true => tried(change, other),
        false => None,
    };
    for (change, other) in plain(body) {
        if let Some(found) = try_once(&change, &other) {
            return Some(found);
        }
    }
    let json = Json::parse(body)?;
    let forms = [false, true].into_iter().flat_map(|sorted| {
        let escaped = move |escapes| LAYOUTS.map(|layout| JsonForm { layout, sorted, escapes });
        ESCAPES.into_iter().flat_map(escaped)
    });
    for form in forms {
        let other = json.print(&form);
        if let Some(found) = try_once(&BodyChange::Json(form), other.as_bytes()) {
            return Some(found);
        }
    }
    None
}

/// The changes that any text may go through.
fn plain(body: &[u8]) -> impl Iterator<Item = (BodyChange, Vec<u8>)> {
    let unix = replaced(body, b"\r\n", b"\n");
    let trailing = body.iter().rev().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let changes = [
        (BodyChange::LinesEndInCrlf, Some(unix.clone())),
        (BodyChange::LinesEndInLf, Some(replaced(&unix, b"\n", b"\r\n"))),
        (BodyChange::NewlineAdded, Some(body[..body.len() - trailing].to_vec())),
        (BodyChange::NewlineLost, Some([body, b"\n"].concat())),
        (BodyChange::Base64, STANDARD.decode(body.trim_ascii()).ok()),
    ];
    changes.into_iter().filter_map(|(change, other)| Some((change, other?)))
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(byte) = rest.first() {
        match rest.strip_prefix(old) {
            Some(after) => {
                out.extend_from_slice(new);
                rest = after;
            }
            None => {
                out.push(*byte);
                rest = &rest[1..];
            }
        }
    }
    out
}
