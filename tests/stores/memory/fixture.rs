//! A memory store on a clock that the test turns.

use std::time::{Duration, SystemTime};

use tower_webhook::queue::{LeaseRequest, Leased, Order, Queue, QueueCounts, StoredRequest};
use tower_webhook::store::{
    Claim, ClaimRequest, ClaimToken, Completion, Hold, MemoryStats, MemoryStore, MemoryStoreBuilder, Store,
    StoreErrorKind,
};
use tower_webhook::testing::ManualClock;

pub(super) use crate::support::key;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// The store and its clock.
pub(super) struct Fixture {
    pub(super) clock: ManualClock,
    pub(super) store: MemoryStore,
}

impl Fixture {
    pub(super) fn new(configure: impl FnOnce(MemoryStoreBuilder) -> MemoryStoreBuilder) -> Self {
        let clock = ManualClock::at_unix(1_700_000_000);
        let store = configure(MemoryStore::builder()).clock(clock.clone()).build();
        Self { clock, store }
    }

    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self::new(|builder| builder.capacity(capacity))
    }

    pub(super) async fn claim(&self, id: &str) -> Result<(Claim, ClaimToken), StoreErrorKind> {
        let token = ClaimToken::random();
        self.claim_as(token, id).await.map(|claim| (claim, token))
    }

    pub(super) async fn claim_as(&self, token: ClaimToken, id: &str) -> Result<Claim, StoreErrorKind> {
        self.store.claim(&ClaimRequest::new(&key(id), token, LEASE)).await.map_err(|error| error.kind())
    }

    /// Claims what must be free.
    pub(super) async fn take(&self, id: &str) -> ClaimToken {
        match self.claim(id).await {
            Ok((Claim::Fresh { .. }, token)) => token,
            other => panic!("{id} is not free: {other:?}"),
        }
    }

    pub(super) async fn complete(&self, id: &str, retention: Duration) {
        let token = self.take(id).await;
        let hold = self
            .store
            .complete(&ClaimRequest::new(&key(id), token, LEASE), &Completion::succeeded("200", retention))
            .await;
        assert_eq!(hold.expect("memory does not fail"), Hold::Held);
    }

    pub(super) async fn release(&self, id: &str, token: ClaimToken) {
        assert_eq!(self.store.release(&key(id), token).await.expect("memory does not fail"), Hold::Held);
    }

    /// Whether the event is completed; if it is not, it is claimed by this.
    pub(super) async fn remembers(&self, id: &str) -> bool {
        matches!(self.claim(id).await, Ok((Claim::Completed { .. }, _)))
    }

    pub(super) async fn accept_ordered(&self, id: &str, order: Option<Order>) -> Result<Claim, StoreErrorKind> {
        let mut stored_request = StoredRequest::new("head", "body", SystemTime::UNIX_EPOCH);
        stored_request.order = order;
        let key = key(id);
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        self.store.enqueue(&claim, &stored_request).await.map_err(|error| error.kind())
    }

    pub(super) async fn accept(&self, id: &str) -> Result<Claim, StoreErrorKind> {
        self.accept_ordered(id, None).await
    }

    /// Accepts what there must be room for.
    pub(super) async fn keep(&self, id: &str) {
        assert_eq!(self.accept(id).await, Ok(Claim::Fresh { attempt: None }), "{id}");
    }

    pub(super) async fn lease(&self) -> Leased {
        let mut leased = self.store.lease(&LeaseRequest::new(1, LEASE)).await.expect("memory does not fail");
        leased.pop().expect("an event")
    }

    pub(super) async fn complete_leased(&self, leased: &Leased) {
        let done = Completion::succeeded("OK", WEEK);
        assert_eq!(self.store.complete(&leased.claim(LEASE), &done).await.expect("memory does not fail"), Hold::Held);
    }

    pub(super) async fn bury(&self, leased: &Leased) {
        let hold = self.store.bury(&leased.claim(LEASE), "hopeless").await;
        assert_eq!(hold.expect("memory does not fail"), Hold::Held);
    }

    /// Accepts an event and has it completed.
    pub(super) async fn run(&self, id: &str) {
        self.keep(id).await;
        self.complete_leased(&self.lease().await).await;
    }

    pub(super) async fn is_completed(&self, id: &str) -> bool {
        let key = key(id);
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        matches!(self.store.peek(&claim).await, Ok(Some(Claim::Completed { .. })))
    }

    pub(super) async fn counts(&self) -> QueueCounts {
        self.store.counts().await.expect("memory does not fail")
    }

    pub(super) fn stats(&self) -> MemoryStats {
        self.store.stats()
    }
}
