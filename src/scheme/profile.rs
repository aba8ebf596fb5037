use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::{HeaderPattern, Tolerance};
use crate::identity::{IdSource, TypeSource};

/// Facts about a provider other than how it signs. The layer takes its defaults from them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// Where an event's id is.
    pub id: IdSource,
    /// Where an event's type is.
    pub event_type: TypeSource,
    /// How long the sender waits for a response. Duplicates wait at most half of it, and the layer warns of handlers that
    /// take longer.
    pub sender_timeout: Option<Duration>,
    /// How long the sender keeps retrying. The layer warns if the retention is shorter.
    pub retry_window: Option<Duration>,
    /// How far the signed timestamp may be from now; `None` if there is no timestamp. Events must be remembered for
    /// longer than one signature is accepted, or it could be replayed.
    pub tolerance: Option<Tolerance>,
    /// The largest body that the sender sends, if it is more than 1 MiB.
    pub body_limit: Option<usize>,
    /// The sender's own headers, other than those of the signature. An inbox keeps them for the handlers.
    pub own_headers: Vec<HeaderPattern>,
    /// The headers that carry the signature or a token. An inbox never keeps them, even if they match `own_headers`.
    pub proof_headers: Vec<HeaderName>,
    /// Whether the sender signs the URL that it calls. A signature that does not match may then be due to a proxy.
    pub signs_url: bool,
    /// The status of a refusal if a delivery has no signature (default 401).
    pub unsigned_status: StatusCode,
    /// The status of a refusal if a signature cannot be read or does not match, or if its timestamp is outside the
    /// tolerance (default 401).
    pub forged_status: StatusCode,
}

impl Default for Profile {
    /// JSON with a top-level `id` and `type`, and no facts about the sender.
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
            signs_url: false,
            unsigned_status: StatusCode::UNAUTHORIZED,
            forged_status: StatusCode::UNAUTHORIZED,
        }
    }
}

impl Profile {
    /// Sets how long the sender waits for a response.
    #[must_use]
    pub fn sender_timeout(mut self, timeout: Duration) -> Self {
        self.sender_timeout = Some(timeout);
        self
    }

    /// Sets how long the sender keeps retrying.
    #[must_use]
    pub fn retry_window(mut self, window: Duration) -> Self {
        self.retry_window = Some(window);
        self
    }

    /// Sets how far the signed timestamp may be from now.
    #[must_use]
    pub fn tolerance(mut self, tolerance: impl Into<Tolerance>) -> Self {
        self.tolerance = Some(tolerance.into());
        self
    }

    /// Adds headers of the sender's own: [`own_headers`](Self#structfield.own_headers).
    #[must_use]
    pub fn own_headers(mut self, headers: impl IntoIterator<Item = HeaderPattern>) -> Self {
        for header in headers {
            if !self.own_headers.contains(&header) {
                self.own_headers.push(header);
            }
        }
        self
    }

    /// Adds headers that carry the proof: [`proof_headers`](Self#structfield.proof_headers).
    #[must_use]
    pub fn proof_headers(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        for header in headers {
            if !self.proof_headers.contains(&header) {
                self.proof_headers.push(header);
            }
        }
        self
    }

    /// Sets the status of a refusal if a delivery has no signature.
    #[must_use]
    pub fn unsigned_status(mut self, status: StatusCode) -> Self {
        self.unsigned_status = status;
        self
    }

    /// Sets the status of a refusal, both for a wrong signature and for a missing one.
    #[must_use]
    pub fn refusal_status(mut self, status: StatusCode) -> Self {
        self.unsigned_status = status;
        self.forged_status = status;
        self
    }

    /// Sets where an event's id is.
    #[must_use]
    pub fn id(mut self, id: IdSource) -> Self {
        self.id = id;
        self
    }

    /// Sets where an event's type is.
    #[must_use]
    pub fn event_type(mut self, event_type: TypeSource) -> Self {
        self.event_type = event_type;
        self
    }

    /// Sets the largest body that the sender sends.
    #[must_use]
    pub fn body_limit(mut self, limit: usize) -> Self {
        self.body_limit = Some(limit);
        self
    }
}
