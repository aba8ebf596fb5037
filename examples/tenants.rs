//! One route for many tenants, each with a secret of its own: the tenant is a part of the path, under `nest`.
//!
//! ```text
//! cargo run --example tenants
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks/acme/stripe --secret whsec_acme --id evt_1
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks/umbrella/stripe --secret whsec_umbrella --id evt_1
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks/umbrella/stripe --secret whsec_acme      # 401
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use axum::{Router, routing::post};
use tower_webhook::secrets::{Secret, TenantSecrets};
use tower_webhook::{WebhookEvent, WebhookLayer, scheme, store::MemoryStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Stands for a table or a vault.
    let known = Arc::new(HashMap::from([("acme", "whsec_acme"), ("umbrella", "whsec_umbrella")]));
    let secrets = TenantSecrets::by_path("tenant", move |tenant| {
        let known = known.clone();
        async move {
            let secret = known.get(&*tenant).map(|text| Secret::new(*text)).transpose()?;
            // `None` is a tenant that does not exist. It gets the same 401 as a wrong signature.
            Ok(secret.map(|secret| vec![secret]))
        }
    });
    // The lookup is cached. Call `secrets.forget("acme")` when a tenant's secret changes.
    let layer = WebhookLayer::new(scheme::stripe(secrets.clone())?, MemoryStore::new());
    let webhooks = Router::new().route("/{tenant}/stripe", post(on_event)).layer(layer);
    let app = Router::new().nest("/webhooks", webhooks);

    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// The tenant is a part of the event's key: `evt_1` of two tenants is two events.
async fn on_event(event: WebhookEvent) {
    println!("{} of {}", event.id(), event.tenant().unwrap_or("nobody"));
}
