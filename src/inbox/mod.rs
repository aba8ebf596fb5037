//! Acknowledge fast, process later, lose nothing.
//!
//! Senders give up after a few seconds. Behind an inbox the layer verifies a delivery, writes event and claim in one
//! atomic step, and answers; a [`Worker`](crate::Worker) then drives the *same* service with the stored request.
//! Nothing in the handlers changes:
//!
//! ```
//! use axum::{Router, routing::post};
//! use tower_webhook::{WebhookEvent, WebhookLayer, Worker, scheme, store::MemoryStore};
//!
//! async fn on_event(event: WebhookEvent) {
//!     println!("{}, attempt {:?}", event.id(), event.attempt());
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let inbox = MemoryStore::new();
//! let handlers = Router::new().route("/webhooks/stripe", post(on_event));
//! let app: Router = handlers.clone().layer(WebhookLayer::inbox(scheme::stripe("whsec_…")?, inbox.clone()));
//!
//! let worker = Worker::new(inbox, handlers);
//! let ctrl_c = async { tokio::signal::ctrl_c().await.expect("a signal handler") };
//! # let ctrl_c = async { let _ = ctrl_c; };
//! worker.run(ctrl_c).await;
//! # Ok(())
//! # }
//! ```
//!
//! # Inline or inbox
//!
//! | | inline, `WebhookLayer::new` | inbox, `WebhookLayer::inbox` |
//! |---|---|---|
//! | the sender waits for | the handler | one write |
//! | the sender sees | the handler's answer | 200, or 202 by choice |
//! | a slow handler | the sender times out; its retry finds the work done | nobody notices |
//! | the handler fails | the sender retries, as it likes | the worker retries: exponential, with jitter, `Retry-After` honoured |
//! | it never succeeds | the sender gives up; nothing is left here | a dead letter: the bytes and every attempt's error are kept |
//! | the process dies before the answer | the lease ends, the sender's retry runs | the sender's retry is accepted, or found accepted |
//! | the process dies while the handler runs | the lease ends, the sender's retry runs | the lease ends, another worker runs it: attempt + 1 |
//! | a duplicate meanwhile | waits, then 200 or 503 | 200 at once |
//! | the store is away | 503 | 503; workers wait until it is back |
//! | exactly-once effect | `complete_in` on Postgres and SQLite | the same |
//!
//! The memory store, SQLite, Redis and Postgres are a [queue](crate::queue) each, so that inline receivers and an inbox
//! can share one during a rolling deploy: a queued event counts as done to an inline receiver, and an event that runs
//! inline is in flight to an inbox, never 200. The store decides how durable an accepted event is:
//! [memory](crate::store::MemoryStore) forgets it with the process, Redis keeps it as its AOF is configured, SQLite and
//! Postgres keep it.
//!
//! # Order
//!
//! Events run in parallel, in about the order of their arrival. Where more is needed, [`Inbox::order_by`] lets those of
//! one resource run one at a time, and a sequence skips outdated events. An event that is retried holds up those behind
//! it; a dead letter does not.
//!
//! # What is stored of a request
//!
//! The method, the URI, the body, and of the headers only these: `host`, `content-type`, `content-length`,
//! `user-agent`, those of tracing (`traceparent`, `tracestate`, `b3`, `x-b3-*`, `x-request-id`, `x-correlation-id` and
//! the like, but not `baggage`), the one that the id or the type is read from (unless a closure reads it), and the
//! provider's own, such as `x-github-*`. A scheme of your own says which are its provider's:
//! [`TemplateBuilder::own_headers`](crate::scheme::TemplateBuilder::own_headers), or
//! [`Profile::own_headers`](crate::scheme::Profile::own_headers). Signatures, tokens, `authorization` and cookies are
//! left out. [`Inbox::keep_headers`] keeps more.
//!
//! Of the query, parameters stay, but the values of those that are named like a credential (`token`, `api_key`, `sig`
//! …) are left empty; [`Inbox::keep_query_values`] keeps them. The path is stored as it is, because the worker finds
//! the handler by it: put no secret there.

mod credentials;
#[allow(clippy::module_inception, reason = "the inbox is what this module is about")]
mod inbox;
mod kept;
mod order;
pub(crate) mod stored_head;

pub use self::{
    inbox::{Inbox, IntoInbox},
    order::OrderSource,
};
