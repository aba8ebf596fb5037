//! Where we and an oracle differ, and who is right: the one list of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use serde_json::Value;
use webhook_verify::Provider;

use crate::case::{Case, Verdict};
use crate::oracles;
use crate::twists::WEAK_KEY;
use crate::view::View;

/// A known disagreement. It explains a difference only if both verdicts are those that it names, for the same reasons.
pub struct Disagreement {
    pub what: &'static str,
    /// The contests in every one of which it occurs.
    pub contests: &'static [&'static str],
    /// Our verdicts: `accept`, or the kind of the rejection; `config` when the scheme does not build.
    ours: &'static [&'static str],
    /// The oracle's: `accept`, or how its error begins.
    theirs: &'static [&'static str],
    when: fn(&View<'_>) -> bool,
    pub right: Right,
    pub why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Ours,
    Theirs,
    /// Nobody sends it, or both can be defended.
    Either,
}

const STANDARD_LISTS: &[&str] = &["standardwebhooks", "svix", "webhook-verify/standard-webhooks"];
const SECRETS_ARE_TEXT: &[&str] = &[
    "async-stripe",
    "webhook-verify/stripe",
    "webhook-verify/github",
    "webhook-verify/shopify",
    "webhook-verify/slack",
    "webhook-verify/zoom",
    "webhook-verify/square",
    "webhook-verify/twilio",
    "webhook-verify/linear",
    "webhook-verify/dropbox",
];
const EVERY_ONE: &[&str] = &[
    "standardwebhooks",
    "svix",
    "async-stripe",
    "webhook-verify/stripe",
    "webhook-verify/standard-webhooks",
    "webhook-verify/github",
    "webhook-verify/shopify",
    "webhook-verify/slack",
    "webhook-verify/zoom",
    "webhook-verify/square",
    "webhook-verify/twilio",
    "webhook-verify/linear",
    "webhook-verify/dropbox",
    "webhook-verify/discord",
    "webhook-verify/sendgrid",
];
const LISTS: &[&str] =
    &["standardwebhooks", "svix", "async-stripe", "webhook-verify/stripe", "webhook-verify/standard-webhooks"];
const TIMESTAMPED: &[&str] = &[
    "standardwebhooks",
    "svix",
    "async-stripe",
    "webhook-verify/stripe",
    "webhook-verify/standard-webhooks",
    "webhook-verify/slack",
    "webhook-verify/zoom",
    "webhook-verify/discord",
    "webhook-verify/sendgrid",
];

pub const TABLE: &[Disagreement] = &[
    Disagreement {
        what: "a header of the proof is there twice",
        contests: EVERY_ONE,
        ours: &["repeated_signature"],
        theirs: &["accept"],
        when: |view| view.repeats_a_header(),
        right: Right::Ours,
        why: "the oracles take the first; which one a proxy in front of them looked at is anybody's guess",
    },
    Disagreement {
        what: "a header of the proof is longer than 4 KiB",
        contests: LISTS,
        ours: &["malformed_signature"],
        theirs: &["accept"],
        when: |view| view.has_a_long_header(),
        right: Right::Ours,
        why: "no sender comes near it, and unverified input has a cap; the oracles leave that to the server",
    },
    Disagreement {
        what: "more than 16 signatures",
        contests: LISTS,
        ours: &["malformed_signature"],
        theirs: &["accept"],
        when: |view| view.offered() > 16,
        right: Right::Ours,
        why: "a rotation has two; the oracles have no cap",
    },
    Disagreement {
        what: "an element of the list is none",
        contests: LISTS,
        ours: &["malformed_signature"],
        theirs: &["accept"],
        when: |view| view.has_no_element(),
        right: Right::Either,
        why: "doubled separators, spaces, words without a value: the oracles pass over them, but no sender writes them",
    },
    Disagreement {
        what: "the timestamp is there twice",
        contests: &["async-stripe"],
        ours: &["malformed_signature"],
        theirs: &["accept"],
        when: |view| view.timestamps().len() > 1,
        right: Right::Ours,
        why: "it takes the last, others the first: one header must not have two meanings",
    },
    Disagreement {
        what: "the timestamp has a sign or a leading zero",
        contests: TIMESTAMPED,
        ours: &["malformed_signature"],
        theirs: &["accept"],
        when: |view| view.spells_timestamp_otherwise(),
        right: Right::Ours,
        why: "one moment has one spelling; oracles that parse and print it verify another text than was sent",
    },
    Disagreement {
        what: "the timestamp is not checked, and not as long as one can be",
        contests: &[
            "svix",
            "webhook-verify/stripe",
            "webhook-verify/standard-webhooks",
            "webhook-verify/slack",
            "webhook-verify/zoom",
            "webhook-verify/discord",
            "webhook-verify/sendgrid",
        ],
        ours: &["malformed_signature"],
        theirs: &["accept"],
        when: |view| view.is_unchecked() && view.has_timestamp_of_another_length(),
        right: Right::Ours,
        why: "unchecked it is still a time; and where nothing stands between it and the body, only its length tells them apart",
    },
    Disagreement {
        what: "the timestamp is not checked, and is negative",
        contests: &["webhook-verify/standard-webhooks", "webhook-verify/slack", "webhook-verify/zoom"],
        ours: &["accept"],
        theirs: &["MalformedHeader"],
        when: |view| view.is_unchecked() && view.timestamps().iter().any(|text| text.starts_with('-')),
        right: Right::Either,
        why: "nobody signs before 1970; svix takes it, as we do",
    },
    Disagreement {
        what: "the timestamp is not checked, has a leading zero, and is signed as the text",
        contests: &["svix"],
        ours: &["accept"],
        theirs: &["InvalidSignature"],
        when: |view| view.is_unchecked() && view.spells_timestamp_otherwise(),
        right: Right::Ours,
        why: "what is signed is the text that is sent; it signs the number anew",
    },
    Disagreement {
        what: "the timestamp is not checked, has a leading zero, and is signed as the number",
        contests: &["svix"],
        ours: &["signature_mismatch"],
        theirs: &["accept"],
        when: |view| view.is_unchecked() && view.spells_timestamp_otherwise(),
        right: Right::Ours,
        why: "what is signed is the text that is sent; it signs the number anew",
    },
    Disagreement {
        what: "the id has a dot and what could be a timestamp",
        contests: STANDARD_LISTS,
        ours: &["malformed_signature"],
        theirs: &["accept"],
        when: |view| {
            view.id().split(|byte| *byte == b'.').skip(1).any(|part| could_be_timestamp(part, view.is_unchecked()))
        },
        right: Right::Ours,
        why: "`a.T` and `U` sign as `a` and `T` do with a body that begins with `U.`: a captured event gets another id",
    },
    Disagreement {
        what: "the id is empty",
        contests: STANDARD_LISTS,
        ours: &["missing_signature"],
        theirs: &["accept"],
        when: |view| view.has_empty_id(),
        right: Right::Ours,
        why: "the id is what duplicates are known by: all events would be one",
    },
    Disagreement {
        what: "the id is not ASCII",
        contests: STANDARD_LISTS,
        ours: &["accept"],
        theirs: &["InvalidHeader(\"id\")", "MissingHeader { header: \"webhook-id\" }"],
        when: |view| !view.id().is_ascii(),
        right: Right::Either,
        why: "UTF-8 is signed as it is sent; the oracles cannot read such a header, and no sender has one",
    },
    Disagreement {
        what: "the headers are of two families",
        contests: &["svix"],
        ours: &["missing_signature", "malformed_signature", "signature_mismatch", "stale", "early"],
        theirs: &["accept"],
        when: mixes_families,
        right: Right::Ours,
        why: "it takes each header from either family; a sender uses one, so what is mixed was put together by another",
    },
    Disagreement {
        what: "a header of the other family strayed in",
        contests: &["svix"],
        ours: &["accept"],
        theirs: &["InvalidSignature", "TimestampTooOldError", "InvalidTimestamp", "InvalidPayload", "InvalidHeader"],
        when: |view| !view.has("svix-signature") && mixes_families(view),
        right: Right::Ours,
        why: "the family of the signature is complete and verifies; it takes the stray header instead",
    },
    Disagreement {
        what: "the body is not UTF-8",
        contests: &["standardwebhooks", "svix", "async-stripe"],
        ours: &["accept"],
        theirs: &["InvalidPayload", "no body that is text"],
        when: |view| std::str::from_utf8(&view.case.body).is_err(),
        right: Right::Ours,
        why: "bytes are signed, whatever they mean",
    },
    Disagreement {
        what: "an undecodable signature stands beside the right one",
        contests: &["webhook-verify/stripe", "webhook-verify/standard-webhooks"],
        ours: &["accept"],
        theirs: &["BadEncoding", "MalformedHeader"],
        when: |view| view.has_undecodable_signature(),
        right: Right::Ours,
        why: "Stripe's SDKs test that `v1=potato` is passed over, and Standard Webhooks compares texts",
    },
    Disagreement {
        what: "a secret is empty, blank or has white space around it",
        contests: SECRETS_ARE_TEXT,
        ours: &["config"],
        theirs: &["accept"],
        when: |view| view.has_secret(|secret| secret.is_empty() || secret.trim() != secret),
        right: Right::Ours,
        why: "it is a mistake of the deployment, and under an empty key anyone can sign",
    },
    Disagreement {
        what: "a secret decodes to nothing",
        contests: &["standardwebhooks"],
        ours: &["config"],
        theirs: &["accept"],
        when: |view| view.case.secrets.len() == 1 && view.has_secret(|secret| after_prefix(secret).is_empty()),
        right: Right::Ours,
        why: "anyone can sign under an empty key; svix refuses it, too",
    },
    Disagreement {
        what: "one of several secrets cannot be one",
        contests: STANDARD_LISTS,
        ours: &["config"],
        theirs: &["accept"],
        when: |view| view.case.secrets.len() > 1 && view.has_secret(cannot_be_a_secret),
        right: Right::Ours,
        why: "a mistake of the deployment is told at its start, and not when the other secret is rotated out",
    },
    Disagreement {
        what: "a secret lacks its padding, or its last bits are not zero",
        contests: &["standardwebhooks", "svix"],
        ours: &["accept"],
        theirs: &["InvalidSecret"],
        when: |view| {
            view.has_secret(|secret| !secret.starts_with("whpk_") && STANDARD.decode(after_prefix(secret)).is_err())
        },
        right: Right::Ours,
        why: "secrets are copied by hand, and the Python library takes both; the key is the same",
    },
    Disagreement {
        what: "the signature is of a private key",
        contests: STANDARD_LISTS,
        ours: &["accept"],
        theirs: &[
            "InvalidSecret",
            "InvalidSignature",
            "SignatureMismatch",
            "MalformedHeader { header: \"webhook-signature\", reason: \"no",
        ],
        when: |view| view.has_secret(|secret| secret.starts_with("whpk_")),
        right: Right::Ours,
        why: "`v1a` is in the specification; the oracles do not have it",
    },
    Disagreement {
        what: "GitHub's prefix is in capitals",
        contests: &["webhook-verify/github"],
        ours: &["malformed_signature"],
        theirs: &["accept"],
        when: |view| !view.signature().starts_with("sha256=") && view.signature().to_lowercase().starts_with("sha256="),
        right: Right::Either,
        why: "GitHub writes it in small letters, and Octokit compares all of it",
    },
    Disagreement {
        what: "Shopify's new header is there",
        contests: &["webhook-verify/shopify"],
        ours: &["accept"],
        theirs: &["MissingHeader", "BadEncoding", "MalformedHeader", "SignatureMismatch"],
        when: |view| view.has("shopify-hmac-sha256"),
        right: Right::Ours,
        why: "Shopify's SDK looks at it first; the oracle does not know it",
    },
    Disagreement {
        what: "Shopify's new header is wrong, and the old one right",
        contests: &["webhook-verify/shopify"],
        ours: &["malformed_signature", "missing_signature", "signature_mismatch"],
        theirs: &["accept"],
        when: |view| view.has("shopify-hmac-sha256"),
        right: Right::Ours,
        why: "as Shopify's SDK does: the first one that is there counts",
    },
    Disagreement {
        what: "Twilio signed with or without the port",
        contests: &["webhook-verify/twilio"],
        ours: &["accept"],
        theirs: &["SignatureMismatch"],
        when: matches_with_another_port,
        right: Right::Ours,
        why: "Twilio's SDKs try both, because Twilio does either",
    },
    Disagreement {
        what: "Twilio's form has a parameter twice",
        contests: &["webhook-verify/twilio"],
        ours: &["accept"],
        theirs: &["SignatureMismatch"],
        when: |view| view.repeats_a_parameter(),
        right: Right::Ours,
        why: "Twilio sorts the values and signs equal ones once; the oracle takes them as they come",
    },
    Disagreement {
        what: "Twilio's form is not UTF-8",
        contests: &["webhook-verify/twilio"],
        ours: &["signature_mismatch"],
        theirs: &["accept"],
        when: |view| {
            form_urlencoded::parse(&view.case.body).any(|(_, value)| value.contains(char::REPLACEMENT_CHARACTER))
        },
        right: Right::Ours,
        why: "the oracle is given text, in which all that is none has become one and the same character",
    },
    Disagreement {
        what: "Twilio's body is not what the url's digest is of",
        contests: &["webhook-verify/twilio"],
        ours: &["signature_mismatch", "malformed_signature"],
        theirs: &["accept"],
        when: |view| view.case.url.contains("bodySHA256="),
        right: Right::Ours,
        why: "the digest is all that covers the body; the oracle does not look at it",
    },
    Disagreement {
        what: "nothing of Twilio's covers the body",
        contests: &["webhook-verify/twilio"],
        ours: &["malformed_signature"],
        theirs: &["accept"],
        when: |view| !view.has("content-type") && !view.case.body.is_empty() && !view.case.url.contains("bodySHA256="),
        right: Right::Ours,
        why: "whoever saw one request could send any body with its signature",
    },
    Disagreement {
        what: "Linear's body does not tell a time that passes",
        contests: &["webhook-verify/linear"],
        ours: &["malformed_signature", "stale", "early"],
        theirs: &["accept"],
        when: lacks_linear_timestamp,
        right: Right::Ours,
        why: "Linear's SDK refuses such a delivery as a replay; the oracle only verifies the signature",
    },
    Disagreement {
        what: "the public key is weak",
        contests: &["webhook-verify/discord"],
        ours: &["config"],
        theirs: &["accept"],
        when: |view| view.has_secret(|secret| secret == WEAK_KEY),
        right: Right::Ours,
        why: "anyone can sign under it",
    },
];

impl Disagreement {
    pub fn explains(&self, contest: &str, view: &View<'_>, ours: &Verdict, theirs: &Verdict) -> bool {
        self.contests.contains(&contest)
            && self.ours.iter().any(|verdict| ours.is(verdict))
            && self.theirs.iter().any(|verdict| theirs.is(verdict))
            && (self.when)(view)
    }
}

/// Whether some headers of Svix's own family are there, and others are not.
fn mixes_families(view: &View<'_>) -> bool {
    let present = ["svix-id", "svix-timestamp", "svix-signature"].map(|name| view.has(name));
    present.contains(&true) && present.contains(&false)
}

fn after_prefix(secret: &str) -> &str {
    secret.strip_prefix("whsec_").unwrap_or(secret)
}

fn cannot_be_a_secret(secret: &str) -> bool {
    let digits = after_prefix(secret).trim_end_matches('=');
    digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn lacks_linear_timestamp(view: &View<'_>) -> bool {
    let body: Value = serde_json::from_slice(&view.case.body).unwrap_or_default();
    let millis = match &body["webhookTimestamp"] {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let passes = |millis: u64| {
        let distance = view.case.now.abs_diff(millis / 1_000);
        view.case.tolerance.is_none_or(|tolerance| distance <= tolerance)
    };
    !millis.is_some_and(passes)
}

/// Whether the oracle accepts it for the same url with, or without, a port.
fn matches_with_another_port(view: &View<'_>) -> bool {
    let url: Uri = view.case.url.parse().expect("a url");
    let authority = url.authority().expect("a host").as_str();
    let without = match url.port() {
        Some(port) => authority.trim_end_matches(port.as_str()).trim_end_matches(':'),
        None => authority,
    };
    ["", ":443", ":80"].iter().any(|port| {
        let url = view.case.url.replacen(authority, &format!("{without}{port}"), 1);
        oracles::webhook_verify(&Case { url, ..view.case.clone() }, Provider::Twilio).accepts()
    })
}

/// Unchecked, any number could be one.
fn could_be_timestamp(part: &[u8], unchecked: bool) -> bool {
    let digits = if unchecked { part.strip_prefix(b"-").unwrap_or(part) } else { part };
    let length = if unchecked { 1..=15 } else { 10..=10 };
    length.contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}
