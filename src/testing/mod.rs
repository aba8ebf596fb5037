//! Tools for tests of webhook handlers and stores: signed requests, a clock to turn by hand, replays, and a conformance
//! suite.
//!
//! A [`TestKit`] has all that the test of a receiver needs, on one clock:
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::{Router, routing::post};
//! use tower_webhook::{Outcome, WebhookEvent, WebhookLayer, scheme, testing::TestKit};
//!
//! async fn on_event(_: WebhookEvent) {}
//!
//! fn app(webhooks: WebhookLayer) -> Router {
//!     Router::new().route("/webhooks", post(on_event)).layer(webhooks)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_webhook::ConfigError> {
//! let kit = TestKit::new(scheme::timestamped("whsec_test")?);
//! let app = app(kit.layer());
//! let event = kit.deliver(r#"{"id":"evt_1","type":"invoice.paid"}"#);
//!
//! let response = event.send(&app).await;
//! assert_eq!((response.status().as_u16(), response.extensions().get()), (200, Some(&Outcome::Completed)));
//!
//! kit.advance(Duration::from_secs(60));
//! assert_eq!(event.send(&app).await.extensions().get(), Some(&Outcome::Duplicate));
//!
//! // A completed event is remembered for seven days.
//! kit.advance(Duration::from_secs(8 * 24 * 3600));
//! assert_eq!(event.send(&app).await.extensions().get(), Some(&Outcome::Completed));
//! # Ok(())
//! # }
//! ```
//!
//! [`TestSender`] is the part of it that signs, for a receiver with a store or a clock of its own. [`Replay`] sends
//! deliveries again, all at once or out of order.

mod clock;
pub mod conformance;
mod kit;
mod replay;
mod sender;

pub use self::{
    clock::ManualClock,
    kit::TestKit,
    replay::Replay,
    sender::{TestDelivery, TestSender},
};
