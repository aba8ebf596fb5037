//! The simplest thing that answers like a store: what the random sequences are compared with.

use super::bench::{Caller, FRESH};
use crate::store::{Claim, Hold};

/// What the reference knows of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Running { holder: Caller, lapsed: bool },
    Completed { holder: Caller, brief: bool },
}

impl State {
    /// `same_body` says whether two callers deliver the same body.
    pub(super) fn claim(&mut self, caller: Caller, same_body: impl Fn(Caller, Caller) -> bool) -> Claim {
        match *self {
            Self::Completed { holder, .. } => Claim::Completed { same_body: same_body(holder, caller) },
            Self::Running { holder, lapsed: false } if holder != caller => {
                Claim::InFlight { same_body: same_body(holder, caller) }
            }
            Self::Free | Self::Running { .. } => {
                *self = Self::Running { holder: caller, lapsed: false };
                FRESH
            }
        }
    }

    pub(super) fn renew(&mut self, caller: Caller) -> Hold {
        self.settle(caller, Self::Running { holder: caller, lapsed: false })
    }

    /// `brief` says whether the record is gone after the next long wait.
    pub(super) fn complete(&mut self, caller: Caller, brief: bool) -> Hold {
        match *self {
            Self::Completed { holder, .. } if holder == caller => Hold::Held,
            _ => self.settle(caller, Self::Completed { holder: caller, brief }),
        }
    }

    pub(super) fn release(&mut self, caller: Caller) -> Hold {
        self.settle(caller, Self::Free)
    }

    /// Every lease lapses and every brief retention ends.
    pub(super) fn wait_long(&mut self) {
        match self {
            Self::Running { lapsed, .. } => *lapsed = true,
            Self::Completed { brief: true, .. } => *self = Self::Free,
            Self::Free | Self::Completed { brief: false, .. } => {}
        }
    }

    /// Whether the contract says what `caller` is told when it renews, completes or releases. Of a claim that is gone, or
    /// that lapsed under somebody else, a store may have no trace.
    pub(super) fn is_settled_by_contract(&self, caller: Caller) -> bool {
        match *self {
            Self::Free => false,
            Self::Running { holder, lapsed } => holder == caller || !lapsed,
            Self::Completed { .. } => true,
        }
    }

    fn settle(&mut self, caller: Caller, next: Self) -> Hold {
        match *self {
            Self::Running { holder, .. } if holder == caller => {
                *self = next;
                Hold::Held
            }
            _ => Hold::Lost,
        }
    }
}
