use http::HeaderValue;

use super::{Act, Twist};
use crate::case::Case;
use crate::draft::Draft;
use crate::keys::{TestKey, whpk, whsec};
use crate::rng::Rng;
use crate::wire::Wire;

pub(super) const ANY: &[Twist] = &[
    ("other secret", Act::Draft(|_, draft| draft.secrets = vec![draft.spare.secret.clone()])),
    ("new secret beside the right one", Act::Draft(|_, draft| draft.secrets.insert(0, draft.spare.secret.clone()))),
    ("old secret beside the right one", Act::Draft(|_, draft| draft.secrets.push(draft.spare.secret.clone()))),
];

pub(super) const TEXTS: &[Twist] = &[
    (
        "secret with white space around it",
        Act::Draft(|rng, draft| retext(draft, rng.pick(&[" x", "x\n", "\tx", "x\u{a0}"]))),
    ),
    ("secret with white space in it", Act::Draft(|_, draft| retext(draft, "x x"))),
    ("empty secret", Act::Draft(|_, draft| retext(draft, ""))),
    ("blank secret", Act::Draft(|_, draft| retext(draft, " "))),
    ("secret that is not ASCII", Act::Draft(|_, draft| retext(draft, "schlüssel"))),
    ("secret longer than a block", Act::Draft(|_, draft| retext(draft, &"long".repeat(33)))),
];

pub(super) const WHSECS: &[Twist] = &[
    ("secret without whsec_", Act::Draft(|_, draft| respell(draft, |text| text.replace("whsec_", "")))),
    ("secret without padding", Act::Draft(|_, draft| respell(draft, |text| text.replace('=', "")))),
    (
        "secret with other last bits",
        Act::Draft(|_, draft| respell(draft, |text| text.replace("A=", "B=").replace("w=", "x="))),
    ),
    ("secret with white space around it", Act::Draft(|_, draft| respell(draft, |text| format!("{text}\n")))),
    ("secret of no base64", Act::Draft(|_, draft| respell(draft, |text| format!("{text}!")))),
    (
        "secret in the alphabet of urls",
        Act::Draft(|_, draft| {
            respell(draft, |text| text.replace('+', "-").replace('/', "_").replace("whsec-", "whsec_"))
        }),
    ),
    ("secret with whsec_ twice", Act::Draft(|_, draft| respell(draft, |text| format!("whsec_{text}")))),
    ("secret that is none beside the right one", Act::Draft(|_, draft| draft.secrets.push("whsec_???".to_owned()))),
    ("empty secret", Act::Draft(|_, draft| rekey(draft, whsec(b"")))),
    ("short secret", Act::Draft(|_, draft| rekey(draft, whsec(b"k")))),
    ("asymmetric secret", Act::Draft(|rng, draft| rekey(draft, whpk(rng.below(2))))),
    ("asymmetric secret beside the right one", Act::Draft(asymmetric_beside)),
];

pub(super) const ED25519: &[Twist] = &[
    ("secret in capitals", Act::Draft(|_, draft| respell(draft, str::to_uppercase))),
    ("secret cut", Act::Draft(|_, draft| respell(draft, |text| text[2..].to_owned()))),
    ("weak public key", Act::Case(under_a_weak_key)),
];

/// The neutral point: under it, anyone can sign anything.
pub const WEAK_KEY: &str = "0100000000000000000000000000000000000000000000000000000000000000";

/// The sender signs with this text, and the receiver has it too.
fn retext(draft: &mut Draft, text: &str) {
    rekey(draft, draft.wire.keys.keyed(text.to_owned()));
}

fn rekey(draft: &mut Draft, key: TestKey) {
    draft.secrets = vec![key.secret.clone()];
    draft.signers = vec![key];
}

/// The receiver has the right secret, spelled another way.
fn respell(draft: &mut Draft, spell: fn(&str) -> String) {
    draft.secrets = vec![spell(&draft.signers[0].secret)];
}

fn asymmetric_beside(rng: &mut Rng, draft: &mut Draft) {
    let key = whpk(rng.below(2));
    draft.secrets.push(key.secret.clone());
    draft.signers.push(key);
}

/// Signed by nobody, under a key that only looks like one.
fn under_a_weak_key(_: &mut Rng, wire: &Wire, case: &mut Case) {
    case.secrets = vec![WEAK_KEY.to_owned()];
    let fits_every_message = WEAK_KEY.to_owned() + &"0".repeat(64);
    case.headers.insert(wire.signature, HeaderValue::try_from(fits_every_message).expect("hex"));
}
