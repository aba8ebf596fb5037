use super::{Act, Twist};
use crate::rng::Rng;
use crate::wire::{Encoding, Form, Wire};

pub(super) const ALL: &[Twist] = &[
    ("signature in capitals", Act::Elements(|rng, wire, all| respell(rng, wire, all, |_, text| text.to_uppercase()))),
    (
        "signature in small letters",
        Act::Elements(|rng, wire, all| respell(rng, wire, all, |_, text| text.to_lowercase())),
    ),
    (
        "signature without padding",
        Act::Elements(|rng, wire, all| respell(rng, wire, all, |_, text| text.replace('=', ""))),
    ),
    (
        "signature with more padding",
        Act::Elements(|rng, wire, all| respell(rng, wire, all, |_, text| format!("{text}="))),
    ),
    (
        "signature in the alphabet of urls",
        Act::Elements(|rng, wire, all| respell(rng, wire, all, |_, text| text.replace('+', "-").replace('/', "_"))),
    ),
    (
        "signature with other last bits",
        Act::Elements(|rng, wire, all| respell(rng, wire, all, |_, text| other_last_bits(text))),
    ),
    (
        "signature cut",
        Act::Elements(|rng, wire, all| respell(rng, wire, all, |rng, text| text[..rng.below(text.len())].to_owned())),
    ),
    (
        "signature made longer",
        Act::Elements(|rng, wire, all| {
            respell(rng, wire, all, |rng, text| format!("{text}{}", rng.pick(&["0", "00", "AAAA", " ", "\""])))
        }),
    ),
    ("signature with a character changed", Act::Elements(|rng, wire, all| respell(rng, wire, all, changed))),
    ("signature in quotes", Act::Elements(|rng, wire, all| respell(rng, wire, all, |_, text| format!("\"{text}\"")))),
    (
        "signature in the other encoding",
        Act::Elements(|rng, wire, all| respell(rng, wire, all, move |_, text| hex::encode(text))),
    ),
    ("prefix changed", Act::Elements(|rng, wire, all| prefix_changed(rng, wire, all))),
];

/// Spells the last signature another way; in a list, perhaps beside the right one.
fn respell(rng: &mut Rng, wire: &Wire, elements: &mut Vec<String>, spell: impl Fn(&mut Rng, &str) -> String) {
    let Some(last) = elements.last().cloned() else { return };
    let start = match wire.form {
        Form::One { prefix } => prefix.len(),
        Form::List { between, .. } => last.find(between).map_or(0, |at| at + 1),
    };
    let (before, signature) = last.split_at(start.min(last.len()));
    if signature.is_empty() || !signature.is_ascii() {
        return;
    }
    let respelled = format!("{before}{}", spell(rng, signature));
    if wire.separator().is_none() || rng.one_in(2) {
        elements.pop();
    }
    elements.push(respelled);
}

/// Base64 of 32 bytes has two bits that mean nothing.
fn other_last_bits(text: &str) -> String {
    let digits = text.trim_end_matches('=');
    match digits.char_indices().last() {
        Some((at, last)) if digits.len() < text.len() => {
            let other = char::from_u32(u32::from(last) + 1).expect("a character");
            format!("{}{other}{}", &digits[..at], &text[digits.len()..])
        }
        _ => text.to_owned(),
    }
}

fn changed(rng: &mut Rng, text: &str) -> String {
    let at = rng.below(text.len());
    format!("{}{}{}", &text[..at], rng.pick(&["0", "f", "A", "/", "!", "é", " "]), &text[at + 1..])
}

fn prefix_changed(rng: &mut Rng, wire: &Wire, elements: &mut [String]) {
    let Form::One { prefix } = wire.form else { return };
    let Some(element) = elements.first_mut() else { return };
    let signature = element.strip_prefix(prefix).unwrap_or(element);
    let other = match rng.below(5) {
        0 => prefix.to_uppercase(),
        1 => prefix.replace('=', ":"),
        2 => prefix.repeat(2),
        3 => format!(" {prefix}"),
        _ if wire.encoding == Encoding::Hex => "sha1=".to_owned(),
        _ => String::new(),
    };
    *element = format!("{other}{signature}");
}
