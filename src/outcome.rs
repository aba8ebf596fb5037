//! How a delivery ended, for outer layers and for people.

use std::fmt;

use crate::rejection::{Rejection, RejectionKind};

/// How a delivery ended. Every delivery has one outcome, in the extensions of its response and in telemetry.
///
/// ```
/// use http::Response;
/// use tower_webhook::Outcome;
///
/// fn is_replay<B>(response: &Response<B>) -> bool {
///     response.extensions().get::<Outcome>() == Some(&Outcome::Duplicate)
/// }
/// # assert!(!is_replay(&Response::new(())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler succeeded, and the store has recorded it.
    Completed,
    /// The handler succeeded. The store could not record it yet, and is asked again in the background.
    CompletionPending,
    /// The handler failed permanently. The sender got 200, and the store has recorded the reason.
    Failed,
    /// The handler failed. The sender's retry runs again.
    Released,
    /// The handler panicked. The sender's retry runs again, unless another delivery has taken the event over.
    Panicked,
    /// The inner service failed to become ready, and was not called. The sender's retry runs again.
    NotReady,
    /// The event is durably queued, and a worker will run it.
    Accepted,
    /// The event was completed or durably queued before. The handler was not called.
    Duplicate,
    /// The request was not an event, but a provider's validation of the endpoint. The layer answered it.
    Handshake,
    /// The layer refused the delivery, or answered in the handler's place.
    Refused(Rejection),
    /// The sender disconnected before the event was claimed.
    Abandoned,
    /// The sender disconnected and the handler was dropped, as configured with
    /// [`cancel_on_disconnect`](crate::WebhookLayer::cancel_on_disconnect). The sender's retry runs again.
    Cancelled,
}

impl Outcome {
    /// The stable, lower-case name.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::CompletionPending => "completion_pending",
            Self::Failed => "failed",
            Self::Released => "released",
            Self::Panicked => "panicked",
            Self::NotReady => "not_ready",
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Handshake => "handshake",
            Self::Refused(_) => "refused",
            Self::Abandoned => "abandoned",
            Self::Cancelled => "cancelled",
        }
    }

    /// The rejection, if the delivery was refused.
    #[must_use]
    pub const fn rejection(&self) -> Option<&Rejection> {
        match self {
            Self::Refused(rejection) => Some(rejection),
            _ => None,
        }
    }
}

impl From<RejectionKind> for Outcome {
    fn from(kind: RejectionKind) -> Self {
        Self::Refused(kind.into())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(rejection) => write!(f, "refused: {rejection}"),
            other => f.write_str(other.as_str()),
        }
    }
}

/// How a worker's attempt at an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The handler succeeded, and the queue has recorded it.
    Completed,
    /// The attempt failed. The event is tried again later.
    Retried,
    /// The event was given up, and is a dead letter now.
    Buried,
    /// The handler was not called, or was dropped in a shutdown. The attempt does not count.
    Released,
    /// Another worker has taken the event over: what this attempt did is not the event's outcome.
    Lost,
    /// The queue could not be asked what became of the event.
    Unknown,
}

impl AttemptOutcome {
    /// The stable, lower-case name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Retried => "retried",
            Self::Buried => "buried",
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for AttemptOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
