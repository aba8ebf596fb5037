//! The replay guard in front of real presets: what their docs say that it refuses, and what it lets pass.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::Request;
use tower_webhook::Outcome::{self, Completed, Duplicate};
use tower_webhook::WebhookLayer;
use tower_webhook::rejection::RejectionKind;

use crate::schemes::endpoint::{DELIVERY_ID, Endpoint, SENT_TYPE, delivery};
use crate::schemes::preset::{EventType, Id, OPTIONAL_IDS, PRESETS, Preset};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn guarded(preset: &Preset) -> Endpoint {
    Endpoint::configured(preset.scheme(), |layer: WebhookLayer| layer.replay_guard(DAY).expect("a window"))
}

fn replayed() -> Outcome {
    RejectionKind::Replayed.into()
}

/// The preset's own bytes under this id, and under this type where that is in a header.
fn sent(preset: &Preset, id: &str, event_type: &str) -> Request<Bytes> {
    let delivery = delivery(preset).id(id);
    match preset.event_type {
        EventType::Header(_) => delivery.event_type(event_type).request_as(),
        _ => delivery.request_as(),
    }
}

/// What becomes of the same bytes, one after the other, under these ids and types.
async fn outcomes(name: &str, deliveries: &[(&str, &str, Outcome)]) {
    let preset = Preset::named(name);
    let endpoint = guarded(&preset);
    for (id, event_type, expected) in deliveries {
        let answer = endpoint.send(sent(&preset, id, event_type)).await;
        assert_eq!(answer.outcome.as_ref(), Some(expected), "{name}: {id} of type {event_type}");
        let status = if *expected == replayed() { 401 } else { 200 };
        assert_eq!(answer.status, status, "{name}: {id} of type {event_type}");
    }
}

/// A redelivery keeps GitHub's id; nobody signed the type, so another one makes no other body.
#[tokio::test]
async fn body_alone_is_bound_to_the_id() {
    for name in ["atlassian-jira", "bitbucket", "github", "linear", "sentry"] {
        outcomes(
            name,
            &[
                ("1", "push", Completed),
                ("1", "push", Duplicate),
                ("2", "push", replayed()),
                ("2", "issues", replayed()),
                ("1", "push", Duplicate),
            ],
        )
        .await;
    }
}

/// Two topics may share their bytes, so both must pass, and with them a replay under another topic.
#[tokio::test]
async fn shopifys_body_is_bound_to_the_id_under_each_topic() {
    outcomes(
        "shopify",
        &[
            ("1", "orders/paid", Completed),
            ("2", "orders/paid", replayed()),
            ("2", "orders/updated", Completed),
            ("1", "orders/updated", replayed()),
            ("1", "orders/paid", Duplicate),
        ],
    )
    .await;
}

/// A replayer leaves the header out.
#[tokio::test]
async fn delivery_without_its_unsigned_id_passes_the_guard() {
    for (name, header) in OPTIONAL_IDS {
        let preset = Preset::named(name);
        let endpoint = guarded(&preset);
        endpoint.accepts(sent(&preset, "1", SENT_TYPE), name).await;
        assert_eq!(endpoint.send(sent(&preset, "2", SENT_TYPE)).await.outcome, Some(replayed()), "{name}");
        for _ in 0..2 {
            let mut without = sent(&preset, "1", SENT_TYPE);
            without.headers_mut().remove(header).expect("the kit sends it");
            endpoint.accepts(without, name).await;
        }
    }
}

/// Whoever has the token can change the body, and the guard knows it by its bytes.
#[tokio::test]
async fn changed_body_with_gitlabs_token_passes_the_guard() {
    let preset = Preset::named("gitlab");
    let endpoint = guarded(&preset);
    endpoint.accepts(sent(&preset, "1", SENT_TYPE), "genuine").await;
    let mut changed = sent(&preset, "2", SENT_TYPE);
    *changed.body_mut() = Bytes::from_static(b"{}");
    endpoint.accepts(changed, "changed").await;
}

#[tokio::test]
async fn dropbox_is_never_seen_by_the_guard() {
    let preset = Preset::named("dropbox");
    let endpoint = guarded(&preset);
    for _ in 0..3 {
        endpoint.accepts(sent(&preset, DELIVERY_ID, SENT_TYPE), "a capture").await;
    }
    assert!(endpoint.store.keys().is_empty());
}

#[tokio::test]
async fn only_unsigned_ids_are_guarded() {
    for preset in PRESETS {
        let endpoint = guarded(preset);
        endpoint.accepts(sent(preset, DELIVERY_ID, SENT_TYPE), preset.name).await;
        let asked = endpoint.store.keys().iter().any(|key| key.contains("replay-guard"));
        let unsigned = matches!(preset.id, Id::Unsigned(_) | Id::UnsignedWithType(_));
        assert_eq!(asked, unsigned, "{}", preset.name);
    }
}

#[tokio::test]
async fn next_event_of_every_preset_passes_the_guard() {
    let unsigned = |preset: &&Preset| matches!(preset.id, Id::Unsigned(_) | Id::UnsignedWithType(_));
    for preset in PRESETS.iter().filter(unsigned) {
        let other = match preset.is_form {
            true => Preset { body: "MessageSid=SM2&MessageStatus=sent", ..*preset },
            false => Preset { body: r#"{"webhookTimestamp":1700000000000,"n":2}"#, ..*preset },
        };
        let endpoint = guarded(preset);
        endpoint.accepts(sent(preset, "1", SENT_TYPE), preset.name).await;
        endpoint.accepts(sent(&other, "2", SENT_TYPE), preset.name).await;
    }
}
