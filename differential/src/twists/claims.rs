use super::{Act, Twist};
use crate::draft::Draft;
use crate::rng::Rng;

pub(super) const TIMESTAMPS: &[Twist] = &[
    ("timestamp at the edge", Act::Draft(|rng, draft| sign(rng, draft, draft.reach()))),
    ("timestamp just beyond the edge", Act::Draft(|rng, draft| sign(rng, draft, beyond(draft)))),
    ("timestamp far beyond the edge", Act::Draft(|rng, draft| sign(rng, draft, beyond(draft) + 100_000))),
    ("timestamp zero", Act::Draft(|_, draft| draft.spell_timestamp("0".to_owned()))),
    ("timestamp with a leading zero", Act::Draft(|rng, draft| respelled(rng, draft, |text| format!("0{text}")))),
    ("timestamp with a plus", Act::Draft(|rng, draft| respelled(rng, draft, |text| format!("+{text}")))),
    ("timestamp with spaces", Act::Draft(spaced)),
    ("timestamp in milliseconds", Act::Draft(|rng, draft| respelled(rng, draft, |text| format!("{text}000")))),
    ("timestamp of another form", Act::Draft(odd)),
    (
        "timestamp of many digits",
        Act::Draft(|rng, draft| {
            draft.spell_timestamp("1234567890123456789"[..rng.pick(&[9, 11, 15, 16, 19])].to_owned())
        }),
    ),
    ("negative timestamp", Act::Draft(|rng, draft| draft.spell_timestamp(rng.pick(&["-1", "-1700000000"]).to_owned()))),
    ("timestamp other than the signed one", Act::Draft(|_, draft| draft.signed_timestamp.push('1'))),
];

pub(super) const IDS: &[Twist] = &[
    ("id with a dot", Act::Draft(|rng, draft| draft.id = rng.pick(&["msg.a", "msg.1a", "a..b", "msg.", "1.a"]).into())),
    (
        "id with a dot and a number",
        Act::Draft(|rng, draft| {
            draft.id = rng.pick(&["msg.1", "msg.1700000000", ".1700000005", "a.b.1700000009.c"]).into()
        }),
    ),
    ("empty id", Act::Draft(|_, draft| draft.id.clear())),
    ("id that is not ASCII", Act::Draft(|_, draft| draft.id = "msg_ü".into())),
    ("id that is not UTF-8", Act::Draft(|_, draft| draft.id = b"msg_\xff".to_vec())),
    ("id with white space", Act::Draft(|rng, draft| draft.id = rng.pick(&["msg 1", "msg\t1", "msg "]).into())),
    ("long id", Act::Draft(|rng, draft| draft.id = vec![b'i'; rng.pick(&[4_096, 4_097])])),
];

fn beyond(draft: &Draft) -> u64 {
    draft.tolerance.unwrap_or(300) + draft.margin.max(1)
}

fn sign(rng: &mut Rng, draft: &mut Draft, distance: u64) {
    draft.signed_at(rng.pick(&[-1, 1]) * distance as i64);
}

/// Another spelling, which the sender signed as text, or as the number that it is.
fn respelled(rng: &mut Rng, draft: &mut Draft, spell: fn(&str) -> String) {
    let text = spell(&draft.timestamp);
    match rng.one_in(2) {
        true => draft.spell_timestamp(text),
        false => draft.timestamp = text,
    }
}

fn spaced(rng: &mut Rng, draft: &mut Draft) {
    let spells: [fn(&str) -> String; 3] =
        [|text| format!(" {text}"), |text| format!("{text} "), |text| format!("{text}\t")];
    let spell = rng.pick(&spells);
    respelled(rng, draft, spell);
}

fn odd(rng: &mut Rng, draft: &mut Draft) {
    let texts = [
        "",
        "now",
        "-1",
        "1.5",
        "1e9",
        "0x6553f100",
        "00",
        "2023-11-14T22:13:20Z",
        "999999999999",
        "1000000000000",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "99999999999999999999",
        "1700000000,1700000000",
        "١٧٠٠٠٠٠٠٠٠",
    ];
    draft.spell_timestamp(rng.pick(&texts).to_owned());
}
