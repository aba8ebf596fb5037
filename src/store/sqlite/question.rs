use std::sync::Arc;
use std::time::Duration;

use super::time::millis;
use crate::EventKey;
use crate::store::queue::StoredRequest;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold};

/// What a batch is asked about one key.
#[derive(Clone)]
pub(super) struct Question {
    pub(super) key: Arc<str>,
    pub(super) token: ClaimToken,
    pub(super) verb: Verb,
}

#[derive(Clone)]
pub(super) enum Verb {
    Claim(Bid),
    Renew(Bid),
    Complete(Bid, Done),
    Release,
    Accept(Bid, Arc<StoredRequest>),
    Start(Bid),
    /// Not before so many milliseconds have passed, and why.
    Retry(i64, Arc<str>),
    Bury(Arc<str>),
}

/// What a claim writes.
#[derive(Clone)]
pub(super) struct Bid {
    /// In milliseconds.
    pub(super) lease: i64,
    pub(super) fingerprint: Fingerprint,
    pub(super) event_type: Option<Arc<str>>,
}

/// What a completion writes.
#[derive(Clone)]
pub(super) struct Done {
    pub(super) failed: bool,
    pub(super) summary: Arc<str>,
    /// In milliseconds.
    pub(super) retention: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Claim(Claim),
    Settled(Hold),
}

impl Question {
    pub(super) fn claim(request: &ClaimRequest<'_>) -> Self {
        Self::new(request.key, request.token, Verb::Claim(Bid::of(request)))
    }

    pub(super) fn renew(claim: &ClaimRequest<'_>) -> Self {
        Self::new(claim.key, claim.token, Verb::Renew(Bid::of(claim)))
    }

    pub(super) fn complete(claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Self {
        let done = Done {
            failed: completion.failed,
            summary: completion.summary.into(),
            retention: millis(completion.retention),
        };
        Self::new(claim.key, claim.token, Verb::Complete(Bid::of(claim), done))
    }

    pub(super) fn release(key: &EventKey, token: ClaimToken) -> Self {
        Self::new(key, token, Verb::Release)
    }

    pub(super) fn accept(claim: &ClaimRequest<'_>, parcel: &StoredRequest) -> Self {
        Self::new(claim.key, claim.token, Verb::Accept(Bid::of(claim), Arc::new(parcel.clone())))
    }

    pub(super) fn start(claim: &ClaimRequest<'_>) -> Self {
        Self::new(claim.key, claim.token, Verb::Start(Bid::of(claim)))
    }

    pub(super) fn retry(claim: &ClaimRequest<'_>, after: Duration, reason: &str) -> Self {
        Self::new(claim.key, claim.token, Verb::Retry(millis(after), reason.into()))
    }

    pub(super) fn bury(claim: &ClaimRequest<'_>, reason: &str) -> Self {
        Self::new(claim.key, claim.token, Verb::Bury(reason.into()))
    }

    /// Whether, answered with success, an event of the inbox may have become due by it: its own, or the one behind it.
    pub(super) fn stirs(&self) -> bool {
        !matches!(self.verb, Verb::Claim(_) | Verb::Renew(_) | Verb::Start(_))
    }

    fn new(key: &EventKey, token: ClaimToken, verb: Verb) -> Self {
        Self { key: key.as_str().into(), token, verb }
    }
}

impl Bid {
    fn of(request: &ClaimRequest<'_>) -> Self {
        Self {
            lease: millis(request.lease),
            fingerprint: request.fingerprint,
            event_type: request.event_type.map(Into::into),
        }
    }
}

impl Answer {
    /// Whether what was asked is so now.
    pub(super) const fn is_success(self) -> bool {
        matches!(self, Self::Claim(Claim::Fresh { .. }) | Self::Settled(Hold::Held))
    }

    /// How a claim was answered.
    pub(super) fn into_claim(self) -> Claim {
        match self {
            Self::Claim(claim) => claim,
            Self::Settled(_) => unreachable!("this answers no claim"),
        }
    }

    /// How anything else was answered.
    pub(super) fn into_hold(self) -> Hold {
        match self {
            Self::Settled(hold) => hold,
            Self::Claim(_) => unreachable!("this answers a claim"),
        }
    }
}
