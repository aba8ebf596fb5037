use std::time::Duration;

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
    /// For how long one signed delivery is accepted. Its event must be remembered for longer, or it could be replayed.
    pub replay_window: Option<Duration>,
    /// The largest body that it sends, where that is more than 1 MiB.
    pub body_limit: Option<usize>,
}

impl Default for Profile {
    /// JSON with a top-level `id` and `type`; nothing is known of the sender.
    fn default() -> Self {
        Self {
            id: IdSource::default(),
            event_type: TypeSource::default(),
            sender_timeout: None,
            retry_window: None,
            replay_window: None,
            body_limit: None,
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

    /// The same profile of a scheme that accepts one signed delivery for this long.
    #[must_use]
    pub fn replay_window(mut self, window: Duration) -> Self {
        self.replay_window = Some(window);
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
