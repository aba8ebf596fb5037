//! A durable queue of events: what accepts them, what a worker leases, and what operators see and change.
//!
//! [`Queue`] extends [`Store`](crate::store::Store). The memory store, SQLite, Redis and Postgres are a queue each. The
//! [inbox](crate::inbox) writes events into one, and a [`Worker`](crate::Worker) drains it.
//!
//! # Operators
//!
//! [`list`](Queue::list), [`get`](Queue::get), [`requeue`](Queue::requeue), [`discard`](Queue::discard),
//! [`forget`](Queue::forget) and [`counts`](Queue::counts) are verbs of every queue:
//!
//! ```
//! use tower_webhook::queue::{EventState, Filter, Queue};
//! use tower_webhook::store::MemoryStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let queue = MemoryStore::new();
//! let again = queue.requeue(&Filter::all().state(EventState::Dead).event_type("invoice.paid"), false).await?;
//! println!("{} dead letters run again; {} are waiting", again.events, queue.counts().await?.waiting);
//! # Ok(())
//! # }
//! ```

mod event;
mod lease;
#[allow(clippy::module_inception, reason = "the queue is what this module is about")]
mod queue;

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) use self::event::{UNREADABLE, log};
pub(crate) use self::lease::LeaseBudget;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use self::lease::OwnedLeaseRequest;
pub(crate) use self::queue::DISCARDED;
pub use self::{
    event::{EventState, FailedAttempt, LAPSED, Order, QueueCounts, QueuedEvent, StoredRequest},
    lease::{KindLimits, LeaseRequest, Leased},
    queue::{Change, Changed, Filter, IntoQueue, Page, Queue},
};
