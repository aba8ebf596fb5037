use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::circuit::CircuitState;
use super::fallback::{Fallback, GivenBy};
use super::shared_circuit::{SharedCircuit, is_outage};
use crate::clock::Clock;
use crate::store::{
    Claim, ClaimRequest, Completion, Ending, Enlistment, Hold, Store, StoreError, StoreErrorKind, StoreFuture,
};

/// Any store behind a circuit breaker; see the [module](super) for what that does and costs.
///
/// Clones share one circuit and one journal.
///
/// ```
/// use tower_webhook::store::{BreakerStore, MemoryStore};
/// use tower_webhook::{WebhookLayer, scheme};
///
/// # let shared_store = MemoryStore::new();
/// let store = BreakerStore::new(shared_store); // 503 at once while the store is away
/// let layer = WebhookLayer::new(scheme::stripe("whsec_…")?, store.clone());
/// println!("{:?}", store.stats().circuit);
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct BreakerStore {
    pub(super) shared: Arc<Shared>,
}

/// The state of a [`BreakerStore`], and its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerStats {
    /// The circuit's state.
    pub circuit: CircuitState,
    /// Claims that the fallback has given since the store was built.
    pub fallback_claims: u64,
    /// Events that were completed on the fallback and that the store does not know of yet. It never will if the process
    /// ends.
    pub unreconciled: usize,
    /// Conflicts found since the store was built.
    pub conflicts: u64,
}

pub(super) struct Shared {
    pub(super) inner: Arc<dyn Store>,
    pub(super) circuit: SharedCircuit,
    pub(super) fallback: Option<Fallback>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hung_after: Duration,
}

impl BreakerStore {
    /// The store behind the breaker.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.shared.inner
    }

    /// Returns the circuit's state and the counters.
    #[must_use]
    pub fn stats(&self) -> BreakerStats {
        let fallback = self.shared.fallback.as_ref();
        BreakerStats {
            circuit: self.shared.circuit.state(),
            fallback_claims: fallback.map_or(0, Fallback::given),
            unreconciled: fallback.map_or(0, |fallback| *fallback.unreconciled.borrow()),
            conflicts: fallback.map_or(0, Fallback::conflicts),
        }
    }

    /// Waits until the store knows of every event that was completed without it. Returns at once if there is no such
    /// event.
    ///
    /// Await it before the process exits, after the [drain](crate::DrainHandle) and with a timeout: the store may not
    /// come back.
    pub async fn reconciled(&self) {
        let Some(fallback) = &self.shared.fallback else { return };
        self.shared.reconcile_in_background();
        // The sender is in `self`, so it cannot be gone.
        let _ = fallback.unreconciled.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl fmt::Debug for BreakerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerStore").field("circuit", &self.shared.circuit.state()).finish_non_exhaustive()
    }
}

impl Store for BreakerStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let shared = &*self.shared;
            if let Some(fallback) = &shared.fallback {
                return shared.claim_with(fallback, request).await;
            }
            match shared.circuit.admit() {
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
                None => shared.circuit.settle().watch(shared.inner.renew(claim)).await,
            }
        })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            match ending {
                Ending::Complete(completion) => self.shared.complete(claim, &completion).await,
                _ => self.shared.release(claim).await,
            }
        })
    }

    /// Returns the inner store's statement. It has no row to change for a claim that the fallback gave.
    fn enlistment(&self) -> Option<Enlistment> {
        self.shared.inner.enlistment()
    }
}

impl Shared {
    pub(super) fn now(&self) -> Instant {
        self.clock.monotonic()
    }

    async fn claim_with(&self, fallback: &Fallback, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        if let Some(claim) = fallback.known_only_here(request, self.now()) {
            return Ok(claim);
        }
        let claim = match self.circuit.admit() {
            None => return fallback.claim(request, false, self.now()),
            // A probe does not wait for as long as its caller would: the fallback can answer, too.
            Some(call) if call.is_probe() => {
                match call.watch_within(self.hung_after, self.inner.claim(request)).await {
                    Err(error) if is_outage(&error) => return self.claim_in_doubt(fallback, request, error).await,
                    answer => answer?,
                }
            }
            Some(call) => call.watch(self.inner.claim(request)).await?,
        };
        if !matches!(claim, Claim::Fresh { .. }) {
            return Ok(claim);
        }
        let Some(here) = fallback.record_store_claim(request, self.now()) else { return Ok(claim) };
        self.release_in_store(request).await;
        Ok(here)
    }

    /// Decides without the store, which may have given the claim nevertheless. That does no harm to the caller: the
    /// token is the same.
    async fn claim_in_doubt(
        &self,
        fallback: &Fallback,
        request: &ClaimRequest<'_>,
        error: StoreError,
    ) -> Result<Claim, StoreError> {
        // Returns the store's error: the fallback's `Full` would tell the caller that no claim needs a release.
        let claim = fallback.claim(request, true, self.now()).map_err(|_| error)?;
        if !matches!(claim, Claim::Fresh { .. }) {
            self.release_in_store(request).await;
        }
        Ok(claim)
    }

    /// Releases a claim of the store that its caller does not get. If the store cannot be reached, the lease ends by
    /// itself.
    async fn release_in_store(&self, request: &ClaimRequest<'_>) {
        let release = self.inner.release(request.key, request.token);
        let _ = self.circuit.settle().watch_within(self.hung_after, release).await;
    }

    /// Always asks the store for a claim that it gave, lest the lease lapse there. While it is away, its claims that
    /// run here stay held: a handler must not lose its claim to a duplicate in its own process.
    async fn renew_with(&self, fallback: &Fallback, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        let is_held = match fallback.renew(claim, self.now()) {
            GivenBy::Fallback(hold) => return Ok(hold),
            GivenBy::Store { is_held } => is_held,
        };
        let (call, renewal) = (self.circuit.settle(), self.inner.renew(claim));
        let answer = match self.circuit.state() {
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

    async fn complete(
        self: &Arc<Self>,
        claim: &ClaimRequest<'_>,
        completion: &Completion<'_>,
    ) -> Result<Hold, StoreError> {
        let fallback = self.fallback.as_ref();
        if let Some(hold) = fallback.and_then(|fallback| fallback.complete(claim, completion, self.now())) {
            self.reconcile_in_background();
            return Ok(hold);
        }
        let hold = self.circuit.settle().watch(self.inner.complete(claim, completion)).await?;
        if let Some(fallback) = fallback {
            fallback.completed(claim.key, claim.token, hold);
        }
        Ok(hold)
    }

    /// Releases a claim where it was given. A claim of the fallback that the store may have given, too, is also
    /// released there: only the store knows whether a handler's transaction has completed it.
    async fn release(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        let is_held = match self.fallback.as_ref().map(|fallback| fallback.release(claim, self.now())) {
            Some(GivenBy::Fallback(hold)) => return Ok(hold),
            Some(GivenBy::Store { is_held }) => is_held,
            None => false,
        };
        let (call, release) = (self.circuit.settle(), self.inner.release(claim.key, claim.token));
        if !is_held {
            return call.watch(release).await;
        }
        match call.watch_within(self.hung_after, release).await {
            Err(error) if is_outage(&error) => Ok(Hold::Held),
            answer => answer,
        }
    }
}
