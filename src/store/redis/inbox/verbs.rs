use std::future::Future;
use std::pin::Pin;

use super::super::RedisStore;
use super::Offer;
use crate::EventKey;
use crate::store::queue::{
    Change, Changed, Filter, LeaseRequest, Leased, Page, Queue, QueueCounts, QueuedEvent, StoredRequest,
};
use crate::store::{Claim, ClaimRequest, Hold, StoreFuture};

/// Events are kept in a Redis stream, and are as safe as the server's persistence makes them: see the
/// [module](crate::store::redis#the-inbox). With `appendfsync everysec`, which is what Redis comes with, a crash loses up to a second or
/// two of acknowledged events; `always` loses none. Needs Redis 7.0 or Valkey; on a Cluster, a prefix with a name in braces.
impl Queue for RedisStore {
    fn enqueue<'a>(&'a self, claim: &'a ClaimRequest<'a>, request: &'a StoredRequest) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let offer = Offer::new(&self.shared, claim, request);
            self.acceptor(&offer.claim).ask(offer).await
        })
    }

    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Option<Claim>> {
        Box::pin(async move { Ok(self.shared.peek(claim).await?) })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> StoreFuture<'a, Vec<Leased>> {
        Box::pin(async move { Ok(self.shared.lease(request).await?) })
    }

    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { Ok(self.shared.start_leased(claim).await?.unwrap_or(Hold::Lost)) })
    }

    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.shared.listener.wake())
    }

    fn waiting(&self, up_to: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move { Ok(self.shared.waiting(up_to).await?) })
    }

    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> StoreFuture<'a, Vec<QueuedEvent>> {
        Box::pin(async move { Ok(self.shared.list(filter, page).await?) })
    }

    fn get<'a>(&'a self, key: &'a EventKey) -> StoreFuture<'a, Option<QueuedEvent>> {
        Box::pin(async move { Ok(self.shared.get(key).await?) })
    }

    fn change<'a>(&'a self, filter: &'a Filter, change: Change) -> StoreFuture<'a, Changed> {
        Box::pin(async move { Ok(self.shared.change(filter, change).await?) })
    }

    fn counts(&self) -> StoreFuture<'_, QueueCounts> {
        Box::pin(async move { Ok(self.shared.counts().await?) })
    }
}
