//! What a provider sends is accepted, handled once, and told of truly.

use std::time::{Duration, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::Request;
use sha2::{Digest, Sha256};
use tower_webhook::{Outcome, WebhookEvent};

use crate::schemes::endpoint::{DELIVERY_ID, Endpoint, SENT_TYPE, delivery, delivery_at, set};
use crate::schemes::preset::{EventType, Id, OPTIONAL_IDS, PRESETS, Preset};
use crate::schemes::signing::ByHand;
use crate::support::NOW;

/// What the event must be called, given what was sent.
fn expected_id(preset: &Preset, sent: &Request<Bytes>) -> Option<String> {
    let digest = |bytes: &[u8]| Some(hex::encode(Sha256::digest(bytes)));
    match preset.id {
        Id::Json(id) => Some(id.to_owned()),
        Id::Signed | Id::Unsigned(_) => Some(DELIVERY_ID.to_owned()),
        Id::UnsignedWithType(_) => Some(format!("{}:{SENT_TYPE}:{DELIVERY_ID}", SENT_TYPE.len())),
        Id::BodyDigest => digest(sent.body()),
        Id::FieldsDigest => {
            let fields = "psp_1::Acme:order 1:1000:EUR:AUTHORISATION:true";
            digest(&[&(fields.len() as u64).to_le_bytes()[..], fields.as_bytes()].concat())
        }
        Id::None => None,
    }
}

fn assert_facts(preset: &Preset, sent: &Request<Bytes>, event: &WebhookEvent) {
    let name = preset.name;
    assert_eq!(event.body(), sent.body(), "{name}: the signed bytes");
    match expected_id(preset, sent) {
        Some(id) => assert_eq!((event.id(), event.is_deduplicated()), (&*id, true), "{name}"),
        None => assert!(!event.is_deduplicated(), "{name}"),
    }
    let is_signed = matches!(preset.id, Id::Json(_) | Id::Signed | Id::BodyDigest | Id::FieldsDigest);
    assert_eq!(event.id_is_authenticated(), is_signed, "{name}");
    let event_type = match preset.event_type {
        EventType::None => None,
        EventType::InBody(text) => Some(text),
        EventType::Header(_) => Some(SENT_TYPE),
    };
    assert_eq!(event.event_type(), event_type, "{name}");
    let is_body_signed = !matches!(name, "adyen" | "gitlab" | "mailgun" | "twilio" | "twilio-shared-key");
    let is_type_signed = matches!(preset.event_type, EventType::InBody(_)) && is_body_signed;
    assert_eq!(event.event_type_is_authenticated(), is_type_signed, "{name}");
    let signed_at = preset.tolerance.map(|_| UNIX_EPOCH + Duration::from_secs(NOW));
    assert_eq!(event.signed_at(), signed_at, "{name}: only a timestamp that is signed is told");
    assert_eq!(event.endpoint(), name, "no router named the endpoint");
}

#[tokio::test]
async fn every_preset_runs_its_providers_delivery_once() {
    for preset in PRESETS {
        let endpoint = Endpoint::new(preset.scheme());
        let delivery = delivery(preset);
        let sent = delivery.request_as();
        let event = endpoint.accepts(sent.clone(), preset.name).await;
        assert_facts(preset, &sent, &event);
        let again = endpoint.send(delivery.request_as()).await;
        assert!(again.status.is_success(), "{}", preset.name);
        let (outcome, runs) = match preset.id {
            Id::None => (Outcome::Completed, 2),
            _ => (Outcome::Duplicate, 1),
        };
        assert_eq!((again.outcome, endpoint.runs()), (Some(outcome), runs), "{}", preset.name);
        assert_eq!(endpoint.store.keys().is_empty(), preset.id == Id::None, "{}", preset.name);
    }
}

/// What is signed, where and in which spelling is written down here once more: both halves cannot be wrong together. (Only the
/// SHA-1 and asymmetric primitives are the crate's.)
#[tokio::test]
async fn every_preset_accepts_what_is_signed_by_hand() {
    let mut by_hand = 0;
    for preset in PRESETS {
        let Some(signed) = ByHand::of(preset) else { continue };
        Endpoint::new(preset.scheme()).accepts(signed.request(), preset.name).await;
        by_hand += 1;
    }
    assert_eq!(by_hand, PRESETS.len() - 3, "all but adyen, gitlab and mailgun, which `in_body` and others sign");
}

#[tokio::test]
async fn retry_signed_later_is_the_same_event() {
    let later = Duration::from_secs(3600);
    for preset in PRESETS.iter().filter(|preset| !matches!(preset.id, Id::None)) {
        let endpoint = Endpoint::new(preset.scheme());
        endpoint.accepts(delivery(preset).request_as(), preset.name).await;
        endpoint.clock.advance(later);
        let retry = delivery_at(preset, NOW + later.as_secs()).request_as::<Bytes>();
        let answer = endpoint.send(retry).await;
        assert_eq!(answer.outcome, Some(Outcome::Duplicate), "{}", preset.name);
    }
}

#[tokio::test]
async fn without_their_unsigned_header_gitlab_and_twilio_run_at_every_delivery() {
    for (name, header) in OPTIONAL_IDS {
        let preset = Preset::named(name);
        let endpoint = Endpoint::new(preset.scheme());
        for _ in 0..2 {
            let mut sent: Request<Bytes> = delivery(&preset).request_as();
            sent.headers_mut().remove(header).expect("the kit sends it");
            let event = endpoint.accepts(sent, name).await;
            assert!(!event.is_deduplicated() && !event.id_is_authenticated(), "{name}");
        }
        assert_eq!(endpoint.runs(), 2);
        assert!(endpoint.store.keys().is_empty(), "{name}: nothing is stored");
    }
}

#[tokio::test]
async fn other_unsigned_ids_are_demanded() {
    for preset in PRESETS.iter().filter(|preset| OPTIONAL_IDS.iter().all(|(name, _)| *name != preset.name)) {
        let (Id::Unsigned(header) | Id::UnsignedWithType(header)) = preset.id else { continue };
        let mut sent: Request<Bytes> = delivery(preset).request_as();
        sent.headers_mut().remove(header).expect("the kit sends it");
        // Genuine, but of no use: this is no failed verification, so it is no 401.
        Endpoint::new(preset.scheme()).refused(sent, 400, preset.name).await;
    }
}

#[tokio::test]
async fn slack_commands_and_interactions_are_known_by_their_trigger() {
    let preset = Preset::named("slack");
    let sender = tower_webhook::testing::TestSender::new(preset.sending())
        .clock(tower_webhook::testing::ManualClock::at_unix(NOW));
    for (body, id, event_type) in [
        ("token=x&command=%2Fdeploy&trigger_id=13.37.a", Some("13.37.a"), Some("/deploy")),
        (
            "payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%2213.37.b%22%7D",
            Some("13.37.b"),
            Some("block_actions"),
        ),
        ("payload=%7B%22type%22%3A%22view_closed%22%7D", None, Some("view_closed")),
    ] {
        let endpoint = Endpoint::new(preset.scheme());
        let event = endpoint.accepts(sender.deliver(body).form().request_as(), body).await;
        assert_eq!((event.is_deduplicated().then(|| event.id()), event.event_type()), (id, event_type));
        let again = endpoint.send(sender.deliver(body).form().request_as()).await.outcome;
        assert_eq!(again, Some(if id.is_some() { Outcome::Duplicate } else { Outcome::Completed }), "{body}");
    }
}

#[tokio::test]
async fn shopify_tells_two_topics_of_one_id_apart() {
    let preset = Preset::named("shopify");
    let endpoint = Endpoint::new(preset.scheme());
    for (topic, outcome) in [
        ("orders/paid", Outcome::Completed),
        ("orders/updated", Outcome::Completed),
        ("orders/paid", Outcome::Duplicate),
    ] {
        let sent = delivery(&preset).event_type(topic).request_as();
        assert_eq!(endpoint.send(sent).await.outcome, Some(outcome), "{topic}");
    }
}

/// One merchant's action may change two products: one event id, two deliveries.
#[tokio::test]
async fn shopify_events_are_known_by_their_event_id_only_without_a_webhook_id() {
    let preset = Preset::named("shopify");
    let sent = |topic: &str, webhook_id: Option<&str>| {
        let mut sent: Request<Bytes> =
            delivery(&preset).event_type(topic).header("x-shopify-event-id", "evt").request_as();
        sent.headers_mut().remove("shopify-webhook-id").expect("the kit sends it");
        webhook_id.into_iter().for_each(|id| set(&mut sent, "x-shopify-webhook-id", id));
        sent
    };
    let endpoint = Endpoint::new(preset.scheme());
    for (topic, webhook_id, outcome) in [
        ("products/update", Some("1"), Outcome::Completed),
        ("products/update", Some("2"), Outcome::Completed),
        ("products/update", Some("2"), Outcome::Duplicate),
        ("products/update", None, Outcome::Completed),
        ("products/update", None, Outcome::Duplicate),
        ("products/create", None, Outcome::Completed),
    ] {
        let answer = endpoint.send(sent(topic, webhook_id)).await;
        assert_eq!(answer.outcome, Some(outcome), "{topic} {webhook_id:?}");
    }
}

#[tokio::test]
async fn shopify_and_svix_senders_may_use_either_family_of_headers() {
    let renamed = |name: &str, from: &str, to: &str| {
        let mut sent: Request<Bytes> = delivery(&Preset::named(name)).request_as();
        let names: Vec<_> = sent.headers().keys().filter(|name| name.as_str().starts_with(from)).cloned().collect();
        for name in names {
            let value = sent.headers_mut().remove(&name).expect("it is there");
            set(&mut sent, &name.as_str().replacen(from, to, 1), value);
        }
        sent
    };
    for (name, from, to) in [("shopify", "shopify-", "x-shopify-"), ("svix", "svix-", "webhook-")] {
        let endpoint = Endpoint::preset(name);
        endpoint.accepts(renamed(name, from, to), name).await;
        let first = endpoint.send(delivery(&Preset::named(name)).request_as()).await;
        assert_eq!(first.outcome, Some(Outcome::Duplicate), "{name}: the same event in the other family");
    }
}
