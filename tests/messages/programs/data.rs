//~ an event's body cannot be parsed as
//~ add `#[derive(serde::Deserialize)]` to it

use axum::extract::FromRequestParts;
use tower_webhook::WebhookEvent;

struct Invoice;

/// As `#[axum::debug_handler]` checks it.
fn is_argument<T: FromRequestParts<()>>() {}

pub fn handler() {
    is_argument::<WebhookEvent<Invoice>>();
}
