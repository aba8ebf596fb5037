use std::sync::Arc;

use crate::EventKey;
use crate::store::ClaimToken;

/// An event that was completed here while the store was away, and that the store knows otherwise: two instances have run
/// it, or are about to. What the store has is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The event.
    pub key: EventKey,
    /// The claim under which it was completed here.
    pub token: ClaimToken,
    /// What the store has instead.
    pub found: FoundInStore,
    /// Whether the other one's body has the same fingerprint.
    pub same_body: bool,
}

/// What the store has of an event that was completed without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FoundInStore {
    /// Another claim completed it.
    Completed,
    /// It is queued, and will be worked on.
    Accepted,
    /// Another claim holds it, and did for longer than a lease: somebody renews it.
    InFlight,
}

impl FoundInStore {
    /// The stable, lower-case name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Accepted => "accepted",
            Self::InFlight => "in_flight",
        }
    }
}

pub(super) type OnConflict = Arc<dyn Fn(&Conflict) + Send + Sync>;
