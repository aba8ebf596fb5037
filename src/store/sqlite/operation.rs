//! One call, as it waits for its batch.

use std::sync::Arc;

use super::time::millis;
use crate::store::queue::StoredRequest;
use crate::store::record::Verb;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Ending, Fingerprint, Hold};

/// A verb for one key.
#[derive(Clone)]
pub(super) struct Operation {
    pub(super) verb: Verb,
    pub(super) key: Arc<str>,
    pub(super) token: ClaimToken,
    /// In milliseconds.
    pub(super) lease: i64,
    pub(super) fingerprint: Fingerprint,
    pub(super) event_type: Option<Arc<str>>,
    /// The request to enqueue.
    pub(super) request: Option<Arc<StoredRequest>>,
    /// The summary of a completion, or the reason of a failure.
    pub(super) text: Arc<str>,
    /// The retention of a completion, or the delay of a retry, in milliseconds.
    pub(super) time: i64,
}

impl Operation {
    pub(super) fn new(verb: Verb, claim: &ClaimRequest<'_>) -> Self {
        Self {
            verb,
            key: claim.key.as_str().into(),
            token: claim.token,
            lease: millis(claim.lease),
            fingerprint: claim.fingerprint,
            event_type: claim.event_type.map(Into::into),
            request: None,
            text: "".into(),
            time: 0,
        }
    }

    pub(super) fn enqueue(claim: &ClaimRequest<'_>, request: &StoredRequest) -> Self {
        Self { request: Some(Arc::new(request.clone())), ..Self::new(Verb::Enqueue, claim) }
    }

    pub(super) fn settle(claim: &ClaimRequest<'_>, ending: &Ending<'_>) -> Self {
        let operation = Self::new(ending.into(), claim);
        match *ending {
            Ending::Complete(Completion { summary, retention, .. }) => {
                Self { text: summary.into(), time: millis(retention), ..operation }
            }
            Ending::Retry { after, reason } => Self { text: reason.into(), time: millis(after), ..operation },
            Ending::Bury { reason } => Self { text: reason.into(), ..operation },
            Ending::Release => operation,
        }
    }

    /// Whether, if it succeeds on a queued event, an event may have become due by it: its own, or the next one of its
    /// order.
    pub(super) fn wakes(&self) -> bool {
        !matches!(self.verb, Verb::Claim | Verb::Renew | Verb::Start)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// To a claim or an enqueue.
    Claim(Claim),
    /// To any other verb.
    Hold(Hold),
}

impl Reply {
    /// Whether the caller has the claim, or the change is made.
    pub(super) const fn is_success(self) -> bool {
        matches!(self, Self::Claim(Claim::Fresh { .. }) | Self::Hold(Hold::Held))
    }

    pub(super) fn into_claim(self) -> Claim {
        match self {
            Self::Claim(claim) => claim,
            Self::Hold(_) => unreachable!("not the reply to a claim"),
        }
    }

    pub(super) fn into_hold(self) -> Hold {
        match self {
            Self::Hold(hold) => hold,
            Self::Claim(_) => unreachable!("not the reply to a settlement"),
        }
    }
}
