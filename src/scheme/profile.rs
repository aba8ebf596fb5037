use std::time::Duration;

use http::StatusCode;

use super::Tolerance;
use crate::identity::{IdSource, TypeSource};

/// What is known of a provider, beside how it signs. The layer takes its defaults from it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// Where an event's id is.
    pub id: IdSource,
    /// Where an event's type is.
    pub event_type: TypeSource,
    /// How long the sender waits for an answer; duplicates wait at most half of it.
    pub sender_timeout: Option<Duration>,
    /// How long the sender goes on retrying; a shorter retention is warned about.
    pub retry_window: Option<Duration>,
    /// How far the signed timestamp may be from now; `None` where there is none. Events must be remembered for longer than one
    /// signature is accepted, or it could be replayed.
    pub tolerance: Option<Tolerance>,
    /// The largest body that it sends, where that is more than 1 MiB.
    pub body_limit: Option<usize>,
    /// What it is told when a delivery has no signature (default 401).
    pub unsigned_status: StatusCode,
    /// What it is told when a signature cannot be read or does not match, or its timestamp is off (default 401).
    pub forged_status: StatusCode,
}

impl Default for Profile {
    /// JSON with a top-level `id` and `type`; nothing is known of the sender.
    fn default() -> Self {
        Self {
            id: IdSource::default(),
            event_type: TypeSource::default(),
            sender_timeout: None,
            retry_window: None,
            tolerance: None,
            body_limit: None,
            unsigned_status: StatusCode::UNAUTHORIZED,
            forged_status: StatusCode::UNAUTHORIZED,
        }
    }
}

impl Profile {
    /// The same profile of a sender that waits this long for an answer.
    #[must_use]
    pub fn sender_timeout(mut self, timeout: Duration) -> Self {
        self.sender_timeout = Some(timeout);
        self
    }

    /// The same profile of a sender that retries for this long.
    #[must_use]
    pub fn retry_window(mut self, window: Duration) -> Self {
        self.retry_window = Some(window);
        self
    }

    /// The same profile of a scheme that checks its timestamps like this.
    #[must_use]
    pub fn tolerance(mut self, tolerance: impl Into<Tolerance>) -> Self {
        self.tolerance = Some(tolerance.into());
        self
    }

    /// The same profile of a sender that is to be told this when there is no signature.
    #[must_use]
    pub fn unsigned_status(mut self, status: StatusCode) -> Self {
        self.unsigned_status = status;
        self
    }

    /// The same profile of a sender that is to be refused with this status, with a wrong signature or without one.
    #[must_use]
    pub fn refusal_status(mut self, status: StatusCode) -> Self {
        self.unsigned_status = status;
        self.forged_status = status;
        self
    }

    /// The same profile with ids from elsewhere.
    #[must_use]
    pub fn id(mut self, id: IdSource) -> Self {
        self.id = id;
        self
    }

    /// The same profile with types from elsewhere.
    #[must_use]
    pub fn event_type(mut self, event_type: TypeSource) -> Self {
        self.event_type = event_type;
        self
    }

    /// The same profile of a sender whose bodies may be this large.
    #[must_use]
    pub fn body_limit(mut self, limit: usize) -> Self {
        self.body_limit = Some(limit);
        self
    }
}
