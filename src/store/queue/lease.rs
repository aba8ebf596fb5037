//! The lease request of a worker, and the events that it gets.

use std::collections::BTreeMap;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use std::sync::Arc;
use std::time::Duration;

use super::StoredRequest;
use crate::EventKey;
use crate::store::{ClaimRequest, ClaimToken, Fingerprint};

/// The request for [`Queue::lease`](super::Queue::lease).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LeaseRequest<'a> {
    /// The largest number of events.
    pub limit: usize,
    /// How long each lease holds unless it is renewed.
    pub lease: Duration,
    /// Leases events of these endpoints only. An empty list leases events of all endpoints.
    pub endpoints: &'a [Box<str>],
    /// How many of each endpoint; any number, if `None`.
    pub per_endpoint: Option<&'a KindLimits>,
    /// How many of each type; any number, if `None`. Events without a type are not limited.
    pub per_type: Option<&'a KindLimits>,
}

impl LeaseRequest<'_> {
    /// A request for any event that is due.
    #[must_use]
    pub const fn new(limit: usize, lease: Duration) -> Self {
        Self { limit, lease, endpoints: &[], per_endpoint: None, per_type: None }
    }

    /// Whether events of every kind will do, and any number of each.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) const fn is_of_any_kind(&self) -> bool {
        self.endpoints.is_empty() && self.per_endpoint.is_none() && self.per_type.is_none()
    }
}

/// How many events of each kind a lease may take.
///
/// ```
/// use tower_webhook::queue::KindLimits;
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

/// A [`LeaseRequest`] that outlives its caller.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Clone)]
pub(crate) struct OwnedLeaseRequest {
    limit: usize,
    lease: Duration,
    endpoints: Arc<[Box<str>]>,
    per_endpoint: Option<Arc<KindLimits>>,
    per_type: Option<Arc<KindLimits>>,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl OwnedLeaseRequest {
    pub(crate) fn new(request: &LeaseRequest<'_>) -> Self {
        Self {
            limit: request.limit,
            lease: request.lease,
            endpoints: request.endpoints.into(),
            per_endpoint: request.per_endpoint.cloned().map(Arc::new),
            per_type: request.per_type.cloned().map(Arc::new),
        }
    }

    pub(crate) fn borrowed(&self) -> LeaseRequest<'_> {
        let mut request = LeaseRequest::new(self.limit, self.lease);
        request.endpoints = &self.endpoints;
        (request.per_endpoint, request.per_type) = (self.per_endpoint.as_deref(), self.per_type.as_deref());
        request
    }
}

/// The room that a lease has left, while it chooses events one by one.
pub(crate) struct LeaseBudget<'a> {
    endpoints: &'a [Box<str>],
    per_endpoint: Option<KindLimits>,
    per_type: Option<KindLimits>,
}

impl<'a> LeaseBudget<'a> {
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

    /// Takes room for one event. Returns `false` if its endpoint or its type has none left.
    pub(crate) fn try_take(&mut self, endpoint: &str, event_type: Option<&str>) -> bool {
        if !self.has_room(endpoint, event_type) {
            return false;
        }
        let take = |limits: &mut Option<KindLimits>, kind: &str| {
            if let Some(limits) = limits {
                let left = limits.of(kind) - 1;
                limits.left.insert(kind.into(), left);
            }
        };
        take(&mut self.per_endpoint, endpoint);
        if let Some(event_type) = event_type {
            take(&mut self.per_type, event_type);
        }
        true
    }
}

/// An event that was leased to a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leased {
    /// The key under which the queue keeps the event.
    pub key: EventKey,
    /// The token that holds it now.
    pub token: ClaimToken,
    /// How often it has been leased without being released, this time included.
    pub attempt: u32,
    /// The event's type.
    pub event_type: Option<Box<str>>,
    /// The body's fingerprint.
    pub fingerprint: Fingerprint,
    /// The accepted request.
    pub request: StoredRequest,
    /// Whether a handler was [started](super::Queue::start) in an earlier attempt. Attempts that were not the last one
    /// permitted are not noted down.
    pub started: bool,
    /// Whether an event of the same order with the same or a higher sequence was completed before, so that this one is
    /// outdated.
    pub superseded: bool,
}

impl Leased {
    /// An event that is leased for the first time.
    #[must_use]
    pub fn new(key: EventKey, token: ClaimToken, request: StoredRequest) -> Self {
        let (event_type, fingerprint) = (None, Fingerprint::default());
        Self { key, token, attempt: 1, event_type, fingerprint, request, started: false, superseded: false }
    }

    /// The request that renews or settles this lease.
    #[must_use]
    pub fn claim(&self, lease: Duration) -> ClaimRequest<'_> {
        ClaimRequest::new(&self.key, self.token, lease)
            .fingerprint(self.fingerprint)
            .event_type(self.event_type.as_deref())
    }
}
