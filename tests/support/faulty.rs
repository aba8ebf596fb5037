//! A real store whose verbs a test can make fail, hang, or lose their replies.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tower_webhook::EventKey;
use tower_webhook::queue::{
    Change, Changed, Filter, LeaseRequest, Leased, Page, Queue, QueueCounts, QueuedEvent, StoredRequest,
};
use tower_webhook::store::{
    Claim, ClaimRequest, Ending, Enlistment, Hold, MemoryStore, Store, StoreError, StoreErrorKind, StoreFuture,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
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
pub(crate) enum Fault {
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
    /// It panics, and takes no effect.
    Panic,
}

/// The memory store behind faults. Clones share it.
#[derive(Clone)]
pub(crate) struct Faulty {
    pub(crate) inner: MemoryStore,
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
    pub(crate) fn new(inner: MemoryStore) -> Self {
        let control = || Control { fault: watch::Sender::new(None), calls: watch::Sender::new(0) };
        let verbs = std::array::from_fn(|_| control());
        Self { inner, verbs: Arc::new(verbs), keys: Arc::default(), lent: None, asked_for: Arc::default() }
    }

    /// The same store, lending this statement to its claims.
    pub(crate) fn lends(self, enlistment: Enlistment) -> Self {
        Self { lent: Some(enlistment), ..self }
    }

    /// Every call of `verb` has this fault, until it is healed.
    pub(crate) fn breaks(&self, verb: Verb, fault: Fault) {
        self.breaks_times(verb, fault, usize::MAX);
    }

    /// The next calls of `verb` have this fault.
    pub(crate) fn breaks_times(&self, verb: Verb, fault: Fault, calls: usize) {
        self.control(verb).fault.send_replace(Some((fault, calls)));
    }

    /// The verb works again, and calls that hang go on.
    pub(crate) fn heal(&self, verb: Verb) {
        self.control(verb).fault.send_replace(None);
    }

    /// How often `verb` was called.
    pub(crate) fn calls(&self, verb: Verb) -> usize {
        *self.control(verb).calls.borrow()
    }

    /// Ready when `verb` has been called this often in all.
    pub(crate) async fn called(&self, verb: Verb, times: usize) {
        let mut calls = self.control(verb).calls.subscribe();
        soon(calls.wait_for(|calls| *calls >= times)).await.expect("the store holds the sender");
    }

    /// Every key that the store was ever asked for.
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        self.keys.lock().expect("no panic under the lock").clone()
    }

    /// How many events each lease asked for.
    pub(crate) fn asked_for(&self) -> Vec<usize> {
        self.asked_for.lock().expect("no panic under the lock").clone()
    }

    /// Running and completed keys.
    pub(crate) fn held(&self) -> (usize, usize) {
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
            Some(Fault::Panic) => panic!("asked to"),
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
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(24 * 3600), future).await.expect("what never came")
}

fn broken() -> StoreError {
    StoreError::unavailable("broken by the test")
}

impl Store for Faulty {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move { self.pass(Verb::Claim, request.key, self.inner.claim(request)).await })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { self.pass(Verb::Renew, claim.key, self.inner.renew(claim)).await })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            match ending {
                Ending::Complete(completion) => {
                    let completion = &completion;
                    self.pass(Verb::Complete, claim.key, self.inner.complete(claim, completion)).await
                }
                Ending::Release => {
                    let key = claim.key;
                    let token = claim.token;
                    self.pass(Verb::Release, key, self.inner.release(key, token)).await
                }
                Ending::Retry { after, reason } => {
                    self.pass(Verb::Retry, claim.key, self.inner.retry(claim, after, reason)).await
                }
                Ending::Bury { reason } => self.pass(Verb::Bury, claim.key, self.inner.bury(claim, reason)).await,
                _ => unreachable!("an ending that this store does not know"),
            }
        })
    }

    fn enlistment(&self) -> Option<Enlistment> {
        self.lent.clone()
    }
}

impl Queue for Faulty {
    fn enqueue<'a>(&'a self, claim: &'a ClaimRequest<'a>, stored_request: &'a StoredRequest) -> StoreFuture<'a, Claim> {
        Box::pin(async move { self.pass(Verb::Accept, claim.key, self.inner.enqueue(claim, stored_request)).await })
    }

    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Option<Claim>> {
        Box::pin(async move { self.pass(Verb::Peek, claim.key, self.inner.peek(claim)).await })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> StoreFuture<'a, Vec<Leased>> {
        Box::pin(async move {
            self.asked_for.lock().expect("no panic under the lock").push(request.limit);
            self.pass_any(Verb::Lease, self.inner.lease(request)).await
        })
    }

    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { self.pass(Verb::Start, claim.key, self.inner.start(claim)).await })
    }

    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.inner.wake())
    }

    fn waiting(&self, up_to: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move { self.pass_any(Verb::Waiting, self.inner.waiting(up_to)).await })
    }

    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> StoreFuture<'a, Vec<QueuedEvent>> {
        Box::pin(async move { self.inner.list(filter, page).await })
    }

    fn get<'a>(&'a self, key: &'a EventKey) -> StoreFuture<'a, Option<QueuedEvent>> {
        Box::pin(async move { self.inner.get(key).await })
    }

    fn change<'a>(&'a self, filter: &'a Filter, change: Change) -> StoreFuture<'a, Changed> {
        self.inner.change(filter, change)
    }

    fn counts(&self) -> StoreFuture<'_, QueueCounts> {
        Box::pin(async move { self.inner.counts().await })
    }
}
