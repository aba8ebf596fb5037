//! A scheme for a provider that the crate does not know: first as a template, then as a closure.
//!
//! ```text
//! cargo run --example own_scheme
//! ```
//!
//! It plays the provider, too, and delivers one event as it should be, and one with a changed body.

use std::error::Error;
use std::time::Duration;

use axum::{Router, http::HeaderName, routing::post};
use tower::ServiceExt;
use tower_webhook::identity::{IdSource, TypeSource};
use tower_webhook::scheme::{Custom, Encoding, Proof, Scheme, Template};
use tower_webhook::secrets::{Algorithm, Key, Secrets};
use tower_webhook::testing::TestSender;
use tower_webhook::{ConfigError, Outcome, WebhookEvent, WebhookLayer, store::MemoryStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    deliver("template", acme()?).await?;
    deliver("closure", region_bound()?).await
}

/// Acme signs `{timestamp}.{body}`, and puts the MAC and the timestamp into two headers. Most providers are like that.
fn acme() -> Result<Template, ConfigError> {
    let template = Template::builder("acme")
        .signature("x-acme-signature", "v1={hex},…") // `…`: a list, any of which may match
        .timestamp("x-acme-timestamp")
        .signed("{timestamp}.{body}")
        .id_source(IdSource::json("event.id")?)
        .type_source(TypeSource::json("event.type")?)
        .build(["the new secret", "the old one"])?;
    Ok(template.tolerance(Duration::from_secs(180)))
}

/// `x-acme-proof: <region>:<hex>`, over the region, a line break and the body: no template says that.
///
/// The closure says what the request claims and which bytes are signed. The layer makes the MACs and compares them.
fn region_bound() -> Result<Custom, ConfigError> {
    let secrets = Secrets::new("a secret", |text| Key::hmac_sha256(text.as_bytes()))?;
    let scheme = Custom::by_head("acme-regional", secrets, |head| {
        let value = head.proof_header("x-acme-proof")?;
        let colon = value.iter().position(|byte| *byte == b':').unwrap_or(value.len());
        let (region, signature) = value.split_at(colon);
        let mut proof = Proof::new().prefix(&[region, b"\n"].concat());
        proof.add(Algorithm::HmacSha256, Encoding::Hex, signature.strip_prefix(b":").unwrap_or_default());
        Ok(proof)
    });
    // Only the test kit signs. A receiver needs no more than the closure above.
    Ok(scheme.signing(|message, secrets| {
        let mac = secrets.first_active(message.signed_at)?.sign(&[b"eu\n", message.request.body()])?;
        message.set_header(&HeaderName::from_static("x-acme-proof"), &format!("eu:{}", hex(&mac)))
    }))
}

async fn deliver(name: &str, scheme: impl Scheme + Clone) -> Result<(), Box<dyn Error>> {
    let layer = WebhookLayer::new(scheme.clone(), MemoryStore::new());
    let app = Router::new().route("/webhooks", post(async |event: WebhookEvent| event.id().to_owned())).layer(layer);
    let event = TestSender::new(scheme).deliver(r#"{"id":"evt_1","event":{"id":"evt_1","type":"paid"}}"#);
    for (what, delivery) in [("genuine", event.clone()), ("tampered", event.tampered())] {
        let answer = app.clone().oneshot(delivery.request()).await?;
        let outcome = answer.extensions().get::<Outcome>().ok_or("the layer says how it ended")?;
        println!("{name}, {what}: {} {}", answer.status(), outcome.as_str());
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
