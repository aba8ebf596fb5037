use std::future::Future;
use std::pin::Pin;

use super::PostgresStore;
use super::operators::ChangedRows;
use super::promotion::Promotion;
use super::settle::Settle;
use super::store::locked;
use super::waiting::{Peek, Question, Told};
use super::wanted::Wanted;
use crate::EventKey;
use crate::store::queue::{
    Change, Changed, Filter, LeaseRequest, Leased, Page, Queue, QueueCounts, QueuedEvent, StoredRequest,
};
use crate::store::{Claim, ClaimRequest, Hold, StoreError, StoreFuture};

/// Events are rows of the same table, committed before they are acknowledged. See the [module](super) for how.
///
/// `counts` looks at every event that is still remembered, and the other verbs of operators at as many as their filter's key, state
/// or page leaves them: they are for people, not for a loop.
impl Queue for PostgresStore {
    fn enqueue<'a>(&'a self, claim: &'a ClaimRequest<'a>, request: &'a StoredRequest) -> StoreFuture<'a, Claim> {
        Box::pin(async move { self.bid(claim, Some(request)).await })
    }

    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Option<Claim>> {
        Box::pin(async move {
            match self.shared.waiting.ask(Question::Peek(Peek::new(claim))).await? {
                Told::Known(known) => Ok(known),
                Told::Count(_) => Err(StoreError::corrupt("an answer to what was not asked")),
            }
        })
    }

    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { self.settle_row(|| Settle::start(claim), locked).await })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> StoreFuture<'a, Vec<Leased>> {
        Box::pin(async move {
            if request.limit == 0 {
                return Ok(Vec::new());
            }
            Ok(self.shared.leases.ask(Wanted::new(request)).await?.take())
        })
    }

    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.shared.ear.listen(self.shared.bell.here());
        Box::pin(self.shared.bell.rung())
    }

    fn waiting(&self, up_to: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            match self.shared.waiting.ask(Question::Count(up_to)).await? {
                Told::Count(count) => Ok(count),
                Told::Known(_) => Err(StoreError::corrupt("an answer to what was not asked")),
            }
        })
    }

    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> StoreFuture<'a, Vec<QueuedEvent>> {
        Box::pin(async move { Ok(self.shared.statements.operators.list(&self.shared.access, filter, page).await?) })
    }

    fn get<'a>(&'a self, key: &'a EventKey) -> StoreFuture<'a, Option<QueuedEvent>> {
        Box::pin(async move { Ok(self.shared.statements.operators.get(&self.shared.access, key).await?) })
    }

    fn change<'a>(&'a self, filter: &'a Filter, change: Change) -> StoreFuture<'a, Changed> {
        Box::pin(async move {
            let ChangedRows { events, without_body, orders } =
                self.shared.statements.operators.change(&self.shared.access, filter, change).await?;
            if events > 0 {
                let promotion = Promotion::new(&self.shared.statements, self.shared.bound.clone());
                promotion.run_over(&self.shared.access, &orders).await;
                self.shared.bell.ring();
            }
            Ok(Changed::new(events).without_body(without_body))
        })
    }

    fn counts(&self) -> StoreFuture<'_, QueueCounts> {
        Box::pin(async move { Ok(self.shared.statements.operators.counts(&self.shared.access).await?) })
    }
}
