//! Tools for tests of webhook handlers and stores: signed requests, a clock to turn by hand, replays, and a conformance
//! suite.
//!
//! A test of a whole receiver is three lines:
//!
//! ```
//! use axum::{Router, body::Body, routing::post};
//! use tower::ServiceExt;
//! use tower_webhook::{WebhookEvent, WebhookLayer, scheme, store::MemoryStore, testing::TestSender};
//!
//! # fn app(scheme: scheme::Template) -> Router {
//! #     async fn on_event(_: WebhookEvent) {}
//! #     Router::new().route("/webhooks", post(on_event)).layer(WebhookLayer::new(scheme, MemoryStore::new()))
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let sender = TestSender::new(scheme::timestamped("whsec_test")?);
//! let response = app(scheme::timestamped("whsec_test")?)
//!     .oneshot(sender.deliver(r#"{"id":"evt_1","type":"invoice.paid"}"#).request::<Body>())
//!     .await?;
//! assert_eq!(response.status(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clock;
pub mod conformance;
mod replay;
mod sender;

pub use self::{
    clock::ManualClock,
    replay::Replay,
    sender::{TestDelivery, TestSender},
};
