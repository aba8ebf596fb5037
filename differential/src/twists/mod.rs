//! What is done to a delivery so that it might not be accepted.

mod claims;
mod headers;
mod lists;
mod provider;
mod secrets;
mod spellings;

pub use self::secrets::WEAK_KEY;

use crate::case::Case;
use crate::draft::Draft;
use crate::keys::KeyKind;
use crate::rng::Rng;
use crate::wire::Wire;

/// A twist, by the name that a failure shows.
pub type Twist = (&'static str, Act);

#[derive(Clone, Copy)]
pub enum Act {
    /// Before it is signed.
    Draft(fn(&mut Rng, &mut Draft)),
    /// When it is signed, before the header is put together.
    Elements(fn(&mut Rng, &Wire, &mut Vec<String>)),
    /// When it is all there.
    Case(fn(&mut Rng, &Wire, &mut Case)),
}

/// All that apply to this provider's deliveries.
pub fn of(wire: &Wire) -> Vec<Twist> {
    let mut twists = [headers::ALL, spellings::ALL, secrets::ANY, provider::of(wire.provider)].concat();
    if wire.timestamp.is_some() || wire.provider == "stripe" {
        twists.extend(claims::TIMESTAMPS);
    }
    if wire.id.is_some() {
        twists.extend(claims::IDS);
    }
    if wire.separator().is_some() {
        twists.extend(lists::ALL);
    }
    twists.extend(match wire.keys {
        KeyKind::Text | KeyKind::TextSha1 => secrets::TEXTS,
        KeyKind::Whsec => secrets::WHSECS,
        KeyKind::Ed25519 => secrets::ED25519,
        KeyKind::P256 => &[],
    });
    twists
}

/// A delivery with a few of these twists; `None` when they came to what no HTTP request can be.
pub fn twisted(rng: &mut Rng, mut draft: Draft, twists: &[Twist]) -> Option<Case> {
    let chosen: Vec<Twist> = (0..rng.pick(&[0, 1, 1, 1, 1, 2, 2, 3])).map(|_| rng.pick(twists)).collect();
    draft.story = chosen.iter().map(|(name, _)| *name).collect();
    let wire = draft.wire;
    for (_, act) in &chosen {
        if let Act::Draft(twist) = act {
            twist(rng, &mut draft);
        }
    }
    let mut elements = wire.elements(&draft, &draft.signers);
    for (_, act) in &chosen {
        if let Act::Elements(twist) = act {
            twist(rng, wire, &mut elements);
        }
    }
    let mut case = draft.written(&elements)?;
    for (_, act) in &chosen {
        if let Act::Case(twist) = act {
            twist(rng, wire, &mut case);
        }
    }
    Some(case)
}
