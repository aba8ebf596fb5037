//! [`Store`] with its futures boxed, so that one layer type serves every store.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::{Claim, ClaimRequest, ClaimToken, Completion, Enlistment, Hold, Store, StoreError};
use crate::EventKey;

pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

pub(crate) trait ErasedStore: Send + Sync + 'static {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> Answer<'a, Claim>;
    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> Answer<'a, Hold>;
    fn complete<'a>(&'a self, claim: &'a ClaimRequest<'a>, completion: &'a Completion<'a>) -> Answer<'a, Hold>;
    fn release<'a>(&'a self, key: &'a EventKey, token: ClaimToken) -> Answer<'a, Hold>;
    fn enlistment(&self) -> Option<Enlistment>;

    /// Gives a claim back whose work failed. What a plain store does with it is a release.
    fn set_back<'a>(&'a self, claim: &'a ClaimRequest<'a>, _: Option<u32>, _: &'a Setback) -> Answer<'a, Hold> {
        self.release(claim.key, claim.token)
    }
}

/// Why work that was claimed has to be done again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setback {
    pub(crate) reason: Cow<'static, str>,
    /// Not before this has passed, if the handler said.
    pub(crate) retry_after: Option<Duration>,
    /// Whether the handler was called. Without that an event is not given up, whichever attempt this was.
    pub(crate) called: bool,
}

impl Setback {
    pub(crate) const fn new(reason: &'static str) -> Self {
        Self { reason: Cow::Borrowed(reason), retry_after: None, called: true }
    }

    /// The work failed before the handler was called.
    pub(crate) const fn before_the_call(reason: &'static str) -> Self {
        Self { reason: Cow::Borrowed(reason), retry_after: None, called: false }
    }
}

impl<S: Store> ErasedStore for S {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> Answer<'a, Claim> {
        Box::pin(Store::claim(self, request))
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> Answer<'a, Hold> {
        Box::pin(Store::renew(self, claim))
    }

    fn complete<'a>(&'a self, claim: &'a ClaimRequest<'a>, completion: &'a Completion<'a>) -> Answer<'a, Hold> {
        Box::pin(Store::complete(self, claim, completion))
    }

    fn release<'a>(&'a self, key: &'a EventKey, token: ClaimToken) -> Answer<'a, Hold> {
        Box::pin(Store::release(self, key, token))
    }

    fn enlistment(&self) -> Option<Enlistment> {
        Store::enlistment(self)
    }
}

/// Any store behind one type, where it is chosen at run time.
///
/// ```
/// use tower_webhook::store::{AnyStore, MemoryStore};
///
/// let store = match std::env::var("STORE").as_deref() {
///     Ok("small") => AnyStore::new(MemoryStore::builder().capacity(1_000).build()),
///     _ => AnyStore::new(MemoryStore::new()),
/// };
/// ```
#[derive(Clone)]
pub struct AnyStore(Arc<dyn ErasedStore>);

impl AnyStore {
    /// Takes any store.
    pub fn new(store: impl Store) -> Self {
        Self(Arc::new(store))
    }
}

impl Store for AnyStore {
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

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyStore(..)")
    }
}
