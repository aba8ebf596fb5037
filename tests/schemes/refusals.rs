//! What a sender is told of a refusal: the status that it understands, and nothing else.

use axum::body::Bytes;
use axum::http::{Request, Response, StatusCode};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::scheme::{self, Profile, Scheme};

use crate::schemes::endpoint::{Endpoint, delivery, request, unsigned};
use crate::schemes::preset::{PRESETS, Preset, SECRET};
use crate::support::NOW;

fn tampered(preset: &Preset) -> Request<Bytes> {
    delivery(preset).tampered().request_as()
}

/// A delivery that is refused after its signature has been checked.
fn wrongly_signed(preset: &Preset) -> Request<Bytes> {
    match preset.name {
        // Their bodies are not covered, or are read first: break what is signed.
        "gitlab" => delivery(preset).header("x-gitlab-token", "wrong").request_as(),
        "adyen" | "linear" | "mailgun" => {
            let mut request = request(preset);
            let body = String::from_utf8(request.body().to_vec()).expect("text");
            *request.body_mut() =
                body.replace("psp_1", "psp_2").replace("delivery-1", "delivery-2").replace("Issue", "Cycle").into();
            request
        }
        _ => tampered(preset),
    }
}

#[tokio::test]
async fn every_preset_has_its_providers_statuses() {
    for preset in PRESETS {
        let (unsigned_status, forged_status) = preset.statuses;
        let endpoint = Endpoint::new(preset.scheme());
        endpoint.refused(unsigned(preset), unsigned_status, preset.name).await;
        let kind = endpoint.refuses(wrongly_signed(preset), forged_status, preset.name).await;
        let told = matches!(kind, RejectionKind::SignatureMismatch | RejectionKind::MalformedSignature);
        assert!(told, "{}: {kind:?}", preset.name);
    }
    let of = |name: &str| Preset::named(name).statuses;
    assert_eq!(
        [of("pagerduty"), of("twilio"), of("xero"), of("discord")],
        [(403, 403), (400, 403), (401, 401), (401, 401)]
    );
}

// Otherwise: the 400 of a missing signature says "the body cannot be used", which tells it from every other refusal and is not true.
#[tokio::test]
async fn missing_signature_of_twilio_is_told_nothing() {
    Endpoint::preset("twilio").refuses(unsigned(&Preset::named("twilio")), 400, "no signature").await;
}

/// The text of a status belongs to its own reason, not to a refusal that was given that status.
// As above: with 503 there is even a `Retry-After`.
#[tokio::test]
async fn refusal_status_brings_no_text_of_its_own() {
    for status in [400, 405, 408, 409, 413, 415, 503] {
        let endpoint = Endpoint::configured(scheme::stripe(SECRET).unwrap(), |layer| {
            layer.refusal_status(StatusCode::from_u16(status).unwrap())
        });
        let answer = endpoint.refused(tampered(&Preset::named("stripe")), status, "tampered").await;
        assert!(answer.body.is_empty(), "{status}: {:?}", answer.body);
    }
}

#[tokio::test]
async fn refusal_status_goes_before_the_schemes() {
    for preset in PRESETS {
        let endpoint = Endpoint::configured(preset.scheme(), |layer| layer.refusal_status(StatusCode::NOT_FOUND));
        endpoint.refuses(unsigned(preset), 404, preset.name).await;
        endpoint.refuses(wrongly_signed(preset), 404, preset.name).await;
        if preset.tolerance.is_some() {
            let stale = crate::schemes::endpoint::delivery_at(preset, NOW / 2).request_as();
            assert_eq!(endpoint.refuses(stale, 404, preset.name).await, RejectionKind::Stale);
        }
        endpoint.accepts(request(preset), preset.name).await;
    }
}

/// What is wrong with something else than the proof keeps its own status.
#[tokio::test]
async fn refusal_status_is_of_failed_verifications_only() {
    let endpoint = Endpoint::configured(scheme::stripe(SECRET).unwrap(), |layer| {
        layer.refusal_status(StatusCode::NOT_FOUND).body_limit(200).unwrap()
    });
    let sender = tower_webhook::testing::TestSender::new(scheme::stripe(SECRET).unwrap())
        .clock(tower_webhook::testing::ManualClock::at_unix(NOW));
    endpoint.refused(sender.deliver("{}").request_as(), 400, "no id").await;
    endpoint.refused(sender.deliver(vec![b' '; 201]).request_as(), 413, "too large").await;
    endpoint.refused(sender.deliver("{}").header("content-encoding", "gzip").request_as(), 415, "encoded").await;
    endpoint.refused(Request::get("/").body(Bytes::new()).unwrap(), 405, "another method").await;
}

#[tokio::test]
async fn answer_refusals_goes_before_everything() {
    for name in ["pagerduty", "twilio", "xero", "meta"] {
        let preset = Preset::named(name);
        let endpoint = Endpoint::configured(preset.scheme(), |layer| {
            layer.refusal_status(StatusCode::NOT_FOUND).answer_refusals(|rejection, _| {
                assert_ne!(rejection.kind().as_str(), "");
                Response::builder().status(418).body(Bytes::from_static(b"no")).unwrap()
            })
        });
        for sent in [unsigned(&preset), wrongly_signed(&preset)] {
            assert_eq!(endpoint.refused(sent, 418, name).await.body, "no", "{name}");
        }
        let probe = Request::get("/webhooks?hub.mode=subscribe").body(Bytes::new()).unwrap();
        assert_eq!(endpoint.refused(probe, 418, name).await.body, "no", "{name}: a probe is refused like that, too");
    }
}

#[tokio::test]
async fn own_scheme_says_its_statuses_in_its_profile() {
    let mut profile = Profile::default().refusal_status(StatusCode::FORBIDDEN);
    profile.unsigned_status = StatusCode::NOT_FOUND;
    let scheme = scheme::vercel(SECRET).unwrap().with_profile(profile);
    let preset = Preset::named("vercel");
    let endpoint = Endpoint::new(scheme);
    endpoint.refuses(unsigned(&preset), 404, "no signature").await;
    endpoint.refuses(tampered(&preset), 403, "a wrong one").await;
}

/// Nothing in the answer tells one failed check from another.
#[tokio::test]
async fn forged_deliveries_cannot_tell_which_check_they_failed() {
    for preset in PRESETS.iter().filter(|preset| preset.header.is_some()) {
        let endpoint = Endpoint::new(preset.scheme());
        let mut malformed = request(preset);
        crate::schemes::endpoint::set(&mut malformed, preset.header.expect("a header"), "\u{7e}");
        let mut answers = vec![endpoint.send(malformed).await, endpoint.send(wrongly_signed(preset)).await];
        if preset.tolerance.is_some() {
            answers.push(endpoint.send(crate::schemes::endpoint::delivery_at(preset, NOW / 2).request_as()).await);
        }
        let [first, others @ ..] = &answers[..] else { unreachable!() };
        for other in others {
            assert_eq!((other.status, &other.headers, &other.body), (first.status, &first.headers, &first.body));
        }
    }
}

/// What operators read of a refusal has nothing of the request or the secret in it.
#[tokio::test]
async fn reason_of_a_refusal_shows_neither_the_secret_nor_what_was_sent() {
    let marker = "markermarker";
    for preset in PRESETS.iter().filter(|preset| preset.header.is_some()) {
        let mut sent = request(preset);
        crate::schemes::endpoint::set(&mut sent, preset.header.expect("a header"), marker);
        let answer = Endpoint::new(preset.scheme()).send(sent).await;
        let shown = format!("{:?} {:?}", answer.outcome, preset.scheme().secrets());
        let told =
            answer.outcome.and_then(|outcome| outcome.rejection().map(ToString::to_string)).expect("a rejection");
        for text in [&shown, &told] {
            assert!(!text.contains(marker) && !text.contains(SECRET), "{}: {text}", preset.name);
        }
    }
}

/// The layer takes the scheme's word for it, through an `Arc` as well.
#[test]
fn shared_scheme_is_the_same_scheme() {
    for preset in PRESETS {
        let (plain, shared) = (preset.scheme(), std::sync::Arc::new(preset.scheme()));
        assert_eq!(plain.signs(), shared.signs());
        assert_eq!(plain.profile().forged_status, shared.profile().forged_status);
        assert_eq!(plain.profile().unsigned_status, shared.profile().unsigned_status);
        assert!(!plain.signs().is_empty() && plain.signs() != "a scheme of its own", "{}", preset.name);
    }
}
