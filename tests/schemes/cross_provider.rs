//! What is signed for one provider is not taken for another's, though the secret be the same.

use std::collections::BTreeSet;

use axum::body::Bytes;
use axum::http::Request;
use tower_webhook::Outcome;
use tower_webhook::scheme::{Algorithm, Encoding};

use crate::schemes::endpoint::{DELIVERY_ID, Endpoint, SENT_TYPE, header, request, set};
use crate::schemes::preset::{EventType, Id, PRESETS, Preset, named};
use crate::schemes::signing::{ByHand, spell};

/// Signed for the first, taken by the second: they sign the same thing in the same header.
const SAME: &[(&str, &str)] = &[
    ("atlassian-jira", "bitbucket"),
    ("bitbucket", "atlassian-jira"),
    ("clerk", "resend"),
    ("clerk", "svix"),
    ("github", "meta"),
    ("gitlab-signed", "clerk"),
    ("gitlab-signed", "resend"),
    ("gitlab-signed", "standard-webhooks"),
    ("gitlab-signed", "svix"),
    ("meta", "github"),
    ("resend", "clerk"),
    ("resend", "svix"),
    ("standard-webhooks", "clerk"),
    ("standard-webhooks", "gitlab-signed"),
    ("standard-webhooks", "resend"),
    ("standard-webhooks", "svix"),
    ("svix", "clerk"),
    ("svix", "resend"),
];

/// Gives the request whatever the receiver wants beside a proof, so that the proof alone decides.
fn dressed_for(receiver: &Preset, mut request: Request<Bytes>) -> Request<Bytes> {
    if let Id::Unsigned(name) | Id::UnsignedWithType(name) = receiver.id {
        set(&mut request, name, DELIVERY_ID);
    }
    if let EventType::Header(name) = receiver.event_type {
        set(&mut request, name, SENT_TYPE);
    }
    request
}

/// Whether the endpoint found the delivery genuine: a 400 finds fault with the event only, after that.
async fn is_verified(endpoint: &Endpoint, request: Request<Bytes>, what: &str) -> bool {
    let answer = endpoint.send(request).await;
    match answer.outcome {
        Some(Outcome::Refused(rejection)) => {
            let failed = rejection.kind().status() == 401;
            assert_eq!(endpoint.runs(), 0, "{what}");
            assert!(endpoint.store.keys().is_empty(), "{what}");
            !failed
        }
        _ => true,
    }
}

/// Every pair of these presets of which the second takes what is signed for the first.
async fn pairs(presets: &[Preset], secret: Option<&str>) -> BTreeSet<(&'static str, &'static str)> {
    let scheme = |preset: &Preset| secret.map_or_else(|| preset.scheme(), |secret| named(preset.name, secret));
    let mut found = BTreeSet::new();
    for sender in presets {
        let sent = match secret {
            None => request(sender),
            Some(secret) => {
                let key = match (sender.key, secret.strip_prefix("whsec_")) {
                    (Encoding::Base64, Some(encoded)) => crate::schemes::signing::unspell(Encoding::Base64, encoded),
                    _ => secret.as_bytes().to_vec(),
                };
                ByHand { key, ..ByHand::of(sender).expect("signed by hand") }.request()
            }
        };
        for receiver in presets.iter().filter(|receiver| receiver.name != sender.name) {
            let what = format!("{} at {}", sender.name, receiver.name);
            let endpoint = Endpoint::new(scheme(receiver));
            if is_verified(&endpoint, dressed_for(receiver, sent.clone()), &what).await {
                found.insert((sender.name, receiver.name));
            }
        }
    }
    found
}

#[tokio::test]
async fn delivery_for_one_preset_is_refused_by_another_with_the_same_secret() {
    let expected: BTreeSet<_> = SAME.iter().copied().collect();
    assert_eq!(pairs(PRESETS, None).await, expected);
}

/// With the prefix, OpenAI makes the same key of a secret as the others do; Stripe does not.
#[tokio::test]
async fn prefixed_secret_makes_openai_a_standard_one() {
    let names = [
        "standard-webhooks",
        "gitlab-signed",
        "openai",
        "svix",
        "clerk",
        "resend",
        "stripe",
        "timestamped",
        "slack",
        "github",
        "zoom",
    ];
    let presets: Vec<Preset> = names
        .iter()
        .map(|name| match Preset::named(name) {
            preset if preset.name == "openai" => Preset { key: Encoding::Base64, ..preset },
            preset => preset,
        })
        .collect();
    let found = pairs(&presets, Some("whsec_YSBzaWduaW5nIHRva2VuIGFzIEdpdExhYidzLCAzMi4=")).await;
    let mut expected: BTreeSet<_> =
        SAME.iter().copied().filter(|(from, to)| names.contains(from) && names.contains(to)).collect();
    for other in ["standard-webhooks", "gitlab-signed"] {
        expected.extend([("openai", other), (other, "openai")]);
    }
    for other in ["svix", "clerk", "resend"] {
        expected.insert(("openai", other));
    }
    assert_eq!(found, expected);
}

/// What is signed, by what, under which key: those that agree in all of it can be passed off for each other by whoever puts
/// the signature into the other's header. Nobody should use one secret for two of them.
fn group(preset: &Preset) -> Option<String> {
    Some(format!("{} {:?} {}", preset.algorithm, preset.key, preset.signs?))
}

/// The signature of one, spelled and placed as the other wants it.
#[tokio::test]
async fn signature_moved_to_another_header_counts_only_where_the_same_is_signed() {
    let by_hand = |preset: &&Preset| ByHand::of(preset).is_some();
    // A form's parameters are signed, not its bytes: Twilio has its own tests.
    let presets: Vec<&Preset> = PRESETS.iter().filter(by_hand).filter(|preset| !preset.is_form).collect();
    let mut same = 0;
    for sender in &presets {
        for receiver in presets.iter().filter(|receiver| receiver.name != sender.name) {
            let (from, to) = (ByHand::of(sender).expect("by hand"), ByHand::of(receiver).expect("by hand"));
            // As much alike as can be: one body, one time, one id; and what differs is what is signed.
            let signed =
                ByHand { preset: **receiver, body: to.body.clone(), timestamp: to.timestamp.clone(), ..from.clone() };
            let moved = signed.with_signature(&spell(receiver.encoding, &signed.signature()));
            let what = format!("{} as {}", sender.name, receiver.name);
            let verified = is_verified(&Endpoint::new(receiver.scheme()), moved, &what).await;
            assert_eq!(verified, group(sender) == group(receiver), "{what}");
            same += usize::from(verified);
        }
    }
    assert!(same > 100, "the many that sign the body alone: {same}");
}

/// GitLab sends the secret itself: nothing else may be had for it, nor it for anything else.
#[tokio::test]
async fn token_is_no_signature() {
    let gitlab = request(&Preset::named("gitlab"));
    let token = header(&gitlab, "x-gitlab-token").to_owned();
    for preset in PRESETS.iter().filter(|preset| preset.algorithm != Algorithm::Token) {
        let Some(name) = preset.header else { continue };
        let mut sent = request(preset);
        set(&mut sent, name, preset.reads.replace("{signature}", &token).replace("{timestamp}", "1700000000"));
        Endpoint::new(preset.scheme()).refuses(sent, preset.statuses.1, preset.name).await;
    }
}
