//! Acknowledge fast, process later, lose nothing.
//!
//! Senders give up after a few seconds. Behind an inbox the layer verifies a delivery, writes event and claim in one atomic
//! step, and answers; a [`Worker`](crate::Worker) then drives the *same* service with the stored request. Nothing in the
//! handlers changes:
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
//! The memory store, SQLite, Redis and Postgres are an [`Inbox`] each, so both can share one during a rolling deploy: what is queued counts as done to an
//! inline receiver, and what runs inline is in flight to an inbox, never 200. How durable an accepted event is, is the store's
//! business: [memory](crate::store::MemoryStore) forgets it with the process, Redis keeps it as its AOF is configured, SQLite and Postgres keep it.
//!
//! # Order
//!
//! Events run in parallel, in about the order of their arrival. Where more is needed, [`WebhookLayer::order_by`](crate::WebhookLayer::order_by)
//! lets those of one resource run one at a time, and a sequence skips old news. An event that is retried holds up those behind
//! it; a dead letter does not.
//!
//! # What is stored of a request
//!
//! The method, the URI, the body, and of the headers only these: `host`, `content-type`, `content-length`, `user-agent`, those of
//! tracing (`traceparent`, `tracestate`, `b3`, `x-b3-*`, `x-request-id`, `x-correlation-id` and the like, but not `baggage`), the
//! one that the id or the type is read from (unless a closure reads it), and the provider's own, such as `x-github-*`. A scheme of your own says which are its
//! provider's: [`TemplateBuilder::own_headers`](crate::scheme::TemplateBuilder::own_headers), or
//! [`Profile::own_headers`](crate::scheme::Profile::own_headers). Signatures, tokens, `authorization` and cookies are left out.
//! [`WebhookLayer::keep_headers`](crate::WebhookLayer::keep_headers) keeps more.
//!
//! Of the query, parameters stay, but the values of those that are named like a credential (`token`, `api_key`, `sig` …) are left
//! empty; [`WebhookLayer::keep_query_values`](crate::WebhookLayer::keep_query_values) keeps them. The path is stored as it is,
//! because the worker finds the handler by it: put no secret there.
//!
//! # Operators
//!
//! [`list`](Queue::list), [`get`](Queue::get), [`requeue`](Queue::requeue), [`discard`](Queue::discard), [`forget`](Queue::forget) and
//! [`counts`](Queue::counts) are verbs of every inbox:
//!
//! ```
//! use tower_webhook::queue::{EventState, Filter, Queue};
//! use tower_webhook::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let inbox = MemoryStore::new();
//! let again = inbox.requeue(&Filter::all().state(EventState::Dead).event_type("invoice.paid"), false).await?;
//! println!("{} dead letters run again; {} are waiting", again.events, inbox.counts().await?.waiting);
//! # Ok(())
//! # }
//! ```

mod credentials;
mod event;
pub(crate) mod head;
pub(crate) mod kept;
mod lease;
mod order;
#[allow(clippy::module_inception, reason = "the queue is what this module is about")]
mod queue;
mod stored_request;

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) use self::event::log;
pub use self::{
    event::{EventState, FailedAttempt, Filter, LAPSED, Page, QueueCounts, QueuedEvent},
    lease::{KindLimits, LeaseRequest, Leased},
    order::OrderSource,
    queue::{Change, Changed, IntoQueue, Queue},
    stored_request::{Order, StoredRequest},
};
pub(crate) use self::{
    event::{from_unix_millis, unix_millis},
    lease::KindRooms,
};
