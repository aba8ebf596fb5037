//! What drains an inbox: leases events, drives the service with them, and settles what came of it.
//!
//! Read it in the order in which an event passes: `worker` (what is configured) → `crew` (events are leased, as many as there is
//! room for) → `job` (one of them runs, behind the same machine as a delivery) → `queued` (it is completed, retried or buried).
//!
//! ```
//! use axum::{Router, body::Body, routing::post};
//! use tower::ServiceExt;
//! use tower_webhook::{Outcome, WebhookEvent, WebhookLayer, Worker, scheme, store::MemoryStore, testing::TestSender};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! async fn on_event(event: WebhookEvent) {
//!     assert_eq!((event.id(), event.attempt()), ("evt_1", Some(1)));
//! }
//!
//! let (scheme, inbox) = (scheme::timestamped("whsec_test")?, MemoryStore::new());
//! let handlers = Router::new().route("/webhooks", post(on_event));
//! let app = handlers.clone().layer(WebhookLayer::inbox(scheme.clone(), inbox.clone()));
//!
//! let event = TestSender::new(scheme).uri("/webhooks").deliver(r#"{"id":"evt_1","type":"invoice.paid"}"#);
//! let answer = app.oneshot(event.request::<Body>()).await?;
//! assert_eq!(answer.extensions().get(), Some(&Outcome::Accepted));
//!
//! // In production: `worker.run(shutdown)`.
//! assert_eq!(Worker::new(inbox, handlers).run_until_idle().await, 1);
//! # Ok(())
//! # }
//! ```

mod bulkheads;
mod crew;
mod hooks;
mod job;
#[allow(clippy::module_inception, reason = "the worker is what this module is about")]
mod worker;

pub use self::{hooks::DeadLetter, worker::Worker};
pub use crate::retry::RetryPolicy;
