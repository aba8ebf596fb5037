//! Stripe and GitHub: two routes, two schemes, one store.
//!
//! ```text
//! cargo run --example two_providers
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks/stripe
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks/github --scheme github
//! ```

use axum::{Router, routing::post};
use serde::Deserialize;
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, scheme, store::MemoryStore};

#[derive(Deserialize)]
struct Push {
    #[serde(rename = "ref")]
    branch: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let secret = |name| std::env::var(name).unwrap_or_else(|_| "whsec_demo_secret".to_owned());
    // One store for both: events are remembered by the route, so ids of two providers cannot collide.
    let store = MemoryStore::new();
    let stripe = WebhookLayer::new(scheme::stripe(secret("STRIPE_SECRET"))?, store.clone());
    let github = WebhookLayer::new(scheme::github(secret("GITHUB_SECRET"))?, store);
    let app = Router::new()
        .route("/webhooks/stripe", post(on_stripe).layer(stripe))
        .route("/webhooks/github", post(on_github).layer(github));

    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn on_stripe(event: WebhookEvent) {
    println!("stripe {}: {}", event.id(), event.event_type().unwrap_or("no type"));
}

async fn on_github(event: WebhookEvent<Push>) -> Result<(), HandlerError> {
    // GitHub names the type in a header, which its signature does not cover: what matters is checked in the body.
    if !event.data().branch.starts_with("refs/heads/") {
        return Err(HandlerError::permanent("not a branch: no retry will make it one"));
    }
    println!("github {}: {}", event.id(), event.data().branch);
    Ok(())
}
