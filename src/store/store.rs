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
/// A store implements three verbs, `claim`, `renew` and `settle`. Each is one atomic step on one key. Fencing is by token and not
/// by clock: a token can still renew and settle a claim whose lease has lapsed, as long as no other token has claimed the event.
///
/// An `Err` means that the outcome is unknown. The caller may repeat every verb with the same arguments, and the store then answers
/// as it would have the first time. A store need not remember a claim that was released, or a record whose retention is over: it
/// may then answer `renew` and `settle` either way, as long as [`Hold::Held`] means that the change was made. A store may also
/// forget a claim when its lease lapses. `renew` and `settle` therefore get the whole request that was answered [`Claim::Fresh`],
/// to write it anew.
///
/// ```
/// # use std::{collections::HashMap, sync::Mutex};
/// use tower_webhook::EventKey;
/// use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Ending, Fingerprint, Hold, Store, StoreFuture};
///
/// /// A store that never forgets, and whose leases never lapse.
/// #[derive(Default)]
/// struct Forever(Mutex<HashMap<EventKey, (ClaimToken, Fingerprint, bool)>>);
///
/// impl Store for Forever {
///     fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
///         Box::pin(async move {
///             let mut events = self.0.lock().unwrap();
///             let new = (request.token, request.fingerprint, false);
///             let (token, fingerprint, done) = *events.entry(request.key.clone()).or_insert(new);
///             let same_body = fingerprint == request.fingerprint;
///             Ok(match done {
///                 true => Claim::Completed { same_body },
///                 false if token == request.token => Claim::Fresh { attempt: None },
///                 false => Claim::InFlight { same_body },
///             })
///         })
///     }
///
///     fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
///         Box::pin(async move {
///             let events = self.0.lock().unwrap();
///             let is_held = events.get(claim.key).is_some_and(|(token, _, done)| *token == claim.token && !done);
///             Ok(if is_held { Hold::Held } else { Hold::Lost })
///         })
///     }
///
///     fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
///         Box::pin(async move {
///             let mut events = self.0.lock().unwrap();
///             match (events.get_mut(claim.key), ending) {
///                 (Some((token, _, done)), Ending::Complete(_)) if *token == claim.token => *done = true,
///                 (Some((token, _, false)), Ending::Release) if *token == claim.token => {
///                     events.remove(claim.key);
///                 }
///                 _ => return Ok(Hold::Lost),
///             }
///             Ok(Hold::Held)
///         })
///     }
/// }
/// ```
pub trait Store: Send + Sync + 'static {
    /// Takes `key` for `lease` if nobody holds it. Atomic: of any number of concurrent calls for one key under
    /// different tokens, exactly one sees [`Claim::Fresh`].
    ///
    /// A claim whose lease has lapsed is free to take; finding one's own running claim is [`Claim::Fresh`] again, with a new
    /// lease. A completed event is [`Claim::Completed`], even for the token that completed it. A record whose retention is
    /// over is as if it had never been.
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim>;

    /// Extends the claim to its `lease` from now, on the store's clock.
    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold>;

    /// Ends the claim: see [`Ending`] for how.
    ///
    /// A completion that is repeated under the same token is [`Hold::Held`] and changes nothing. A release never undoes a completed
    /// record: that is [`Hold::Lost`]. A store that is no [`Queue`](crate::queue::Queue) is only asked to complete and to release.
    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold>;

    /// The statement that completes a claim inside a handler's own transaction, for a store in the same database. `None`
    /// unless overridden. A store that wraps another passes the inner store's statement on.
    ///
    /// Such a store promises more: where a release answers [`Hold::Lost`], a completion under the same token is
    /// [`Hold::Held`] only if that token's transaction has completed the record, and never makes one. While a transaction that
    /// has not ended holds the record, both fail with [`StoreErrorKind::Locked`](super::StoreErrorKind::Locked).
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
pub trait IntoStore {
    /// The store, shared.
    fn into_store(self) -> Arc<dyn Store>;
}

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
