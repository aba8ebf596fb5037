//! The layer in the stack that services usually have: tracing, a timeout, a limit, compression, caught panics.
//!
//! ```text
//! cargo run --example tower_http_stack
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks --duplicates 2
//! ```
//!
//! What changes the body before the layer sees it breaks every signature: decompression belongs inside, or nowhere.

use std::time::Duration;

use axum::http::StatusCode;
use axum::middleware::map_response;
use axum::response::Response;
use axum::{Router, routing::get, routing::post};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;
use tower_webhook::{Outcome, WebhookEvent, WebhookLayer, scheme, store::MemoryStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt::init();
    let webhooks = WebhookLayer::new(scheme::stripe("whsec_demo_secret")?, MemoryStore::new());
    // The first is the outermost. A handler that outlasts the timeout runs on, and the sender's retry gets its 200.
    let stack = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(CatchPanicLayer::new())
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(20)))
        .layer(CompressionLayer::new())
        .layer(RequestBodyLimitLayer::new(1024 * 1024))
        .layer(webhooks);
    let receiver = Router::new().route("/webhooks", post(on_event)).layer(stack).layer(map_response(count));
    // Routes of other kinds are merged afterwards, so that the layer does not see them.
    let app = Router::new().route("/health", get(|| async { "ok" })).merge(receiver);

    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn on_event(event: WebhookEvent) -> String {
    format!("thank you for {}\n", event.id())
}

/// Every response of the layer says how the delivery ended, for a counter.
async fn count(response: Response) -> Response {
    if let Some(outcome) = response.extensions().get::<Outcome>() {
        println!("counted {}", outcome.as_str());
    }
    response
}
