use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

/// A delivery as stored in a queue: everything a worker needs to rebuild the request.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRequest {
    /// The request's head and what was verified of it, in a form that only this crate reads.
    pub head: Bytes,
    /// The body, exactly as it was signed.
    pub body: Bytes,
    /// When the delivery was received, on the receiver's wall clock.
    pub received_at: SystemTime,
    /// The ordering group this event belongs to, if any.
    pub order: Option<Order>,
}

/// The ordering group of an event, and its number in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Order {
    /// The key of the ordering group. Its events run one at a time, in the order of their arrival. A group belongs to
    /// one endpoint and tenant: under two endpoints, the same text names two groups.
    pub key: Box<str>,
    /// The sender's number of the event, if outdated events are to be skipped: an event whose number is not above that
    /// of the last one that was completed under the same key is [superseded](super::Leased::superseded).
    pub sequence: Option<i64>,
}

impl StoredRequest {
    /// A request that belongs to no ordering group.
    #[must_use]
    pub fn new(head: impl Into<Bytes>, body: impl Into<Bytes>, received_at: SystemTime) -> Self {
        Self { head: head.into(), body: body.into(), received_at, order: None }
    }

    /// The same request, in an ordering group.
    #[must_use]
    pub fn ordered(mut self, order: Order) -> Self {
        self.order = Some(order);
        self
    }
}

impl Order {
    /// The ordering group with this key.
    pub fn of(key: impl Into<Box<str>>) -> Self {
        Self { key: key.into(), sequence: None }
    }

    /// The same group, with the number of the event.
    #[must_use]
    pub fn sequence(mut self, sequence: i64) -> Self {
        self.sequence = Some(sequence);
        self
    }
}

/// Shows lengths only: heads may carry credentials, and bodies belong in no log.
impl fmt::Debug for StoredRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRequest")
            .field("head_length", &self.head.len())
            .field("body_length", &self.body.len())
            .field("received_at", &self.received_at)
            .field("order", &self.order)
            .finish()
    }
}
