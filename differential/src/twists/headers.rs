use http::{HeaderName, HeaderValue};

use super::{Act, Twist};
use crate::case::Case;
use crate::rng::Rng;
use crate::wire::Wire;

pub(super) const ALL: &[Twist] = &[
    ("bit flipped in a header", Act::Case(|rng, wire, case| edit(rng, wire, case, flipped))),
    (
        "header cut",
        Act::Case(|rng, wire, case| edit(rng, wire, case, |rng, value| value[..rng.below(value.len())].to_vec())),
    ),
    ("byte taken out of a header", Act::Case(|rng, wire, case| edit(rng, wire, case, taken_out))),
    ("byte put into a header", Act::Case(|rng, wire, case| edit(rng, wire, case, put_in))),
    ("white space around a header", Act::Case(|rng, wire, case| edit(rng, wire, case, spaced))),
    ("header missing", Act::Case(|rng, wire, case| drop(case.headers.remove(rng.pick(&wire.proof_headers()))))),
    ("header empty", Act::Case(|rng, wire, case| edit(rng, wire, case, |_, _| Vec::new()))),
    ("header twice", Act::Case(|rng, wire, case| doubled(case, rng.pick(&wire.proof_headers()), None))),
    (
        "header twice, another one behind",
        Act::Case(|rng, wire, case| doubled(case, rng.pick(&wire.proof_headers()), Some("1"))),
    ),
    ("bit flipped in the body", Act::Case(|rng, _, case| flip_body(rng, case))),
    ("body cut", Act::Case(|rng, _, case| case.body.truncate(rng.below(case.body.len())))),
    ("body made longer", Act::Case(|_, _, case| case.body.push(b'\n'))),
];

/// Edits one of the headers that count, so that it is still one.
fn edit(rng: &mut Rng, wire: &Wire, case: &mut Case, by: fn(&mut Rng, &[u8]) -> Vec<u8>) {
    let name = rng.pick(&wire.proof_headers());
    let Some(value) = case.headers.get(name).filter(|value| !value.is_empty()) else { return };
    let edited = by(rng, value.as_bytes());
    if let Ok(edited) = HeaderValue::from_bytes(&edited) {
        case.headers.insert(name, edited);
    }
}

fn flipped(rng: &mut Rng, value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    let at = rng.below(value.len());
    value[at] ^= 1 << rng.below(8);
    value
}

fn taken_out(rng: &mut Rng, value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    value.remove(rng.below(value.len()));
    value
}

fn put_in(rng: &mut Rng, value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    value.insert(rng.below(value.len() + 1), rng.pick(b" \t,=.;0aA\xff"));
    value
}

fn spaced(rng: &mut Rng, value: &[u8]) -> Vec<u8> {
    match rng.below(3) {
        0 => [b" ", value].concat(),
        1 => [value, b" "].concat(),
        _ => [b"\t", value].concat(),
    }
}

fn doubled(case: &mut Case, name: &'static str, other: Option<&'static str>) {
    if let Some(value) = case.headers.get(name).cloned() {
        case.headers.append(HeaderName::from_static(name), other.map_or(value, HeaderValue::from_static));
    }
}

fn flip_body(rng: &mut Rng, case: &mut Case) {
    let at = rng.below(case.body.len());
    if let Some(byte) = case.body.get_mut(at) {
        *byte ^= 1 << rng.below(8);
    }
}
