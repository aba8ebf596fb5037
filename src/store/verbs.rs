use std::future::Future;
use std::sync::Arc;

use super::{Claim, ClaimRequest, ClaimToken, Completion, Enlistment, Hold, StoreError};
use crate::EventKey;

/// Remembers which events are being worked on and which are done.
///
/// Each verb is one atomic step on one key. Fencing is by token and not by clock: a lease that lapsed but that nobody
/// took over can still be renewed, completed and released by its token; only another token's claim takes that away.
///
/// An `Err` means that the outcome is unknown. `claim`, `renew` and `complete` can therefore be repeated with the same
/// arguments, and then answer as they would have the first time. Of a claim that was released, or a
/// record whose retention is over, a store need not have a trace: what `renew`, `complete` and `release` answer is then up to
/// it, as long as what answers [`Hold::Held`] is done. A store may lose the trace of a claim when its lease lapses, too; that is
/// why `renew` and `complete` are given the whole request that was answered [`Claim::Fresh`], to write it anew.
pub trait Store: Send + Sync + 'static {
    /// Takes `key` for `lease` if nobody holds it. Atomic: of any number of concurrent calls for one key under
    /// different tokens, exactly one sees [`Claim::Fresh`].
    ///
    /// A claim whose lease has lapsed is free to take; finding one's own running claim is [`Claim::Fresh`] again, with a new
    /// lease. A completed event is [`Claim::Completed`], even for the token that completed it. A record whose retention is
    /// over is as if it had never been.
    fn claim(&self, request: &ClaimRequest<'_>) -> impl Future<Output = Result<Claim, StoreError>> + Send;

    /// Extends the claim to its `lease` from now, on the store's clock.
    fn renew(&self, claim: &ClaimRequest<'_>) -> impl Future<Output = Result<Hold, StoreError>> + Send;

    /// Turns the claim into a record that is kept for the completion's retention. Completing again under the same
    /// token is [`Hold::Held`] and changes nothing.
    fn complete(
        &self,
        claim: &ClaimRequest<'_>,
        completion: &Completion<'_>,
    ) -> impl Future<Output = Result<Hold, StoreError>> + Send;

    /// Gives the claim up: the next delivery runs. Never undoes a completed record, which is [`Hold::Lost`] here.
    fn release(&self, key: &EventKey, token: ClaimToken) -> impl Future<Output = Result<Hold, StoreError>> + Send;

    /// The statement that completes a claim inside of a handler's own transaction, for a store in the same database. None
    /// unless overridden; a store that wraps another passes its on.
    ///
    /// Such a store is held to more: where `release` answers [`Hold::Lost`], `complete` under the same token is
    /// [`Hold::Held`] only if that token's transaction has completed the record, and never makes one. While a transaction that
    /// has not ended holds the record, both fail with [`StoreErrorKind::Locked`](super::StoreErrorKind::Locked).
    fn enlistment(&self) -> Option<Enlistment> {
        None
    }
}

impl<S: Store> Store for Arc<S> {
    fn claim(&self, request: &ClaimRequest<'_>) -> impl Future<Output = Result<Claim, StoreError>> + Send {
        (**self).claim(request)
    }

    fn renew(&self, claim: &ClaimRequest<'_>) -> impl Future<Output = Result<Hold, StoreError>> + Send {
        (**self).renew(claim)
    }

    fn complete(
        &self,
        claim: &ClaimRequest<'_>,
        completion: &Completion<'_>,
    ) -> impl Future<Output = Result<Hold, StoreError>> + Send {
        (**self).complete(claim, completion)
    }

    fn release(&self, key: &EventKey, token: ClaimToken) -> impl Future<Output = Result<Hold, StoreError>> + Send {
        (**self).release(key, token)
    }

    fn enlistment(&self) -> Option<Enlistment> {
        (**self).enlistment()
    }
}
