use std::time::Duration;

use super::PostgresStore;
use super::operators::Changed;
use super::promotion::Promotion;
use super::settle::Settle;
use super::store::locked;
use super::waiting::{Peek, Question, Told};
use super::wanted::Wanted;
use crate::EventKey;
use crate::inbox::{Filter, Inbox, InboxCounts, KeptEvent, LeaseRequest, Leased, Page, Parcel, Requeued, requeued};
use crate::store::{Claim, ClaimRequest, Hold, StoreError};

/// Events are rows of the same table, committed before they are acknowledged. See the [module](super) for how.
///
/// `counts` looks at every event that is still remembered, and the other verbs of operators at as many as their filter's key, state
/// or page leaves them: they are for people, not for a loop.
impl Inbox for PostgresStore {
    async fn accept(&self, claim: &ClaimRequest<'_>, parcel: &Parcel) -> Result<Claim, StoreError> {
        self.bid(claim, Some(parcel)).await
    }

    async fn peek(&self, claim: &ClaimRequest<'_>) -> Result<Option<Claim>, StoreError> {
        match self.shared.waiting.ask(Question::Peek(Peek::new(claim))).await? {
            Told::Known(known) => Ok(known),
            Told::Count(_) => Err(StoreError::corrupt("an answer to what was not asked")),
        }
    }

    async fn start(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        self.settle(|| Settle::start(claim), locked).await
    }

    async fn lease(&self, request: &LeaseRequest<'_>) -> Result<Vec<Leased>, StoreError> {
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        Ok(self.shared.leases.ask(Wanted::new(request)).await?.take())
    }

    async fn retry(&self, claim: &ClaimRequest<'_>, after: Duration, reason: &str) -> Result<Hold, StoreError> {
        self.settle(|| Settle::retry(claim, after, reason), locked).await
    }

    async fn bury(&self, claim: &ClaimRequest<'_>, reason: &str) -> Result<Hold, StoreError> {
        self.settle(|| Settle::bury(claim, reason), locked).await
    }

    fn wake(&self) -> impl Future<Output = ()> + Send {
        self.shared.ear.listen(self.shared.bell.here());
        self.shared.bell.rung()
    }

    async fn waiting(&self, up_to: u64) -> Result<u64, StoreError> {
        match self.shared.waiting.ask(Question::Count(up_to)).await? {
            Told::Count(count) => Ok(count),
            Told::Known(_) => Err(StoreError::corrupt("an answer to what was not asked")),
        }
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<KeptEvent>, StoreError> {
        Ok(self.shared.statements.operators.list(&self.shared.access, filter, page).await?)
    }

    async fn get(&self, key: &EventKey) -> Result<Option<KeptEvent>, StoreError> {
        Ok(self.shared.statements.operators.get(&self.shared.access, key).await?)
    }

    async fn requeue(&self, filter: &Filter, completed_too: bool) -> Result<Requeued, StoreError> {
        let states = requeued(completed_too);
        let requeued = self.shared.statements.operators.requeue(&self.shared.access, filter, states).await?;
        let without_body = requeued.without_body;
        Ok(Requeued::new(self.let_go_on(requeued).await, without_body))
    }

    async fn discard(&self, filter: &Filter, retention: Duration) -> Result<u64, StoreError> {
        let discarded = self.shared.statements.operators.discard(&self.shared.access, filter, retention).await?;
        Ok(self.let_go_on(discarded).await)
    }

    async fn forget(&self, filter: &Filter) -> Result<u64, StoreError> {
        Ok(self.shared.statements.operators.forget(&self.shared.access, filter).await?)
    }

    async fn counts(&self) -> Result<InboxCounts, StoreError> {
        Ok(self.shared.statements.operators.counts(&self.shared.access).await?)
    }
}

impl PostgresStore {
    /// Lets those go on that may be due now: what was changed, or what was behind it. How many events were changed.
    async fn let_go_on(&self, changed: Changed) -> u64 {
        if changed.events > 0 {
            let promotion = Promotion::new(&self.shared.statements, self.shared.bound.clone());
            promotion.run_over(&self.shared.access, &changed.orders).await;
            self.shared.bell.ring();
        }
        changed.events
    }
}
