use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::builder::BreakerStoreBuilder;
use super::circuit::CircuitState;
use super::fallback::{Fallback, Home};
use super::switch::{Call, Switch, is_outage};
use crate::EventKey;
use crate::clock::Clock;
use crate::store::{
    Claim, ClaimRequest, ClaimToken, Completion, Ending, Enlistment, Hold, IntoStore, Store, StoreError,
    StoreErrorKind, StoreFuture,
};

/// Any store behind a circuit breaker; see the [module](super) for what that does and costs.
///
/// Clones share one circuit and one journal.
#[derive(Clone)]
pub struct BreakerStore {
    shared: Arc<Shared>,
}

/// How a [`BreakerStore`] has fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerStats {
    /// The circuit, now.
    pub circuit: CircuitState,
    /// Claims that the fallback gave since the store was built.
    pub fallback_claims: u64,
    /// Events that were completed on the fallback and that the store does not know of yet. They are lost to it when the
    /// process ends.
    pub unreconciled: usize,
    /// Conflicts found since the store was built.
    pub conflicts: u64,
}

pub(super) struct Shared {
    pub(super) inner: Arc<dyn Store>,
    pub(super) switch: Switch,
    pub(super) fallback: Option<Fallback>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hung_after: Duration,
}

impl BreakerStore {
    /// Refuses claims at once while `store` is away. No fallback.
    #[must_use]
    pub fn new(store: impl IntoStore) -> Self {
        Self::builder(store).build()
    }

    /// With other limits, or a fallback.
    pub fn builder(store: impl IntoStore) -> BreakerStoreBuilder {
        BreakerStoreBuilder::new(store.into_store())
    }

    pub(super) fn from_parts(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// The store behind the breaker.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.shared.inner
    }

    /// How it has fared so far.
    #[must_use]
    pub fn stats(&self) -> BreakerStats {
        let fallback = self.shared.fallback.as_ref();
        BreakerStats {
            circuit: self.shared.switch.state(),
            fallback_claims: fallback.map_or(0, Fallback::claims),
            unreconciled: fallback.map_or(0, |fallback| *fallback.unreconciled().borrow()),
            conflicts: fallback.map_or(0, Fallback::conflicts),
        }
    }

    /// Ready when the store knows of every event that was completed without it; at once, if there is none.
    ///
    /// To be awaited before the process exits, after the [drain](crate::DrainHandle) and with a timeout: the store may
    /// not come back.
    pub async fn reconciled(&self) {
        let Some(fallback) = &self.shared.fallback else { return };
        self.shared.reconcile_in_background();
        // The sender is in `self`, so it cannot be gone.
        let _ = fallback.unreconciled().subscribe().wait_for(|count| *count == 0).await;
    }
}

impl fmt::Debug for BreakerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerStore").field("circuit", &self.shared.switch.state()).finish_non_exhaustive()
    }
}

impl Store for BreakerStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let shared = &*self.shared;
            if let Some(fallback) = &shared.fallback {
                return shared.claim_with(fallback, request).await;
            }
            match shared.switch.admit() {
                Some(call) => call.watch(shared.inner.claim(request)).await,
                None => Err(StoreError::new(StoreErrorKind::CircuitOpen)),
            }
        })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            let shared = &*self.shared;
            match &shared.fallback {
                Some(fallback) => shared.renew_with(fallback, claim).await,
                None => shared.switch.settle().watch(shared.inner.renew(claim)).await,
            }
        })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            match ending {
                Ending::Complete(completion) => self.complete_here_or_there(claim, &completion).await,
                _ => self.release_here_or_there(claim).await,
            }
        })
    }

    /// The inner store's. For a claim that the fallback gave there is no row that it could change.
    fn enlistment(&self) -> Option<Enlistment> {
        self.shared.inner.enlistment()
    }
}

impl BreakerStore {
    async fn complete_here_or_there(
        &self,
        claim: &ClaimRequest<'_>,
        completion: &Completion<'_>,
    ) -> Result<Hold, StoreError> {
        let shared = &*self.shared;
        let fallback = shared.fallback.as_ref();
        if let Some(hold) = fallback.and_then(|fallback| fallback.complete(claim, completion, shared.now())) {
            self.shared.reconcile_in_background();
            return Ok(hold);
        }
        let hold = shared.switch.settle().watch(shared.inner.complete(claim, completion)).await?;
        if let Some(fallback) = fallback {
            fallback.completed(claim.key, claim.token, hold);
        }
        Ok(hold)
    }

    async fn release_here_or_there(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        let shared = &*self.shared;
        match &shared.fallback {
            Some(fallback) => shared.release_with(fallback, claim.key, claim.token).await,
            None => shared.switch.settle().watch(shared.inner.release(claim.key, claim.token)).await,
        }
    }
}

impl Shared {
    pub(super) fn now(&self) -> Instant {
        self.clock.monotonic()
    }

    async fn claim_with(&self, fallback: &Fallback, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        if let Some(claim) = fallback.known(request, self.now()) {
            return Ok(claim);
        }
        let claim = match self.switch.admit() {
            None => return fallback.claim(request, false, self.now()),
            Some(call) if call.is_probe() => match self.probe(call, request).await {
                Err(error) if is_outage(&error) => return self.claim_in_doubt(fallback, request, error).await,
                answer => answer?,
            },
            Some(call) => call.watch(self.inner.claim(request)).await?,
        };
        if !matches!(claim, Claim::Fresh { .. }) {
            return Ok(claim);
        }
        let Some(here) = fallback.took(request, self.now()) else { return Ok(claim) };
        self.give_back(request).await;
        Ok(here)
    }

    /// Decides without the store, which may have given the claim nevertheless. That is no harm to the claimant: the token is
    /// the same.
    async fn claim_in_doubt(
        &self,
        fallback: &Fallback,
        request: &ClaimRequest<'_>,
        error: StoreError,
    ) -> Result<Claim, StoreError> {
        // Not the fallback's error: to the caller that would mean that there is nothing to release.
        let claim = fallback.claim(request, true, self.now()).map_err(|_| error)?;
        if !matches!(claim, Claim::Fresh { .. }) {
            self.give_back(request).await;
        }
        Ok(claim)
    }

    /// Releases a claim that nobody is going to settle. If the store cannot be told, the lease ends by itself.
    async fn give_back(&self, request: &ClaimRequest<'_>) {
        let release = self.inner.release(request.key, request.token);
        let _ = self.switch.settle().watch_within(self.hung_after, release).await;
    }

    /// Not for as long as the caller would wait: there is somebody else to ask.
    async fn probe(&self, call: Call<'_>, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        call.watch_within(self.hung_after, self.inner.claim(request)).await
    }

    /// The store is always asked, lest the lease lapse there. While it is away, its claims that run here go on to: a
    /// handler must not lose its claim to a duplicate in its own process.
    async fn renew_with(&self, fallback: &Fallback, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        let is_held = match fallback.renew(claim, self.now()) {
            Home::Here(hold) => return Ok(hold),
            Home::Store { is_held } => is_held,
        };
        let (call, renewal) = (self.switch.settle(), self.inner.renew(claim));
        let answer = match self.switch.state() {
            CircuitState::Closed => call.watch(renewal).await,
            _ => match call.watch_within(self.hung_after, renewal).await {
                Err(error) if is_held && is_outage(&error) => Ok(Hold::Held),
                answer => answer,
            },
        };
        if let Ok(Hold::Lost) = answer {
            fallback.lost(claim.key, claim.token);
        }
        answer
    }

    /// A claim that the store may have given, too, is also released there; and whether a handler's transaction has completed
    /// it, nobody else knows.
    async fn release_with(&self, fallback: &Fallback, key: &EventKey, token: ClaimToken) -> Result<Hold, StoreError> {
        let is_held = match fallback.release(key, token, self.now()) {
            Home::Here(hold) => return Ok(hold),
            Home::Store { is_held } => is_held,
        };
        let (call, release) = (self.switch.settle(), self.inner.release(key, token));
        if !is_held {
            return call.watch(release).await;
        }
        match call.watch_within(self.hung_after, release).await {
            Err(error) if is_outage(&error) => Ok(Hold::Held),
            answer => answer,
        }
    }
}
