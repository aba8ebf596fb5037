//! For how long heads and bodies of completed events are kept.

use std::time::Duration;

use super::time::{Now, millis};

/// In milliseconds from the completion on; none, if for as long as the record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bodies {
    kept: Option<i64>,
}

impl Bodies {
    pub(super) fn kept_for(time: Duration) -> Self {
        Self { kept: Some(millis(time)) }
    }

    /// Whether the statement that completes an event removes its body.
    pub(super) fn go_at_once(self) -> bool {
        self.kept == Some(0)
    }

    /// The bodies of events that were completed by this time, on the wall clock, are gone. None are, if `None`.
    pub(super) fn gone_by(self, now: &Now) -> Option<i64> {
        self.kept.map(|kept| now.wall - kept)
    }
}
