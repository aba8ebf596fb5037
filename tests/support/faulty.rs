//! A real store whose verbs a test can make fail, hang, or lose their replies.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tower_webhook::EventKey;
use tower_webhook::inbox::{Filter, Inbox, InboxCounts, KeptEvent, LeaseRequest, Leased, Page, Parcel, Requeued};
use tower_webhook::store::{
    Claim, ClaimRequest, ClaimToken, Completion, Enlistment, Hold, MemoryStore, Store, StoreError, StoreErrorKind,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Claim,
    Renew,
    Complete,
    Release,
    Accept,
    Lease,
    Retry,
    Bury,
    Peek,
    Start,
    Waiting,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails and takes no effect.
    Fail,
    /// It finds its record held by a transaction, and takes no effect.
    Locked,
    /// It takes effect, and its reply is lost.
    LoseReply,
    /// It hangs before it takes effect, until the verb is healed.
    Hang,
    /// It takes effect, and its reply is held back until the verb is healed.
    HoldReply,
}

/// The memory store behind faults. Clones share it.
#[derive(Clone)]
pub struct Faulty {
    pub inner: MemoryStore,
    verbs: Arc<[Control; 11]>,
    keys: Arc<Mutex<BTreeSet<String>>>,
    lent: Option<Enlistment>,
    asked_for: Arc<Mutex<Vec<usize>>>,
}

struct Control {
    fault: watch::Sender<Option<(Fault, usize)>>,
    calls: watch::Sender<usize>,
}

impl Faulty {
    pub fn new(inner: MemoryStore) -> Self {
        let control = || Control { fault: watch::Sender::new(None), calls: watch::Sender::new(0) };
        let verbs = std::array::from_fn(|_| control());
        Self { inner, verbs: Arc::new(verbs), keys: Arc::default(), lent: None, asked_for: Arc::default() }
    }

    /// The same store, lending this statement to its claims.
    pub fn lends(self, enlistment: Enlistment) -> Self {
        Self { lent: Some(enlistment), ..self }
    }

    /// Every call of `verb` has this fault, until it is healed.
    pub fn breaks(&self, verb: Verb, fault: Fault) {
        self.breaks_times(verb, fault, usize::MAX);
    }

    /// The next calls of `verb` have this fault.
    pub fn breaks_times(&self, verb: Verb, fault: Fault, calls: usize) {
        self.control(verb).fault.send_replace(Some((fault, calls)));
    }

    /// The verb works again, and calls that hang go on.
    pub fn heal(&self, verb: Verb) {
        self.control(verb).fault.send_replace(None);
    }

    /// How often `verb` was called.
    pub fn calls(&self, verb: Verb) -> usize {
        *self.control(verb).calls.borrow()
    }

    /// Ready when `verb` has been called this often in all.
    pub async fn called(&self, verb: Verb, times: usize) {
        let mut calls = self.control(verb).calls.subscribe();
        soon(calls.wait_for(|calls| *calls >= times)).await.expect("the store holds the sender");
    }

    /// Every key that the store was ever asked for.
    pub fn keys(&self) -> BTreeSet<String> {
        self.keys.lock().expect("no panic under the lock").clone()
    }

    /// How many events each lease asked for.
    pub fn asked_for(&self) -> Vec<usize> {
        self.asked_for.lock().expect("no panic under the lock").clone()
    }

    /// Running and completed keys.
    pub fn held(&self) -> (usize, usize) {
        let stats = self.inner.stats();
        (stats.running, stats.completed)
    }

    fn control(&self, verb: Verb) -> &Control {
        &self.verbs[verb as usize]
    }

    async fn pass<T>(
        &self,
        verb: Verb,
        key: &EventKey,
        ask: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.keys.lock().expect("no panic under the lock").insert(key.as_str().to_owned());
        self.pass_any(verb, ask).await
    }

    async fn pass_any<T>(&self, verb: Verb, ask: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let control = self.control(verb);
        let fault = control.next_fault();
        // Counted last, so that whoever waits for the call finds its fault taken.
        control.calls.send_modify(|calls| *calls += 1);
        match fault {
            None => ask.await,
            Some(Fault::Fail) => Err(broken()),
            Some(Fault::Locked) => Err(StoreError::new(StoreErrorKind::Locked)),
            Some(Fault::LoseReply) => {
                ask.await?;
                Err(broken())
            }
            Some(Fault::Hang) => {
                control.healed().await;
                ask.await
            }
            Some(Fault::HoldReply) => {
                let answer = ask.await;
                control.healed().await;
                answer
            }
        }
    }
}

impl Control {
    fn next_fault(&self) -> Option<Fault> {
        let mut next = None;
        self.fault.send_modify(|fault| {
            next = fault.map(|(fault, _)| fault);
            *fault = match *fault {
                // Whoever hangs goes on when the verb is healed, so the fault stays.
                Some((Fault::Hang | Fault::HoldReply, _)) | None => *fault,
                Some((fault, left)) => (left > 1).then_some((fault, left - 1)),
            };
        });
        next
    }

    async fn healed(&self) {
        let mut fault = self.fault.subscribe();
        fault.wait_for(Option::is_none).await.expect("the store holds the sender");
    }
}

/// Turns a hang into a failure: nothing takes a day, and in paused time a day is over at once.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(24 * 3600), future).await.expect("what never came")
}

fn broken() -> StoreError {
    StoreError::unavailable("broken by the test")
}

impl Store for Faulty {
    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        self.pass(Verb::Claim, request.key, self.inner.claim(request)).await
    }

    async fn renew(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        self.pass(Verb::Renew, claim.key, self.inner.renew(claim)).await
    }

    async fn complete(&self, claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Result<Hold, StoreError> {
        self.pass(Verb::Complete, claim.key, self.inner.complete(claim, completion)).await
    }

    async fn release(&self, key: &EventKey, token: ClaimToken) -> Result<Hold, StoreError> {
        self.pass(Verb::Release, key, self.inner.release(key, token)).await
    }

    fn enlistment(&self) -> Option<Enlistment> {
        self.lent.clone()
    }
}

impl Inbox for Faulty {
    async fn accept(&self, claim: &ClaimRequest<'_>, parcel: &Parcel) -> Result<Claim, StoreError> {
        self.pass(Verb::Accept, claim.key, self.inner.accept(claim, parcel)).await
    }

    async fn peek(&self, claim: &ClaimRequest<'_>) -> Result<Option<Claim>, StoreError> {
        self.pass(Verb::Peek, claim.key, self.inner.peek(claim)).await
    }

    async fn lease(&self, request: &LeaseRequest<'_>) -> Result<Vec<Leased>, StoreError> {
        self.asked_for.lock().expect("no panic under the lock").push(request.limit);
        self.pass_any(Verb::Lease, self.inner.lease(request)).await
    }

    async fn start(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        self.pass(Verb::Start, claim.key, self.inner.start(claim)).await
    }

    async fn retry(&self, claim: &ClaimRequest<'_>, after: Duration, reason: &str) -> Result<Hold, StoreError> {
        self.pass(Verb::Retry, claim.key, self.inner.retry(claim, after, reason)).await
    }

    async fn bury(&self, claim: &ClaimRequest<'_>, reason: &str) -> Result<Hold, StoreError> {
        self.pass(Verb::Bury, claim.key, self.inner.bury(claim, reason)).await
    }

    fn wake(&self) -> impl Future<Output = ()> + Send {
        self.inner.wake()
    }

    async fn waiting(&self, up_to: u64) -> Result<u64, StoreError> {
        self.pass_any(Verb::Waiting, self.inner.waiting(up_to)).await
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<KeptEvent>, StoreError> {
        self.inner.list(filter, page).await
    }

    async fn get(&self, key: &EventKey) -> Result<Option<KeptEvent>, StoreError> {
        self.inner.get(key).await
    }

    async fn requeue(&self, filter: &Filter, completed_too: bool) -> Result<Requeued, StoreError> {
        self.inner.requeue(filter, completed_too).await
    }

    async fn discard(&self, filter: &Filter, retention: Duration) -> Result<u64, StoreError> {
        self.inner.discard(filter, retention).await
    }

    async fn forget(&self, filter: &Filter) -> Result<u64, StoreError> {
        self.inner.forget(filter).await
    }

    async fn counts(&self) -> Result<InboxCounts, StoreError> {
        self.inner.counts().await
    }
}
