//! One event in a store under check, and the callers that ask about it.

use std::error::Error as _;
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use super::suite::Harness;
use crate::EventKey;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold, Store, StoreError};

/// A lease or a retention that does not end during a check, however slow the store is.
pub(super) const LONG: Duration = Duration::from_secs(24 * 3600);

pub(super) const FRESH: Claim = Claim::Fresh { attempt: None };
pub(super) const IN_FLIGHT: Claim = Claim::InFlight { same_body: true };
pub(super) const COMPLETED: Claim = Claim::Completed { same_body: true };

/// The callers of the store. Each has a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    First,
    Second,
    Third,
}

impl Caller {
    pub(super) fn token(self) -> ClaimToken {
        ClaimToken::from_bytes([self as u8 + 1; 16])
    }
}

/// One event in a store under check. Every method is one call, which fails the check unless its answer is the expected
/// one.
pub(super) struct Fixture<S> {
    pub(super) store: Arc<S>,
    pub(super) key: EventKey,
}

impl<S: Store> Fixture<S> {
    pub(super) async fn new(harness: &impl Harness<Store = S>) -> Self {
        let store = Arc::new(harness.store().await);
        Self { store, key: EventKey::new("/webhooks/conformance", None, "evt_1") }
    }

    /// Another event in the same store.
    pub(super) fn event(&self, key: EventKey) -> Self {
        Self { store: Arc::clone(&self.store), key }
    }

    /// Claims for a lease that does not end.
    pub(super) async fn claims(&self, caller: Caller, expected: Claim) {
        self.claims_for(LONG, caller, expected).await;
    }

    pub(super) async fn claims_for(&self, lease: Duration, caller: Caller, expected: Claim) {
        let came = self.claim(lease, caller, Fingerprint::default()).await;
        self.verify("claim", caller, without_attempt(came), expected);
    }

    /// Claims for a body with this fingerprint.
    pub(super) async fn claims_body(&self, body: Fingerprint, caller: Caller, expected: Claim) {
        let came = self.claim(LONG, caller, body).await;
        self.verify("claim", caller, without_attempt(came), expected);
    }

    /// Claims, and returns the number of the attempt, if the store counts.
    pub(super) async fn attempts(&self, lease: Duration, caller: Caller) -> Option<u32> {
        match self.claim(lease, caller, Fingerprint::default()).await {
            Claim::Fresh { attempt } => attempt,
            other => self.fail(&format!("claim by {caller:?}"), &"Fresh", &other),
        }
    }

    pub(super) async fn renews(&self, lease: Duration, caller: Caller, expected: Hold) {
        let came = self.store.renew(&self.request(lease, caller, Fingerprint::default())).await;
        self.verify("renew", caller, self.answered("renew", came), expected);
    }

    /// Completes for a retention that does not end.
    pub(super) async fn completes(&self, caller: Caller, expected: Hold) {
        self.completes_with(&Completion::succeeded("200 OK", LONG), caller, expected).await;
    }

    pub(super) async fn completes_with(&self, completion: &Completion<'_>, caller: Caller, expected: Hold) {
        let came = self.store.complete(&self.request(LONG, caller, Fingerprint::default()), completion).await;
        self.verify("complete", caller, self.answered("complete", came), expected);
    }

    /// Completes a claim that was for a body with this fingerprint.
    pub(super) async fn completes_body(&self, body: Fingerprint, caller: Caller, expected: Hold) {
        let came = self.store.complete(&self.request(LONG, caller, body), &Completion::succeeded("200 OK", LONG)).await;
        self.verify("complete", caller, self.answered("complete", came), expected);
    }

    pub(super) async fn releases(&self, caller: Caller, expected: Hold) {
        let came = self.released(caller).await;
        self.verify("release", caller, came, expected);
    }

    /// Releases, and returns the answer.
    pub(super) async fn released(&self, caller: Caller) -> Hold {
        self.answered("release", self.store.release(&self.key, caller.token()).await)
    }

    /// Unwraps an answer that must not be an error.
    pub(super) fn answered<T>(&self, verb: &str, answer: Result<T, StoreError>) -> T {
        answer.unwrap_or_else(|error| fail_by(format_args!("{verb} of {:?}", self.key.as_str()), &error))
    }

    pub(super) fn fail(&self, step: &str, expected: &dyn Debug, got: &dyn Debug) -> ! {
        fail(format_args!("{step} of {:?}", self.key.as_str()), expected, got)
    }

    async fn claim(&self, lease: Duration, caller: Caller, body: Fingerprint) -> Claim {
        self.answered("claim", self.store.claim(&self.request(lease, caller, body)).await)
    }

    fn request(&self, lease: Duration, caller: Caller, body: Fingerprint) -> ClaimRequest<'_> {
        ClaimRequest::new(&self.key, caller.token(), lease).fingerprint(body)
    }

    fn verify<T: Copy + Debug + PartialEq>(&self, verb: &str, caller: Caller, came: T, expected: T) {
        if came != expected {
            self.fail(&format!("{verb} by {caller:?}"), &expected, &came);
        }
    }
}

/// Removes the number of the attempt, which a store need not count.
pub(super) fn without_attempt(claim: Claim) -> Claim {
    match claim {
        Claim::Fresh { .. } => FRESH,
        other => other,
    }
}

/// Fails a check by an error where an answer was expected.
pub(super) fn fail_by(step: impl Display, error: &StoreError) -> ! {
    let cause = error.source().map_or_else(String::new, |source| format!(": {source}"));
    fail(step, &"an answer", &format_args!("the error \"{error}{cause}\""))
}

pub(super) fn fail(step: impl Display, expected: &dyn Debug, got: &dyn Debug) -> ! {
    panic!("{step}: expected {expected:?}, got {got:?}")
}
