//! The verified event that a handler receives.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::EventKey;
use crate::machine::ClaimState;
use crate::scheme::Verified;
use crate::store::ClaimToken;

/// A verified event, in the extensions of every request that reaches the inner service.
///
/// With the `axum` feature it is an extractor too: plain, or with the body parsed as a type of yours,
/// `WebhookEvent<Invoice>`. Clones share one allocation, and the claim.
///
/// ```
/// use http::{Request, Response};
/// use tower_webhook::WebhookEvent;
///
/// fn handle<B>(request: &Request<B>) {
///     let event = request.extensions().get::<WebhookEvent>().expect("WebhookLayer is on this route");
///     println!("{} of type {:?}, {} bytes", event.id(), event.event_type(), event.body().len());
/// }
/// ```
#[derive(Clone)]
pub struct WebhookEvent<T = Untyped> {
    facts: Arc<Facts>,
    data: T,
}

/// The data of an event whose body was not parsed.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Untyped;

/// The facts about one delivery's event.
pub(crate) struct Facts {
    pub(crate) claim: Arc<ClaimState>,
    pub(crate) body: Bytes,
    pub(crate) provenance: Provenance,
    pub(crate) received_at: SystemTime,
    pub(crate) id_authenticated: bool,
    pub(crate) type_authenticated: bool,
}

/// The facts that the event's signature gave.
pub(crate) enum Provenance {
    /// In this delivery.
    Verified(Verified),
    /// When the event was accepted into an inbox.
    Kept { secret_label: Box<str>, signed_at: Option<SystemTime> },
}

impl WebhookEvent {
    pub(crate) fn new(facts: Facts) -> Self {
        Self { facts: Arc::new(facts), data: Untyped }
    }

    /// Attaches the parsed body.
    pub fn with_data<T>(self, data: T) -> WebhookEvent<T> {
        WebhookEvent { facts: self.facts, data }
    }
}

impl<T> WebhookEvent<T> {
    /// Whether a worker runs the event, and not the layer that received it. Only this crate makes such an event, so no
    /// request from outside carries one.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.facts.provenance, Provenance::Kept { .. })
    }

    pub(crate) fn claim(&self) -> &ClaimState {
        &self.facts.claim
    }

    /// The event's id: the same on every delivery of this event, unless it [is not
    /// deduplicated](Self::is_deduplicated).
    #[must_use]
    pub fn id(&self) -> &str {
        self.key().id()
    }

    /// Whether the signature covers the id.
    #[must_use]
    pub fn id_is_authenticated(&self) -> bool {
        self.facts.id_authenticated && self.is_deduplicated()
    }

    /// Whether the event has an id by which duplicates are recognised. An event without one
    /// ([`IdSource::none`](crate::identity::IdSource::none)) runs at every delivery, and its `id` is generated anew
    /// each time.
    #[must_use]
    pub fn is_deduplicated(&self) -> bool {
        self.facts.claim.is_deduplicated()
    }

    /// The event's type, if the sender gives one.
    #[must_use]
    pub fn event_type(&self) -> Option<&str> {
        self.facts.claim.event_type.as_deref()
    }

    /// Whether the signature covers the type. It does not cover a type from a header, nor one from a body of which only
    /// some fields are signed. An attacker can give such a captured delivery another type, so trust the body, and not
    /// the type, if they differ.
    #[must_use]
    pub fn event_type_is_authenticated(&self) -> bool {
        self.facts.type_authenticated && self.event_type().is_some()
    }

    /// The body exactly as it was signed.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.facts.body
    }

    /// The body, parsed as the requested type.
    #[must_use]
    pub fn data(&self) -> &T {
        &self.data
    }

    /// Returns the parsed body alone.
    #[must_use]
    pub fn into_data(self) -> T {
        self.data
    }

    /// The key under which the store remembers the event.
    #[must_use]
    pub fn key(&self) -> &EventKey {
        &self.facts.claim.key
    }

    /// The endpoint's name.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        self.key().endpoint()
    }

    /// The tenant, on a route with tenants.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.key().tenant()
    }

    /// The time at which the sender signed this delivery, if the scheme has a timestamp.
    #[must_use]
    pub fn signed_at(&self) -> Option<SystemTime> {
        match &self.facts.provenance {
            Provenance::Verified(verified) => verified.signed_at(),
            Provenance::Kept { signed_at, .. } => *signed_at,
        }
    }

    /// The time at which this delivery was received. For an event from an inbox, that of the accepted delivery.
    #[must_use]
    pub fn received_at(&self) -> SystemTime {
        self.facts.received_at
    }

    /// The label of the secret that matched.
    #[must_use]
    pub fn secret_label(&self) -> &str {
        match &self.facts.provenance {
            Provenance::Verified(verified) => verified.secret_label(),
            Provenance::Kept { secret_label, .. } => secret_label,
        }
    }

    /// How many times the event has been claimed, including this time, if the store counts. For an event from an inbox:
    /// how many times it has been tried.
    #[must_use]
    pub fn attempt(&self) -> Option<u32> {
        self.facts.claim.attempt()
    }

    /// The token with which this delivery holds its claim.
    #[must_use]
    pub fn token(&self) -> ClaimToken {
        self.facts.claim.token
    }

    /// Whether this delivery still holds its claim. If not, another delivery may run the same event: a long handler
    /// checks before effects that cannot be undone.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.facts.claim.is_held()
    }
}

impl<T> fmt::Debug for WebhookEvent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookEvent")
            .field("id", &self.id())
            .field("event_type", &self.event_type())
            .field("endpoint", &self.endpoint())
            .field("tenant", &self.tenant())
            .field("body_length", &self.body().len())
            .field("secret_label", &self.secret_label())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
