//! The verified event that a handler gets.

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

/// The body was not parsed.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Untyped;

/// What is known of one delivery's event.
pub(crate) struct Facts {
    pub(crate) claim: Arc<ClaimState>,
    pub(crate) body: Bytes,
    pub(crate) provenance: Provenance,
    pub(crate) received_at: SystemTime,
    pub(crate) id_authenticated: bool,
    pub(crate) type_authenticated: bool,
}

/// What an event's signature told.
pub(crate) enum Provenance {
    /// In this delivery.
    Verified(Verified),
    /// When the event was accepted.
    Kept { secret_label: Box<str>, signed_at: Option<SystemTime> },
}

impl WebhookEvent {
    pub(crate) fn new(facts: Facts) -> Self {
        Self { facts: Arc::new(facts), data: Untyped }
    }

    /// The same event with its body parsed.
    pub fn with_data<T>(self, data: T) -> WebhookEvent<T> {
        WebhookEvent { facts: self.facts, data }
    }
}

impl<T> WebhookEvent<T> {
    pub(crate) fn claim(&self) -> &ClaimState {
        &self.facts.claim
    }

    /// The event's id: the same on every delivery of this event, unless it [is not deduplicated](Self::is_deduplicated).
    #[must_use]
    pub fn id(&self) -> &str {
        self.key().id()
    }

    /// Whether the signature covers the id.
    #[must_use]
    pub fn id_is_authenticated(&self) -> bool {
        self.facts.id_authenticated && self.is_deduplicated()
    }

    /// Whether the event has an id to be recognised by. One that has none
    /// ([`IdSource::none`](crate::identity::IdSource::none)) runs at every delivery, and
    /// its `id` is made up anew each time.
    #[must_use]
    pub fn is_deduplicated(&self) -> bool {
        self.facts.claim.is_deduplicated()
    }

    /// The event's type, where the sender gives one.
    #[must_use]
    pub fn event_type(&self) -> Option<&str> {
        self.facts.claim.event_type.as_deref()
    }

    /// Whether the signature covers the type: not one from a header, nor one from a body of which only some fields are signed.
    /// Whoever captured such a delivery can give it another type, so believe the body, and not the type, where they differ.
    #[must_use]
    pub fn event_type_is_authenticated(&self) -> bool {
        self.facts.type_authenticated && self.event_type().is_some()
    }

    /// The body exactly as it was signed.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.facts.body
    }

    /// The body, parsed as the type that was asked for.
    #[must_use]
    pub fn data(&self) -> &T {
        &self.data
    }

    /// The parsed body alone.
    #[must_use]
    pub fn into_data(self) -> T {
        self.data
    }

    /// What the store remembers the event under.
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

    /// When the sender signed this delivery, where the scheme says.
    #[must_use]
    pub fn signed_at(&self) -> Option<SystemTime> {
        match &self.facts.provenance {
            Provenance::Verified(verified) => verified.signed_at(),
            Provenance::Kept { signed_at, .. } => *signed_at,
        }
    }

    /// When this delivery was received; of an event out of an inbox, the one that was accepted.
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

    /// How often the event has been claimed, this time included, where the store counts. Out of an inbox: how often it has been
    /// tried.
    #[must_use]
    pub fn attempt(&self) -> Option<u32> {
        self.facts.claim.attempt()
    }

    /// The token that this delivery holds its claim with.
    #[must_use]
    pub fn token(&self) -> ClaimToken {
        self.facts.claim.token
    }

    /// Whether this delivery still holds its claim. Once it does not, another one may run the same event: a long handler
    /// asks before effects that cannot be undone.
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
