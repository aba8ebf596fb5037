use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

/// What an inbox keeps of a delivery, so that a worker can run it later: everything that the inner service would have got.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRequest {
    /// The request's head and what was verified of it, in a form that only this crate reads.
    pub head: Bytes,
    /// The body, exactly as it was signed.
    pub body: Bytes,
    /// When the delivery was received, on the receiver's wall clock.
    pub received_at: SystemTime,
    /// Whom it has to wait for, if for anybody.
    pub order: Option<Order>,
}

/// An event's place among those of the same resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Order {
    /// What events of one resource share. They run one at a time, in the order in which they arrived. It is of one endpoint and
    /// tenant: of two endpoints, the same text is two keys.
    pub key: Box<str>,
    /// The sender's number of the event, where old news are to be skipped: an event whose number is not above that of the last
    /// one that was completed under the same key is [superseded](super::Leased::superseded).
    pub sequence: Option<i64>,
}

impl StoredRequest {
    /// A parcel that is in no order.
    #[must_use]
    pub fn new(head: impl Into<Bytes>, body: impl Into<Bytes>, received_at: SystemTime) -> Self {
        Self { head: head.into(), body: body.into(), received_at, order: None }
    }

    /// The same parcel in an order.
    #[must_use]
    pub fn ordered(mut self, order: Order) -> Self {
        self.order = Some(order);
        self
    }
}

impl Order {
    /// One at a time among those with this key.
    pub fn of(key: impl Into<Box<str>>) -> Self {
        Self { key: key.into(), sequence: None }
    }

    /// The same, as this number of them.
    #[must_use]
    pub fn sequence(mut self, sequence: i64) -> Self {
        self.sequence = Some(sequence);
        self
    }
}

/// Lengths only: heads may carry credentials, and bodies are nobody's business.
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
