use super::{Claimant, Machine};
use crate::EventKey;
use crate::store::erased::ErasedStore;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, Store, StoreError};

/// The store of events that are not deduplicated: every claim is fresh, and nothing is kept.
pub(super) struct Unremembered;

impl Machine {
    /// Where this claimant's event is remembered, if it is. The one place that tells the two kinds of events apart.
    pub(super) fn store_of(&self, claimant: &Claimant) -> &dyn ErasedStore {
        if claimant.is_remembered() { &*self.store } else { &Unremembered }
    }
}

impl Store for Unremembered {
    async fn claim(&self, _: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        Ok(Claim::Fresh { attempt: None })
    }

    async fn renew(&self, _: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        Ok(Hold::Held)
    }

    async fn complete(&self, _: &ClaimRequest<'_>, _: &Completion<'_>) -> Result<Hold, StoreError> {
        Ok(Hold::Held)
    }

    async fn release(&self, _: &EventKey, _: ClaimToken) -> Result<Hold, StoreError> {
        Ok(Hold::Held)
    }
}
