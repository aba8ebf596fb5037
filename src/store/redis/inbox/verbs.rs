use std::future::Future;
use std::time::Duration;

use super::super::RedisStore;
use super::Offer;
use crate::EventKey;
use crate::inbox::{Filter, Inbox, InboxCounts, KeptEvent, LeaseRequest, Leased, Page, Parcel, Requeued, requeued};
use crate::store::{Claim, ClaimRequest, Hold, StoreError};

/// Events are kept in a Redis stream, and are as safe as the server's persistence makes them: see the
/// [module](crate::store::redis#the-inbox). With `appendfsync everysec`, which is what Redis comes with, a crash loses up to a second or
/// two of acknowledged events; `always` loses none. Needs Redis 7.0 or Valkey; on a Cluster, a prefix with a name in braces.
impl Inbox for RedisStore {
    async fn accept(&self, claim: &ClaimRequest<'_>, parcel: &Parcel) -> Result<Claim, StoreError> {
        let offer = Offer::new(&self.shared, claim, parcel);
        self.acceptor(&offer.claim).ask(offer).await
    }

    async fn peek(&self, claim: &ClaimRequest<'_>) -> Result<Option<Claim>, StoreError> {
        Ok(self.shared.peek(claim).await?)
    }

    async fn lease(&self, request: &LeaseRequest<'_>) -> Result<Vec<Leased>, StoreError> {
        Ok(self.shared.lease(request).await?)
    }

    async fn start(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        Ok(self.shared.start_leased(claim).await?.unwrap_or(Hold::Lost))
    }

    async fn retry(&self, claim: &ClaimRequest<'_>, after: Duration, reason: &str) -> Result<Hold, StoreError> {
        Ok(self.shared.retry_leased(claim, after, reason).await?.unwrap_or(Hold::Lost))
    }

    async fn bury(&self, claim: &ClaimRequest<'_>, reason: &str) -> Result<Hold, StoreError> {
        Ok(self.shared.bury_leased(claim, reason).await?.unwrap_or(Hold::Lost))
    }

    fn wake(&self) -> impl Future<Output = ()> + Send {
        self.shared.listener.wake()
    }

    async fn waiting(&self, up_to: u64) -> Result<u64, StoreError> {
        Ok(self.shared.waiting(up_to).await?)
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<KeptEvent>, StoreError> {
        Ok(self.shared.list(filter, page).await?)
    }

    async fn get(&self, key: &EventKey) -> Result<Option<KeptEvent>, StoreError> {
        Ok(self.shared.get(key).await?)
    }

    async fn requeue(&self, filter: &Filter, completed_too: bool) -> Result<Requeued, StoreError> {
        Ok(self.shared.requeue(filter, requeued(completed_too)).await?)
    }

    async fn discard(&self, filter: &Filter, retention: Duration) -> Result<u64, StoreError> {
        Ok(self.shared.discard(filter, retention).await?)
    }

    async fn forget(&self, filter: &Filter) -> Result<u64, StoreError> {
        Ok(self.shared.forget(filter).await?)
    }

    async fn counts(&self) -> Result<InboxCounts, StoreError> {
        Ok(self.shared.counts().await?)
    }
}
