use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{EventState, Filter, InboxCounts, KeptEvent, Page, Parcel, Requeued};
use crate::EventKey;
use crate::store::{Claim, ClaimRequest, ClaimToken, Fingerprint, Hold, Store, StoreError};

/// A store that also keeps events until a worker runs them: `accept → lease → complete | retry | bury`, and what operators do.
///
/// An event that is waiting, or that a worker runs, is [`Claim::Accepted`] to every claim and to every other `accept`, even
/// after the worker's lease has lapsed: it is going to be run. One that is completed or dead is [`Claim::Completed`].
///
/// A leased event is a running claim under the lease's token. The store's own verbs hold for it: [`renew`](Store::renew)
/// extends the lease, [`complete`](Store::complete) and the [enlistment](Store::enlistment) end it, a completion that
/// [failed](crate::store::Completion::failed) makes it dead; and [`release`](Store::release) puts it back as if it had never been
/// leased: due since when it was due before, ahead of whatever came later.
///
/// Fencing and repetition are as in [`Store`]: every verb on a claim answers [`Hold::Lost`] to a token that does not hold it,
/// and can be repeated after an `Err`.
pub trait Inbox: Store {
    /// Claims the event and keeps its parcel in one atomic step; durable, as far as the store is, before it is answered.
    ///
    /// [`Claim::Fresh`] says that the event is waiting now, or was put there under the same token before. Everything else is as
    /// [`claim`](Store::claim) would answer, and then nothing is kept. The lease of the request is of no account.
    fn accept(
        &self,
        claim: &ClaimRequest<'_>,
        parcel: &Parcel,
    ) -> impl Future<Output = Result<Claim, StoreError>> + Send;

    /// What [`accept`](Self::accept) would answer to an event that the store knows, without keeping anything; `None`, if the event
    /// would be accepted. Answered as fast as `accept` is, whatever handlers do with their own connections.
    fn peek(&self, claim: &ClaimRequest<'_>) -> impl Future<Output = Result<Option<Claim>, StoreError>> + Send;

    /// Takes up to `limit` waiting events, those that have been due the longest first, each under a new token: exactly one of any
    /// number of callers gets an event. What only just arrived has been due since then. Events whose lease has lapsed are
    /// taken, too.
    ///
    /// A caller that gives up waiting, and drops the future, strands nothing: events that are leased for it nevertheless are
    /// released.
    ///
    /// Of the events that share an [order](super::Order), only the one that arrived first among those that are neither completed
    /// nor dead is taken, and none while another one runs.
    fn lease(&self, request: &LeaseRequest<'_>) -> impl Future<Output = Result<Vec<Leased>, StoreError>> + Send;

    /// Renews the lease, and notes down that the event's handler is about to be called: later leases say so
    /// ([`Leased::started`]), until the event is [released](Store::release) or an operator requeues it. A worker asks for this before the last attempt that it
    /// permits, again and again for a third of its lease if there is no answer, and gives up an event whose lease lapsed then only if its
    /// handler was started.
    ///
    /// The note says that the handler was about to be called, and cannot say that it was. A worker that ends between the two, and
    /// cannot release the event either, leaves the note behind. A later worker then gives the event up although its handler never ran: the
    /// inbox cannot tell this from a handler that took its process down.
    fn start(&self, claim: &ClaimRequest<'_>) -> impl Future<Output = Result<Hold, StoreError>> + Send;

    /// Puts a leased event back, not to be run before `after` has passed, and notes down why its attempt failed.
    fn retry(
        &self,
        claim: &ClaimRequest<'_>,
        after: Duration,
        reason: &str,
    ) -> impl Future<Output = Result<Hold, StoreError>> + Send;

    /// Makes a leased event a dead letter: never run again unless an operator requeues it, never deleted by itself, and the
    /// reason noted down. Burying again under the same token is [`Hold::Held`] and changes nothing.
    fn bury(&self, claim: &ClaimRequest<'_>, reason: &str) -> impl Future<Output = Result<Hold, StoreError>> + Send;

    /// Ready when an event may have become due since this was called. May be early, late, or never be ready: workers ask
    /// every now and then anyway.
    fn wake(&self) -> impl Future<Output = ()> + Send;

    /// How many events are waiting, though no more than `up_to`: cheap, however many they are.
    fn waiting(&self, up_to: u64) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Events that match, in the order of their arrival, a page at a time, without their parcels and attempts.
    fn list(&self, filter: &Filter, page: &Page) -> impl Future<Output = Result<Vec<KeptEvent>, StoreError>> + Send;

    /// One event with its parcel and its attempts.
    fn get(&self, key: &EventKey) -> impl Future<Output = Result<Option<KeptEvent>, StoreError>> + Send;

    /// Has dead letters that match run again: they arrive anew, behind everything that is waiting, with their attempts
    /// counted from one. With `completed_too` completed events run again as well, as long as they are kept, though a
    /// [sequence](super::Order::sequence) still skips what is old news; waiting and running ones never do. Completed events whose bodies
    /// are [gone](KeptEvent::parcel) stay as they are. Says how many there were of each: asked twice, none was requeued.
    fn requeue(
        &self,
        filter: &Filter,
        completed_too: bool,
    ) -> impl Future<Output = Result<Requeued, StoreError>> + Send;

    /// Has events that match never run: waiting and dead ones become completed, and are remembered for `retention`. Says how many.
    fn discard(&self, filter: &Filter, retention: Duration) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Deletes completed and dead events that match, record and all: if the sender delivered one again, it would run again. Says
    /// how many.
    fn forget(&self, filter: &Filter) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// How many events there are in each state, and since when the oldest has been waiting.
    fn counts(&self) -> impl Future<Output = Result<InboxCounts, StoreError>> + Send;
}

/// What [`Inbox::lease`] is asked.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LeaseRequest<'a> {
    /// How many at the most.
    pub limit: usize,
    /// How long each holds unless it is renewed.
    pub lease: Duration,
    /// Of these endpoints only, unless there is none.
    pub endpoints: &'a [Box<str>],
    /// How many of each endpoint; any number, if `None`.
    pub per_endpoint: Option<&'a KindLimits>,
    /// How many of each type; any number, if `None`. Events without a type are not limited.
    pub per_type: Option<&'a KindLimits>,
}

impl LeaseRequest<'_> {
    /// Whatever is due.
    #[must_use]
    pub const fn new(limit: usize, lease: Duration) -> Self {
        Self { limit, lease, endpoints: &[], per_endpoint: None, per_type: None }
    }
}

/// How many events of each kind a lease may take.
///
/// ```
/// use tower_webhook::inbox::KindLimits;
///
/// // Three of each may run. Of invoices two are running already, and of payments three.
/// let limits = KindLimits::new(3).with("invoice.paid", 1).with("payment.made", 0);
/// assert_eq!(limits.of("invoice.paid"), 1);
/// assert_eq!(limits.of("customer.created"), 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindLimits {
    /// Of each kind that is not in `left`.
    pub each: usize,
    /// Of these kinds; zero leaves one out.
    pub left: BTreeMap<Box<str>, usize>,
}

impl KindLimits {
    /// So many of each.
    #[must_use]
    pub const fn new(each: usize) -> Self {
        Self { each, left: BTreeMap::new() }
    }

    /// So many of this one.
    #[must_use]
    pub fn with(mut self, kind: impl Into<Box<str>>, left: usize) -> Self {
        self.left.insert(kind.into(), left);
        self
    }

    /// How many of `kind`.
    #[must_use]
    pub fn of(&self, kind: &str) -> usize {
        self.left.get(kind).copied().unwrap_or(self.each)
    }
}

/// How much room a lease has left, while it chooses events one by one.
pub(crate) struct KindRooms<'a> {
    endpoints: &'a [Box<str>],
    per_endpoint: Option<KindLimits>,
    per_type: Option<KindLimits>,
}

impl<'a> KindRooms<'a> {
    pub(crate) fn new(request: &LeaseRequest<'a>) -> Self {
        let (per_endpoint, per_type) = (request.per_endpoint.cloned(), request.per_type.cloned());
        Self { endpoints: request.endpoints, per_endpoint, per_type }
    }

    /// Whether there is room for another event of this endpoint.
    pub(crate) fn has_endpoint(&self, endpoint: &str) -> bool {
        self.per_endpoint.as_ref().is_none_or(|limits| limits.of(endpoint) > 0)
    }

    /// Whether an event of these kinds may be leased.
    pub(crate) fn has_room(&self, endpoint: &str, event_type: Option<&str>) -> bool {
        let has_room = |limits: &Option<KindLimits>, kind| limits.as_ref().is_none_or(|limits| limits.of(kind) > 0);
        (self.endpoints.is_empty() || self.endpoints.iter().any(|own| **own == *endpoint))
            && has_room(&self.per_endpoint, endpoint)
            && event_type.is_none_or(|event_type| has_room(&self.per_type, event_type))
    }

    /// The same; and if so, there is less room for the next.
    pub(crate) fn enter(&mut self, endpoint: &str, event_type: Option<&str>) -> bool {
        if !self.has_room(endpoint, event_type) {
            return false;
        }
        let enter = |limits: &mut Option<KindLimits>, kind: &str| {
            if let Some(limits) = limits {
                let left = limits.of(kind) - 1;
                limits.left.insert(kind.into(), left);
            }
        };
        enter(&mut self.per_endpoint, endpoint);
        if let Some(event_type) = event_type {
            enter(&mut self.per_type, event_type);
        }
        true
    }
}

/// An event that was leased to a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leased {
    /// What the event is remembered under.
    pub key: EventKey,
    /// The token that holds it now.
    pub token: ClaimToken,
    /// How often it has been leased without being released, this time included.
    pub attempt: u32,
    /// The event's type.
    pub event_type: Option<Box<str>>,
    /// The body's fingerprint.
    pub fingerprint: Fingerprint,
    /// What was accepted.
    pub parcel: Parcel,
    /// Whether a handler was [started](Inbox::start) in an earlier attempt. Attempts that were not the last one permitted are not
    /// noted down.
    pub started: bool,
    /// Whether an event of the same order with the same or a higher sequence was completed before: this one is old news.
    pub superseded: bool,
}

impl Leased {
    /// An event that is leased for the first time.
    #[must_use]
    pub fn new(key: EventKey, token: ClaimToken, parcel: Parcel) -> Self {
        let (event_type, fingerprint) = (None, Fingerprint::default());
        Self { key, token, attempt: 1, event_type, fingerprint, parcel, started: false, superseded: false }
    }

    /// What the store is asked to renew, complete, retry or bury.
    #[must_use]
    pub fn claim(&self, lease: Duration) -> ClaimRequest<'_> {
        ClaimRequest::new(&self.key, self.token, lease)
            .fingerprint(self.fingerprint)
            .event_type(self.event_type.as_deref())
    }
}

/// The states that [`Inbox::requeue`] looks at: dead letters, and completed events if that is said.
pub(crate) fn requeued(completed_too: bool) -> &'static [EventState] {
    if completed_too { &[EventState::Dead, EventState::Completed] } else { &[EventState::Dead] }
}

impl<I: Inbox> Inbox for Arc<I> {
    fn accept(
        &self,
        claim: &ClaimRequest<'_>,
        parcel: &Parcel,
    ) -> impl Future<Output = Result<Claim, StoreError>> + Send {
        (**self).accept(claim, parcel)
    }

    fn peek(&self, claim: &ClaimRequest<'_>) -> impl Future<Output = Result<Option<Claim>, StoreError>> + Send {
        (**self).peek(claim)
    }

    fn lease(&self, request: &LeaseRequest<'_>) -> impl Future<Output = Result<Vec<Leased>, StoreError>> + Send {
        (**self).lease(request)
    }

    fn start(&self, claim: &ClaimRequest<'_>) -> impl Future<Output = Result<Hold, StoreError>> + Send {
        (**self).start(claim)
    }

    fn retry(
        &self,
        claim: &ClaimRequest<'_>,
        after: Duration,
        reason: &str,
    ) -> impl Future<Output = Result<Hold, StoreError>> + Send {
        (**self).retry(claim, after, reason)
    }

    fn bury(&self, claim: &ClaimRequest<'_>, reason: &str) -> impl Future<Output = Result<Hold, StoreError>> + Send {
        (**self).bury(claim, reason)
    }

    fn wake(&self) -> impl Future<Output = ()> + Send {
        (**self).wake()
    }

    fn waiting(&self, up_to: u64) -> impl Future<Output = Result<u64, StoreError>> + Send {
        (**self).waiting(up_to)
    }

    fn list(&self, filter: &Filter, page: &Page) -> impl Future<Output = Result<Vec<KeptEvent>, StoreError>> + Send {
        (**self).list(filter, page)
    }

    fn get(&self, key: &EventKey) -> impl Future<Output = Result<Option<KeptEvent>, StoreError>> + Send {
        (**self).get(key)
    }

    fn requeue(
        &self,
        filter: &Filter,
        completed_too: bool,
    ) -> impl Future<Output = Result<Requeued, StoreError>> + Send {
        (**self).requeue(filter, completed_too)
    }

    fn discard(&self, filter: &Filter, retention: Duration) -> impl Future<Output = Result<u64, StoreError>> + Send {
        (**self).discard(filter, retention)
    }

    fn forget(&self, filter: &Filter) -> impl Future<Output = Result<u64, StoreError>> + Send {
        (**self).forget(filter)
    }

    fn counts(&self) -> impl Future<Output = Result<InboxCounts, StoreError>> + Send {
        (**self).counts()
    }
}
