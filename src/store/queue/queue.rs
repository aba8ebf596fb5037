use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{EventState, LeaseRequest, Leased, QueueCounts, QueuedEvent, StoredRequest};
use crate::EventKey;
use crate::clock::unix_millis;
use crate::store::{Claim, ClaimRequest, Ending, Hold, IntoStore, Store, StoreFuture};

/// A store that also keeps events until a worker runs them: `enqueue → lease → settle`.
///
/// An event that waits, or that a worker runs, is [`Claim::Accepted`] to every claim and to every other `enqueue`, even
/// after the worker's lease has lapsed: it is going to be run. An event that is completed or dead is
/// [`Claim::Completed`].
///
/// A leased event is a running claim under the lease's token, and the verbs of [`Store`] hold for it:
/// [`renew`](Store::renew) extends the lease, [`settle`](Store::settle) and the [enlistment](Store::enlistment) end it.
/// Fencing and repetition are as in [`Store`].
///
/// # Operators
///
/// Operators look with [`list`](Self::list), [`get`](Self::get) and [`counts`](Self::counts), and change events with
/// [`requeue`](Self::requeue), [`discard`](Self::discard) and [`forget`](Self::forget), all three of which a queue
/// implements in one verb, [`change`](Self::change).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a queue",
    label = "expected a store that keeps events for a worker",
    note = "`MemoryStore`, `SqliteStore`, `RedisStore` and `PostgresStore` are queues; a `BreakerStore` is not"
)]
pub trait Queue: Store {
    /// Claims the event and stores its request in one atomic step. The event is durable, as far as the store is, before
    /// the answer.
    ///
    /// [`Claim::Fresh`] says that the event waits now, or was enqueued under the same token before. Otherwise the queue
    /// answers as [`claim`](Store::claim) does, and stores nothing. The `lease` of the claim is ignored.
    fn enqueue<'a>(&'a self, claim: &'a ClaimRequest<'a>, request: &'a StoredRequest) -> StoreFuture<'a, Claim>;

    /// The answer that [`enqueue`](Self::enqueue) would give for an event that the queue knows; `None` if it would
    /// store the event. Stores nothing. The queue answers as fast as `enqueue` does, whatever handlers do with their
    /// own connections.
    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Option<Claim>>;

    /// Leases up to `limit` events, those that have been due the longest first, each under a new token: of any number
    /// of callers, exactly one gets an event. A new event is due since its arrival. An event whose lease has lapsed is
    /// due again.
    ///
    /// A caller may drop the future: the queue releases events that it leased for that caller nevertheless.
    ///
    /// Of the events that share an [order](super::Order), the queue leases only the first one that is neither completed
    /// nor dead, and none while another one runs.
    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> StoreFuture<'a, Vec<Leased>>;

    /// Renews the lease, and notes that the event's handler is about to be called. Later leases say so
    /// ([`Leased::started`]), until the event is [released](Ending::Release) or an operator requeues it.
    ///
    /// A worker calls this before the last attempt that it permits, and repeats it for a third of its lease if there is
    /// no answer. It gives up an event whose last lease lapsed only if the handler was started.
    ///
    /// The note says that the handler was about to be called, and cannot say that it was. A worker that dies in
    /// between, and cannot release the event either, leaves the note behind. A later worker then gives the event up
    /// although its handler never ran: the queue cannot tell this from a handler that took its process down.
    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold>;

    /// Waits until an event may have become due since this call. May be early, late, or never: workers poll, too.
    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Counts the events that wait, up to `up_to`. Cheap, however many there are.
    fn waiting(&self, up_to: u64) -> StoreFuture<'_, u64>;

    /// Lists events that match, in the order of their arrival, a page at a time, without their requests and attempts.
    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> StoreFuture<'a, Vec<QueuedEvent>>;

    /// Returns one event with its request and its attempts.
    fn get<'a>(&'a self, key: &'a EventKey) -> StoreFuture<'a, Option<QueuedEvent>>;

    /// Counts the events in each state, and says for how long the oldest has been waiting.
    fn counts(&self) -> StoreFuture<'_, QueueCounts>;

    /// Changes all events that match: see [`Change`] for how.
    fn change<'a>(&'a self, filter: &'a Filter, change: Change) -> StoreFuture<'a, Changed>;

    /// Runs dead letters again, and with `completed_too` completed events as well: see [`Change::Requeue`].
    fn requeue<'a>(&'a self, filter: &'a Filter, completed_too: bool) -> StoreFuture<'a, Changed> {
        self.change(filter, Change::Requeue { completed_too })
    }

    /// Makes waiting and dead events completed without running them: see [`Change::Discard`]. Returns their number.
    fn discard<'a>(&'a self, filter: &'a Filter, retention: Duration) -> StoreFuture<'a, u64> {
        Box::pin(async move { Ok(self.change(filter, Change::Discard { retention }).await?.events) })
    }

    /// Deletes completed and dead events: see [`Change::Forget`]. Returns their number.
    fn forget<'a>(&'a self, filter: &'a Filter) -> StoreFuture<'a, u64> {
        Box::pin(async move { Ok(self.change(filter, Change::Forget).await?.events) })
    }

    /// [Settles](Store::settle) a leased event as failed, to be run again.
    fn retry<'a>(&'a self, claim: &'a ClaimRequest<'a>, after: Duration, reason: &'a str) -> StoreFuture<'a, Hold> {
        self.settle(claim, Ending::Retry { after, reason })
    }

    /// [Settles](Store::settle) a leased event as a dead letter.
    fn bury<'a>(&'a self, claim: &'a ClaimRequest<'a>, reason: &'a str) -> StoreFuture<'a, Hold> {
        self.settle(claim, Ending::Bury { reason })
    }
}

/// Selects events. Every condition has to hold; a filter without conditions selects all events.
///
/// ```
/// use tower_webhook::queue::{EventState, Filter};
///
/// let failed_invoices = Filter::all().state(EventState::Dead).event_type("invoice.paid");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// This event only.
    pub key: Option<EventKey>,
    /// In this state.
    pub state: Option<EventState>,
    /// Of this type.
    pub event_type: Option<Box<str>>,
    /// Of this endpoint.
    pub endpoint: Option<Box<str>>,
    /// Received at this time or later.
    pub since: Option<SystemTime>,
    /// Received before this time.
    pub before: Option<SystemTime>,
}

impl Filter {
    /// Every event.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// One event.
    #[must_use]
    pub fn one(key: EventKey) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    /// In this state.
    #[must_use]
    pub fn state(mut self, state: EventState) -> Self {
        self.state = Some(state);
        self
    }

    /// Of this type.
    #[must_use]
    pub fn event_type(mut self, event_type: impl Into<Box<str>>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Of this endpoint.
    #[must_use]
    pub fn endpoint(mut self, endpoint: impl Into<Box<str>>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Received at this time or later. To the millisecond.
    #[must_use]
    pub fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(time);
        self
    }

    /// Received before this time. To the millisecond.
    #[must_use]
    pub fn before(mut self, time: SystemTime) -> Self {
        self.before = Some(time);
        self
    }

    /// Those of `states` that the filter selects.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn states(&self, states: &[EventState]) -> Vec<EventState> {
        states.iter().copied().filter(|state| self.state.is_none_or(|wanted| wanted == *state)).collect()
    }

    /// Whether the filter selects this event.
    #[must_use]
    pub fn matches(&self, event: &QueuedEvent) -> bool {
        let received = unix_millis(event.received_at);
        self.key.as_ref().is_none_or(|key| *key == event.key)
            && self.state.is_none_or(|state| state == event.state)
            && self.event_type.as_deref().is_none_or(|wanted| event.event_type.as_deref() == Some(wanted))
            && self.endpoint.as_deref().is_none_or(|wanted| event.key.endpoint() == wanted)
            && self.since.is_none_or(|since| received >= unix_millis(since))
            && self.before.is_none_or(|before| received < unix_millis(before))
    }
}

/// One page of a listing.
///
/// ```
/// use tower_webhook::queue::{Filter, Page, Queue};
/// use tower_webhook::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = MemoryStore::new();
/// let mut page = Page::first(100);
/// loop {
///     let events = queue.list(&Filter::all(), &page).await?;
///     let Some(last) = events.last() else { break };
///     page = page.after(last);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The arrival number after which the page begins. `None` begins with the first event.
    pub after: Option<u64>,
    /// The largest number of events.
    pub limit: usize,
}

impl Page {
    /// The first `limit` events.
    #[must_use]
    pub const fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// The next page, after the last event of this one. Events that arrive or end meanwhile shift nothing.
    #[must_use]
    pub const fn after(self, last: &QueuedEvent) -> Self {
        Self { after: Some(last.arrival), ..self }
    }
}

/// A change that an operator makes to events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Runs dead letters again: they arrive anew, behind everything that waits, with their attempts counted from one.
    ///
    /// Waiting and running events are never requeued, and completed events whose bodies are
    /// [gone](QueuedEvent::request) stay as they are. A [sequence](super::Order::sequence) still skips an event that is
    /// superseded.
    Requeue {
        /// Requeues completed events as well, as long as they are kept.
        completed_too: bool,
    },
    /// Makes waiting and dead events completed without running them.
    Discard {
        /// How long duplicates of them are recognised.
        retention: Duration,
    },
    /// Deletes completed and dead events, record and all: if the sender delivers one again, it runs again.
    Forget,
}

/// The summary of an event that an operator has discarded.
pub(crate) const DISCARDED: &str = "discarded by an operator";

impl Change {
    /// The states of the events that the change is for.
    pub(crate) const fn states(self) -> &'static [EventState] {
        match self {
            Self::Requeue { completed_too: false } => &[EventState::Dead],
            Self::Requeue { completed_too: true } => &[EventState::Dead, EventState::Completed],
            Self::Discard { .. } => &[EventState::Waiting, EventState::Dead],
            Self::Forget => &[EventState::Completed, EventState::Dead],
        }
    }
}

/// How many events a [`Change`] was made to. Repeated at once, it is made to none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// Events that were changed.
    pub events: u64,
    /// Completed events that match, and cannot be requeued because their bodies are [gone](QueuedEvent::request).
    pub without_body: u64,
}

impl Changed {
    /// So many events were changed.
    #[must_use]
    pub const fn new(events: u64) -> Self {
        Self { events, without_body: 0 }
    }

    /// The same, and so many could not be requeued without their bodies.
    #[must_use]
    pub const fn without_body(self, events: u64) -> Self {
        Self { without_body: events, ..self }
    }
}

/// A queue for a layer or a worker: any [`Queue`], or an `Arc<dyn Queue>` that was chosen at run time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a queue",
    label = "expected a store that keeps events for a worker",
    note = "`MemoryStore`, `SqliteStore`, `RedisStore` and `PostgresStore` are queues; a `BreakerStore` is not"
)]
pub trait IntoQueue {
    /// The queue, shared.
    fn into_queue(self) -> Arc<dyn Queue>;
}

#[diagnostic::do_not_recommend]
impl<Q: Queue> IntoQueue for Q {
    fn into_queue(self) -> Arc<dyn Queue> {
        Arc::new(self)
    }
}

impl IntoQueue for Arc<dyn Queue> {
    fn into_queue(self) -> Arc<dyn Queue> {
        self
    }
}

impl IntoStore for Arc<dyn Queue> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}
