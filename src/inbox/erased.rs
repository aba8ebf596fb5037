//! [`Inbox`] with its futures boxed, so that one worker type and one layer type serve every inbox.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Filter, Inbox, InboxCounts, KeptEvent, LeaseRequest, Leased, Page, Parcel, Requeued};
use crate::EventKey;
use crate::store::erased::{Answer, ErasedStore};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Enlistment, Hold, Store, StoreError};

trait ErasedInbox: ErasedStore {
    fn accept<'a>(&'a self, claim: &'a ClaimRequest<'a>, parcel: &'a Parcel) -> Answer<'a, Claim>;
    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> Answer<'a, Option<Claim>>;
    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> Answer<'a, Vec<Leased>>;
    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> Answer<'a, Hold>;
    fn retry<'a>(&'a self, claim: &'a ClaimRequest<'a>, after: Duration, reason: &'a str) -> Answer<'a, Hold>;
    fn bury<'a>(&'a self, claim: &'a ClaimRequest<'a>, reason: &'a str) -> Answer<'a, Hold>;
    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn waiting(&self, up_to: u64) -> Answer<'_, u64>;
    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> Answer<'a, Vec<KeptEvent>>;
    fn get<'a>(&'a self, key: &'a EventKey) -> Answer<'a, Option<KeptEvent>>;
    fn requeue<'a>(&'a self, filter: &'a Filter, completed_too: bool) -> Answer<'a, Requeued>;
    fn discard<'a>(&'a self, filter: &'a Filter, retention: Duration) -> Answer<'a, u64>;
    fn forget<'a>(&'a self, filter: &'a Filter) -> Answer<'a, u64>;
    fn counts(&self) -> Answer<'_, InboxCounts>;
}

impl<I: Inbox> ErasedInbox for I {
    fn accept<'a>(&'a self, claim: &'a ClaimRequest<'a>, parcel: &'a Parcel) -> Answer<'a, Claim> {
        Box::pin(Inbox::accept(self, claim, parcel))
    }

    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> Answer<'a, Option<Claim>> {
        Box::pin(Inbox::peek(self, claim))
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> Answer<'a, Vec<Leased>> {
        Box::pin(Inbox::lease(self, request))
    }

    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> Answer<'a, Hold> {
        Box::pin(Inbox::start(self, claim))
    }

    fn retry<'a>(&'a self, claim: &'a ClaimRequest<'a>, after: Duration, reason: &'a str) -> Answer<'a, Hold> {
        Box::pin(Inbox::retry(self, claim, after, reason))
    }

    fn bury<'a>(&'a self, claim: &'a ClaimRequest<'a>, reason: &'a str) -> Answer<'a, Hold> {
        Box::pin(Inbox::bury(self, claim, reason))
    }

    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Inbox::wake(self))
    }

    fn waiting(&self, up_to: u64) -> Answer<'_, u64> {
        Box::pin(Inbox::waiting(self, up_to))
    }

    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> Answer<'a, Vec<KeptEvent>> {
        Box::pin(Inbox::list(self, filter, page))
    }

    fn get<'a>(&'a self, key: &'a EventKey) -> Answer<'a, Option<KeptEvent>> {
        Box::pin(Inbox::get(self, key))
    }

    fn requeue<'a>(&'a self, filter: &'a Filter, completed_too: bool) -> Answer<'a, Requeued> {
        Box::pin(Inbox::requeue(self, filter, completed_too))
    }

    fn discard<'a>(&'a self, filter: &'a Filter, retention: Duration) -> Answer<'a, u64> {
        Box::pin(Inbox::discard(self, filter, retention))
    }

    fn forget<'a>(&'a self, filter: &'a Filter) -> Answer<'a, u64> {
        Box::pin(Inbox::forget(self, filter))
    }

    fn counts(&self) -> Answer<'_, InboxCounts> {
        Box::pin(Inbox::counts(self))
    }
}

/// Any inbox behind one type, where it is chosen at run time.
///
/// ```
/// use tower_webhook::inbox::AnyInbox;
/// use tower_webhook::store::MemoryStore;
///
/// let inbox = AnyInbox::new(MemoryStore::new());
/// ```
#[derive(Clone)]
pub struct AnyInbox(Arc<dyn ErasedInbox>);

impl AnyInbox {
    /// Takes any inbox.
    pub fn new(inbox: impl Inbox) -> Self {
        Self(Arc::new(inbox))
    }
}

impl Store for AnyInbox {
    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        self.0.claim(request).await
    }

    async fn renew(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        self.0.renew(claim).await
    }

    async fn complete(&self, claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Result<Hold, StoreError> {
        self.0.complete(claim, completion).await
    }

    async fn release(&self, key: &EventKey, token: ClaimToken) -> Result<Hold, StoreError> {
        self.0.release(key, token).await
    }

    fn enlistment(&self) -> Option<Enlistment> {
        self.0.enlistment()
    }
}

impl Inbox for AnyInbox {
    async fn accept(&self, claim: &ClaimRequest<'_>, parcel: &Parcel) -> Result<Claim, StoreError> {
        self.0.accept(claim, parcel).await
    }

    async fn peek(&self, claim: &ClaimRequest<'_>) -> Result<Option<Claim>, StoreError> {
        self.0.peek(claim).await
    }

    async fn lease(&self, request: &LeaseRequest<'_>) -> Result<Vec<Leased>, StoreError> {
        self.0.lease(request).await
    }

    async fn start(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        self.0.start(claim).await
    }

    async fn retry(&self, claim: &ClaimRequest<'_>, after: Duration, reason: &str) -> Result<Hold, StoreError> {
        self.0.retry(claim, after, reason).await
    }

    async fn bury(&self, claim: &ClaimRequest<'_>, reason: &str) -> Result<Hold, StoreError> {
        self.0.bury(claim, reason).await
    }

    fn wake(&self) -> impl Future<Output = ()> + Send {
        self.0.wake()
    }

    async fn waiting(&self, up_to: u64) -> Result<u64, StoreError> {
        self.0.waiting(up_to).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<KeptEvent>, StoreError> {
        self.0.list(filter, page).await
    }

    async fn get(&self, key: &EventKey) -> Result<Option<KeptEvent>, StoreError> {
        self.0.get(key).await
    }

    async fn requeue(&self, filter: &Filter, completed_too: bool) -> Result<Requeued, StoreError> {
        self.0.requeue(filter, completed_too).await
    }

    async fn discard(&self, filter: &Filter, retention: Duration) -> Result<u64, StoreError> {
        self.0.discard(filter, retention).await
    }

    async fn forget(&self, filter: &Filter) -> Result<u64, StoreError> {
        self.0.forget(filter).await
    }

    async fn counts(&self) -> Result<InboxCounts, StoreError> {
        self.0.counts().await
    }
}

impl fmt::Debug for AnyInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyInbox(..)")
    }
}
