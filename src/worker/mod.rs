//! Workers drain a queue: they lease events, run the service with them, and settle them by its answer.
//!
//! The code in the order in which an event passes it: `worker` (the configuration) → `poller` (leases events, as many
//! as there is room for) → `attempt` (runs one of them, through the same machine as a delivery) →
//! `machine::ledger::WorkerLedger` (completes, retries or buries it).
//!
//! ```
//! use axum::{Router, routing::post};
//! use tower_webhook::{Outcome, WebhookEvent, Worker, scheme, testing::TestKit};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! async fn on_event(event: WebhookEvent) {
//!     assert_eq!((event.id(), event.attempt()), ("evt_1", Some(1)));
//! }
//!
//! let kit = TestKit::new(scheme::timestamped("whsec_test")?);
//! let handlers = Router::new().route("/webhooks", post(on_event));
//! let app = handlers.clone().layer(kit.inbox());
//!
//! let answer = kit.deliver(r#"{"id":"evt_1","type":"invoice.paid"}"#).send(&app).await;
//! assert_eq!(answer.extensions().get(), Some(&Outcome::Accepted));
//!
//! // In production: `worker.run(shutdown)`.
//! assert_eq!(Worker::new(kit.store(), handlers).run_until_idle().await, 1);
//! # Ok(())
//! # }
//! ```

mod attempt;
mod bulkheads;
mod hooks;
mod poller;
#[allow(clippy::module_inception, reason = "the worker is what this module is about")]
mod worker;

pub use self::{
    hooks::{AttemptReport, DeadLetter},
    worker::Worker,
};
pub use crate::outcome::AttemptOutcome;
pub use crate::retry::RetryPolicy;
