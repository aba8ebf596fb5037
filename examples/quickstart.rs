//! The smallest receiver: Stripe's events, verified, and each of them handled once.
//!
//! ```text
//! STRIPE_SECRET=whsec_demo_secret cargo run --example quickstart
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks/stripe --duplicates 2
//! ```

use axum::{Router, routing::post};
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, scheme, store::MemoryStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt::init(); // shows why a delivery was refused
    let secret = std::env::var("STRIPE_SECRET").expect("STRIPE_SECRET is the endpoint's signing secret");
    let layer = WebhookLayer::new(scheme::stripe(secret)?, MemoryStore::new());
    let app = Router::new().route("/webhooks/stripe", post(on_event).layer(layer)); // on this route only

    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// Runs once per event. If it returns an error, the sender's retry runs it again.
async fn on_event(event: WebhookEvent) -> Result<(), HandlerError> {
    println!("handled {}: {}", event.id(), event.event_type().unwrap_or("no type"));
    Ok(())
}
