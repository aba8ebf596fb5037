use http::{HeaderName, HeaderValue};

use super::{Act, Twist};
use crate::case::Case;
use crate::draft::Draft;
use crate::rng::Rng;
use crate::wire::{STANDARD_WEBHOOKS, SVIX, Wire};

/// What only this provider's deliveries can have.
pub(super) fn of(provider: &str) -> &'static [Twist] {
    match provider {
        "svix" => SVIX_FAMILIES,
        "linear" => LINEAR,
        "shopify" => SHOPIFY,
        "twilio" => TWILIO,
        _ => &[],
    }
}

const SVIX_FAMILIES: &[Twist] = &[
    ("headers without a brand", Act::Case(|_, _, case| renamed(case, &[0, 1, 2]))),
    (
        "some headers without a brand",
        Act::Case(|rng, _, case| renamed(case, rng.pick(&[&[0][..], &[1], &[2], &[0, 1], &[1, 2]]))),
    ),
    ("both families", Act::Case(|rng, _, case| both(rng, case))),
    ("without a brand, and a stray header", Act::Case(stray)),
];

const LINEAR: &[Twist] = &[
    ("body signed at the edge", Act::Draft(|rng, draft| signed_at(rng, draft, draft.reach()))),
    ("body signed beyond the edge", Act::Draft(|rng, draft| signed_at(rng, draft, draft.reach() + 1))),
    ("body without a timestamp", Act::Draft(|_, draft| draft.body = br#"{"action":"create"}"#.to_vec())),
    ("body with a timestamp in seconds", Act::Draft(|_, draft| draft.body = draft.linear_body(&draft.timestamp))),
    (
        "body with a timestamp as text",
        Act::Draft(|_, draft| draft.body = draft.linear_body(&format!("\"{}\"", draft.in_millis()))),
    ),
    (
        "body with an odd timestamp",
        Act::Draft(|rng, draft| {
            draft.body = draft.linear_body(rng.pick(&["null", "1.5", "-1", "01", "\"now\"", "[]"]))
        }),
    ),
    ("body that is no JSON", Act::Draft(|rng, draft| draft.body = rng.bytes(40))),
];

const SHOPIFY: &[Twist] = &[
    (
        "new header",
        Act::Case(|_, wire, case| {
            if let Some(value) = case.headers.remove(wire.signature) {
                case.headers.insert("shopify-hmac-sha256", value);
            }
        }),
    ),
    (
        "new header beside the old one",
        Act::Case(|rng, wire, case| {
            if let Some(value) = case.headers.get(wire.signature).cloned() {
                let wrong = HeaderValue::from_static("AAAA");
                let (new, old) =
                    rng.pick(&[(value.clone(), value.clone()), (wrong.clone(), value.clone()), (value, wrong)]);
                case.headers.insert("shopify-hmac-sha256", new);
                case.headers.insert(wire.signature, old);
            }
        }),
    ),
];

const TWILIO: &[Twist] = &[
    ("parameters in another order", Act::Draft(|_, draft| draft.set_form("b=2&a=1&C=3&A=%41"))),
    (
        "parameter repeated",
        Act::Draft(|rng, draft| draft.set_form(rng.pick(&["a=2&a=1", "a=1&a=1", "a=1&b=2&a=3", "a=1&a=2"]))),
    ),
    (
        "odd form",
        Act::Draft(|rng, draft| {
            draft.set_form(rng.pick(&["a", "=", "&&a=b&", "a=b=c", "a=%zz", "a=%C3%A9", "a=+%2B", ""]))
        }),
    ),
    ("form that is not UTF-8", Act::Draft(|_, draft| draft.set_form("a=%ff"))),
    ("url with a query", Act::Draft(|_, draft| reurl(draft, "https://receiver.example/in?x=1&y=%20"))),
    (
        "port signed that is not in the url",
        Act::Draft(|_, draft| draft.signed_url = "https://receiver.example:443/hooks/in".to_owned()),
    ),
    (
        "port not signed that is in the url",
        Act::Draft(|_, draft| draft.url = "https://receiver.example:8443/hooks/in".to_owned()),
    ),
    ("other url signed", Act::Draft(|_, draft| draft.signed_url.push('/'))),
    (
        "JSON under its digest",
        Act::Draft(|_, draft| json(draft, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a")),
    ),
    ("JSON under another digest", Act::Draft(|rng, draft| json(draft, rng.pick(&["00", &"0".repeat(64)])))),
    (
        "JSON that nothing covers",
        Act::Draft(|_, draft| {
            draft.body = b"{}".to_vec();
            draft.headers.clear();
        }),
    ),
];

fn renamed(case: &mut Case, which: &[usize]) {
    for at in which {
        let (branded, unbranded) = (SVIX.proof_headers()[*at], STANDARD_WEBHOOKS.proof_headers()[*at]);
        if let Some(value) = case.headers.remove(branded) {
            case.headers.insert(unbranded, value);
        }
    }
}

/// The same in both, or nonsense in one of them.
fn both(rng: &mut Rng, case: &mut Case) {
    let wrong = rng.below(3);
    for (branded, unbranded) in SVIX.proof_headers().into_iter().zip(STANDARD_WEBHOOKS.proof_headers()) {
        let Some(value) = case.headers.get(branded).cloned() else { continue };
        case.headers.insert(unbranded, if wrong == 1 { HeaderValue::from_static("1") } else { value });
        if wrong == 2 {
            case.headers.insert(branded, HeaderValue::from_static("1"));
        }
    }
}

fn stray(rng: &mut Rng, _: &Wire, case: &mut Case) {
    renamed(case, &[0, 1, 2]);
    let name = rng.pick(&["svix-id", "svix-timestamp"]);
    case.headers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
}

fn signed_at(rng: &mut Rng, draft: &mut Draft, distance: u64) {
    draft.signed_at(rng.pick(&[-1, 1]) * distance as i64);
    draft.body = draft.linear_body(&draft.in_millis());
}

fn reurl(draft: &mut Draft, url: &str) {
    (draft.url, draft.signed_url) = (url.to_owned(), url.to_owned());
}

/// `{}`, covered by a digest in the url.
fn json(draft: &mut Draft, digest: &str) {
    draft.body = b"{}".to_vec();
    draft.headers.clear();
    reurl(draft, &format!("https://receiver.example/in?bodySHA256={digest}"));
}
