use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::{HeaderPattern, Tolerance};
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
    /// Its own headers, beside those of the signature: an inbox keeps them for the handlers.
    pub own_headers: Vec<HeaderPattern>,
    /// The headers that carry its signature or a token: an inbox never keeps them, even if they are its own.
    pub proof_headers: Vec<HeaderName>,
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
            own_headers: Vec::new(),
            proof_headers: Vec::new(),
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

    /// The same profile of a sender that has these headers of its own, too: [`own_headers`](Self#structfield.own_headers).
    #[must_use]
    pub fn own_headers(mut self, headers: impl IntoIterator<Item = HeaderPattern>) -> Self {
        for header in headers {
            if !self.own_headers.contains(&header) {
                self.own_headers.push(header);
            }
        }
        self
    }

    /// The same profile of a sender that proves itself with these headers, too: [`proof_headers`](Self#structfield.proof_headers).
    #[must_use]
    pub fn proof_headers(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        for header in headers {
            if !self.proof_headers.contains(&header) {
                self.proof_headers.push(header);
            }
        }
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
