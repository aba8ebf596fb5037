//! A queue under check, and the events that are put into it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::fixture::{FRESH, LONG, fail, fail_by, without_attempt};
use super::suite::Harness;
use crate::EventKey;
use crate::store::queue::{EventState, Filter, LeaseRequest, Leased, Order, Page, Queue, QueuedEvent, StoredRequest};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold, StoreError};

pub(super) const ENDPOINT: &str = "/webhooks/conformance";

pub(super) const ACCEPTED: Claim = Claim::Accepted { same_body: true };

/// A queue under check. A method fails the check unless the answer is the expected one.
pub(super) struct QueueFixture<Q> {
    pub(super) store: Arc<Q>,
    /// When events were received, in whole milliseconds: a store need not keep more.
    pub(super) received_at: SystemTime,
}

/// An event that is to be enqueued.
#[derive(Clone)]
pub(super) struct NewEvent {
    pub(super) key: EventKey,
    pub(super) event_type: Option<&'static str>,
    pub(super) request: StoredRequest,
}

impl NewEvent {
    pub(super) fn new(id: &str) -> Self {
        // Not valid text, so that a store cannot take it for text.
        let body = [b"\0\xff\n'\"\\ ", id.as_bytes()].concat();
        let request = StoredRequest::new(
            &b"POST /\xfe\0\n"[..],
            body,
            SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        );
        Self { key: EventKey::new(ENDPOINT, Some("ten/ant"), id), event_type: Some("test.type"), request }
    }

    pub(super) fn of_type(mut self, event_type: &'static str) -> Self {
        self.event_type = Some(event_type);
        self
    }

    pub(super) fn at(mut self, endpoint: &str) -> Self {
        self.key = EventKey::new(endpoint, None, self.key.id());
        self
    }

    pub(super) fn received(mut self, at: SystemTime) -> Self {
        self.request.received_at = at;
        self
    }

    pub(super) fn ordered(mut self, order: Order) -> Self {
        self.request = self.request.ordered(order);
        self
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.key, &self.request.body)
    }

    pub(super) fn claim(&self, token: ClaimToken, lease: Duration) -> ClaimRequest<'_> {
        ClaimRequest::new(&self.key, token, lease).fingerprint(self.fingerprint()).event_type(self.event_type)
    }
}

impl<Q: Queue> QueueFixture<Q> {
    pub(super) async fn new(harness: &impl Harness<Store = Q>) -> Self {
        let received_at = NewEvent::new("").request.received_at;
        Self { store: Arc::new(harness.store().await), received_at }
    }

    /// Enqueues under a new token.
    pub(super) async fn enqueues(&self, event: &NewEvent, expected: Claim) {
        self.enqueues_by(ClaimToken::random(), event, expected).await;
    }

    pub(super) async fn enqueues_by(&self, token: ClaimToken, event: &NewEvent, expected: Claim) {
        let came = self.store.enqueue(&event.claim(token, LONG), &event.request).await;
        self.verify("enqueue", without_attempt(self.answered("enqueue", came)), expected);
    }

    /// Peeks under a new token.
    pub(super) async fn peeks(&self, event: &NewEvent, expected: Option<Claim>) {
        let came = self.store.peek(&event.claim(ClaimToken::random(), LONG)).await;
        self.verify("peek", self.answered("peek", came).map(without_attempt), expected);
    }

    /// Enqueues an event that the queue does not know.
    pub(super) async fn adds(&self, event: NewEvent) -> NewEvent {
        self.enqueues(&event, FRESH).await;
        event
    }

    /// Claims, as an inline receiver does.
    pub(super) async fn claims(&self, event: &NewEvent, expected: Claim) -> ClaimToken {
        self.claims_for(LONG, event, expected).await
    }

    pub(super) async fn claims_for(&self, lease: Duration, event: &NewEvent, expected: Claim) -> ClaimToken {
        let token = ClaimToken::random();
        let came = self.store.claim(&event.claim(token, lease)).await;
        self.verify("claim", without_attempt(self.answered("claim", came)), expected);
        token
    }

    pub(super) async fn lease(&self, limit: usize, lease: Duration) -> Vec<Leased> {
        self.lease_by(&LeaseRequest::new(limit, lease)).await
    }

    pub(super) async fn lease_by(&self, request: &LeaseRequest<'_>) -> Vec<Leased> {
        self.answered("lease", self.store.lease(request).await)
    }

    /// Leases one event, which must be this one.
    pub(super) async fn leases(&self, event: &NewEvent) -> Leased {
        self.leases_for(LONG, event).await
    }

    pub(super) async fn leases_for(&self, lease: Duration, event: &NewEvent) -> Leased {
        let mut leased = self.lease(1, lease).await;
        self.verify("lease", ids(&leased), vec![event.key.id().to_owned()]);
        leased.remove(0)
    }

    /// Leases, where no event is due.
    pub(super) async fn leases_nothing(&self) {
        let leased = self.lease(10, LONG).await;
        self.verify("lease", ids(&leased), Vec::new());
    }

    pub(super) async fn renews(&self, leased: &Leased, lease: Duration, expected: Hold) {
        let came = self.store.renew(&leased.claim(lease)).await;
        self.verify("renew", self.answered("renew", came), expected);
    }

    pub(super) async fn starts(&self, leased: &Leased, lease: Duration, expected: Hold) {
        let came = self.store.start(&leased.claim(lease)).await;
        self.verify("start", self.answered("start", came), expected);
    }

    pub(super) async fn completes(&self, leased: &Leased, expected: Hold) {
        self.completes_for(LONG, leased, expected).await;
    }

    pub(super) async fn completes_for(&self, retention: Duration, leased: &Leased, expected: Hold) {
        let came = self.store.complete(&leased.claim(LONG), &Completion::succeeded("OK", retention)).await;
        self.verify("complete", self.answered("complete", came), expected);
    }

    pub(super) async fn releases(&self, leased: &Leased, expected: Hold) {
        let came = self.store.release(&leased.key, leased.token).await;
        self.verify("release", self.answered("release", came), expected);
    }

    pub(super) async fn retries(&self, leased: &Leased, after: Duration, reason: &str, expected: Hold) {
        let came = self.store.retry(&leased.claim(LONG), after, reason).await;
        self.verify("retry", self.answered("retry", came), expected);
    }

    pub(super) async fn buries(&self, leased: &Leased, reason: &str, expected: Hold) {
        let came = self.store.bury(&leased.claim(LONG), reason).await;
        self.verify("bury", self.answered("bury", came), expected);
    }

    /// Gets an event, which must be there.
    pub(super) async fn gets(&self, event: &NewEvent) -> QueuedEvent {
        let came = self.answered("get", self.store.get(&event.key).await);
        came.unwrap_or_else(|| self.fail("get", &"an event", &"nothing"))
    }

    pub(super) async fn is_in(&self, event: &NewEvent, expected: EventState) {
        let came = self.gets(event).await.state;
        self.verify("state", came, expected);
    }

    /// Lists the events that match. The ids must be the expected ones, in their order.
    pub(super) async fn lists(&self, filter: &Filter, expected: &[&str]) {
        let came = self.answered("list", self.store.list(filter, &Page::first(1_000)).await);
        let came: Vec<_> = came.iter().map(|event| event.key.id()).collect();
        self.verify("list", came.as_slice(), expected);
    }

    pub(super) async fn requeues(&self, filter: &Filter, completed_too: bool, expected: u64) {
        let came = self.answered("requeue", self.store.requeue(filter, completed_too).await);
        self.verify("requeue", (came.events, came.without_body), (expected, 0));
    }

    pub(super) fn answered<T>(&self, verb: &str, answer: Result<T, StoreError>) -> T {
        answer.unwrap_or_else(|error| fail_by(verb, &error))
    }

    #[allow(clippy::needless_pass_by_value, reason = "reads better at every call")]
    pub(super) fn verify<T: Debug + PartialEq>(&self, what: &str, came: T, expected: T) {
        if came != expected {
            self.fail(what, &expected, &came);
        }
    }

    pub(super) fn fail(&self, what: &str, expected: &dyn Debug, came: &dyn Debug) -> ! {
        fail(what, expected, came)
    }
}

pub(super) fn ids(leased: &[Leased]) -> Vec<String> {
    leased.iter().map(|leased| leased.key.id().to_owned()).collect()
}
