use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Claim, ClaimRequest, ClaimToken, Completion, Ending, Enlistment, Hold, StoreError};
use crate::EventKey;

/// The answer of a store, boxed, so that a store can be used as `dyn Store`.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Remembers which events are being worked on and which are done.
///
/// A store implements three verbs, `claim`, `renew` and `settle`. Each is one atomic step on one key. Fencing is by
/// token and not by clock: a token can still renew and settle a claim whose lease has lapsed, as long as no other token
/// has claimed the event.
///
/// An `Err` means that the outcome is unknown. The caller may repeat every verb with the same arguments, and the store
/// then answers as it would have the first time. A store need not remember a claim that was released, or a record whose
/// retention is over: it may then answer `renew` and `settle` either way, as long as [`Hold::Held`] means that the
/// change was made. A store may also forget a claim when its lease lapses. `renew` and `settle` therefore get the whole
/// request that was answered [`Claim::Fresh`], to write it anew.
///
/// A caller may drop a call before it is answered, and ask another one under the same token. Of such calls, a renewal
/// takes effect before a settlement that was asked for after it, or not at all. A renewal that comes after a release
/// would write the released claim anew in a store that has forgotten it, and hold the event until that lease ends.
///
/// A whole store, which passes the conformance suite (`testing::conformance`, feature `testing`):
///
/// ```
/// use std::collections::HashMap;
/// use std::future::ready;
/// use std::sync::Mutex;
/// use std::time::Instant;
///
/// use tower_webhook::EventKey;
/// use tower_webhook::clock::Clock;
/// use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Ending, Fingerprint, Hold, Store, StoreFuture};
/// use tower_webhook::testing::ManualClock;
///
/// struct Record {
///     token: ClaimToken,
///     fingerprint: Fingerprint,
///     completed: bool,
///     /// When the lease ends, or the retention of a completed event.
///     until: Instant,
/// }
///
/// /// A store in a map. It grows for ever: a real one would delete expired records.
/// struct MapStore {
///     clock: ManualClock,
///     records: Mutex<HashMap<EventKey, Record>>,
/// }
///
/// impl Store for MapStore {
///     fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
///         let now = self.clock.monotonic();
///         let ClaimRequest { token, fingerprint, .. } = *request;
///         let mut records = self.records.lock().unwrap();
///         let answer = match records.get(request.key).filter(|record| now < record.until) {
///             Some(record) if record.completed => Claim::Completed { same_body: record.fingerprint == fingerprint },
///             Some(record) if record.token != token => {
///                 Claim::InFlight { same_body: record.fingerprint == fingerprint }
///             }
///             _ => {
///                 let record = Record { token, fingerprint, completed: false, until: now + request.lease };
///                 records.insert(request.key.clone(), record);
///                 Claim::Fresh { attempt: None }
///             }
///         };
///         Box::pin(ready(Ok(answer)))
///     }
///
///     fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
///         let mut records = self.records.lock().unwrap();
///         let hold = match records.get_mut(claim.key) {
///             // A lapsed lease, too: nobody has taken the event over.
///             Some(record) if record.token == claim.token && !record.completed => {
///                 record.until = self.clock.monotonic() + claim.lease;
///                 Hold::Held
///             }
///             _ => Hold::Lost,
///         };
///         Box::pin(ready(Ok(hold)))
///     }
///
///     fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
///         let mut records = self.records.lock().unwrap();
///         let hold = match (records.get_mut(claim.key), ending) {
///             (Some(record), Ending::Complete(completion)) if record.token == claim.token => {
///                 // A repeated completion changes nothing.
///                 if !record.completed {
///                     record.completed = true;
///                     record.until = self.clock.monotonic() + completion.retention;
///                 }
///                 Hold::Held
///             }
///             (Some(record), Ending::Release) if record.token == claim.token && !record.completed => {
///                 records.remove(claim.key);
///                 Hold::Held
///             }
///             _ => Hold::Lost,
///         };
///         Box::pin(ready(Ok(hold)))
///     }
/// }
///
/// # use std::time::Duration;
/// use tower_webhook::testing::conformance::{self, Harness};
///
/// struct Maps(ManualClock);
///
/// impl Harness for Maps {
///     type Store = MapStore;
///
///     async fn store(&self) -> MapStore {
///         MapStore { clock: self.0.clone(), records: Mutex::default() }
///     }
///
///     async fn pass(&self, time: Duration) {
///         self.0.advance(time);
///     }
/// }
///
/// #[tokio::main]
/// async fn main() {
///     conformance::store().run(&Maps(ManualClock::at_unix(1_700_000_000))).await;
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    label = "expected a store: where claimed and completed events are remembered",
    note = "use `store::MemoryStore::new()` or another store of the module `store`, or implement `store::Store`"
)]
pub trait Store: Send + Sync + 'static {
    /// Takes `key` for `lease` if nobody holds it. Atomic: of any number of concurrent calls for one key under
    /// different tokens, exactly one sees [`Claim::Fresh`].
    ///
    /// A claim whose lease has lapsed is free to take; finding one's own running claim is [`Claim::Fresh`] again, with
    /// a new lease. A completed event is [`Claim::Completed`], even for the token that completed it. A record whose
    /// retention is over is as if it had never been.
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim>;

    /// Extends the claim to its `lease` from now, on the store's clock.
    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold>;

    /// Ends the claim: see [`Ending`] for how.
    ///
    /// A completion that is repeated under the same token is [`Hold::Held`] and changes nothing. A release never undoes
    /// a completed record: that is [`Hold::Lost`]. A store that is no [`Queue`](crate::queue::Queue) is only asked to
    /// complete and to release.
    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold>;

    /// The statement that completes a claim inside a handler's own transaction, for a store in the same database.
    /// `None` unless overridden. A store that wraps another passes the inner store's statement on.
    ///
    /// Such a store promises more: where a release answers [`Hold::Lost`], a completion under the same token is
    /// [`Hold::Held`] only if that token's transaction has completed the record, and never makes one. While a
    /// transaction that has not ended holds the record, both fail with
    /// [`StoreErrorKind::Locked`](super::StoreErrorKind::Locked).
    fn enlistment(&self) -> Option<Enlistment> {
        None
    }

    /// [Settles](Self::settle) the claim as completed.
    fn complete<'a>(&'a self, claim: &'a ClaimRequest<'a>, completion: &Completion<'a>) -> StoreFuture<'a, Hold> {
        self.settle(claim, Ending::Complete(*completion))
    }

    /// [Settles](Self::settle) the claim as released.
    fn release<'a>(&'a self, key: &'a EventKey, token: ClaimToken) -> StoreFuture<'a, Hold> {
        Box::pin(async move { self.settle(&ClaimRequest::new(key, token, Duration::ZERO), Ending::Release).await })
    }
}

/// A store for a layer: any [`Store`], or an `Arc<dyn Store>` that was chosen at run time.
///
/// ```
/// use std::sync::Arc;
/// use tower_webhook::store::{BreakerStore, MemoryStore, Store};
/// use tower_webhook::{WebhookLayer, scheme};
///
/// # fn main() -> Result<(), tower_webhook::ConfigError> {
/// let store: Arc<dyn Store> = match std::env::var("BREAKER") {
///     Ok(_) => Arc::new(BreakerStore::new(MemoryStore::new())),
///     Err(_) => Arc::new(MemoryStore::new()),
/// };
/// let layer = WebhookLayer::new(scheme::timestamped("whsec_x")?, store);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    label = "expected a store: where claimed and completed events are remembered",
    note = "use `store::MemoryStore::new()` or another store of the module `store`, or implement `store::Store`"
)]
pub trait IntoStore {
    /// The store, shared.
    fn into_store(self) -> Arc<dyn Store>;
}

#[diagnostic::do_not_recommend]
impl<S: Store> IntoStore for S {
    fn into_store(self) -> Arc<dyn Store> {
        Arc::new(self)
    }
}

impl IntoStore for Arc<dyn Store> {
    fn into_store(self) -> Arc<dyn Store> {
        self
    }
}
