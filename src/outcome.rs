//! How a delivery ended, for outer layers and for people.

use std::fmt;

use crate::rejection::{Rejection, RejectionKind};

/// How a delivery ended. There is one for every delivery: in the extensions of its response, and in telemetry.
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
    /// The handler did its work, and the store remembers it.
    Completed,
    /// The handler did its work; the store could not be told yet and is asked again in the background.
    CompletionPending,
    /// The handler gave the event up for good: the sender was told 200, the store remembers why.
    Failed,
    /// The handler failed: the sender's retry runs again.
    Released,
    /// The handler panicked: the sender's retry runs again.
    Panicked,
    /// The inner service refused to become ready; nothing was claimed.
    NotReady,
    /// Durably queued, to be run by a worker.
    Accepted,
    /// Completed or durably queued before; the handler was not called.
    Duplicate,
    /// No event, but a provider's validation of the endpoint, answered by the layer.
    Handshake,
    /// The layer refused it, or answered in the handler's place.
    Refused(Rejection),
    /// The sender went away before the event was claimed.
    Abandoned,
    /// The sender went away and the handler was dropped, as [`cancel_on_disconnect`](crate::WebhookLayer::cancel_on_disconnect)
    /// asks for: the sender's retry runs again.
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

    /// What was refused, if it was.
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
