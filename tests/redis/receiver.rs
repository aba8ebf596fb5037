//! A receiver on a Redis store.

use std::collections::BTreeSet;
use std::error::Error;
use std::iter::successors;
use std::time::Duration;

use tower_webhook::store::redis::RedisPool;
use tower_webhook::store::{ClaimRequest, ClaimToken, RedisStore, Store, StoreErrorKind};

use crate::redis::fixture::{PATIENT, pool, store};
use crate::support::audited::Audited;
pub(crate) use crate::support::audited::assert_unavailable;

use crate::support::checker::Ledger;
pub(crate) use crate::support::key;
use crate::support::servers::redis::RedisServer;
pub(crate) use crate::support::wait::eventually;

pub(crate) type Receiver = Audited<RedisStore>;

impl Receiver {
    pub(crate) fn on(server: &RedisServer) -> Self {
        Self::with_pool(pool(server))
    }

    pub(crate) fn with_pool(pool: impl Into<RedisPool>) -> Self {
        Self::patient(store(pool), Ledger::default())
    }

    /// Has time enough on a busy machine, if the store has.
    pub(crate) fn patient(store: RedisStore, ledger: Ledger) -> Self {
        Self::configured(store, ledger, |layer| {
            layer.in_flight_wait(Duration::ZERO).claim_deadline(2 * PATIENT).expect("a duration")
        })
    }

    /// Gives up soon, for servers that do not answer.
    pub(crate) fn hasty(pool: impl Into<RedisPool>) -> Self {
        Self::patient(RedisStore::builder(pool).timeout(Duration::from_secs(3)).build(), Ledger::default())
    }

    /// Never lost, never doubled, never let in.
    pub(crate) fn check(&self, server: &RedisServer) {
        let keys = server.keys();
        let keys: BTreeSet<_> = keys.iter().map(|key| key.trim_start_matches("tower-webhook:").to_owned()).collect();
        self.ledger.check_keys(&keys, "no seed: nothing is random here");
    }
}

/// A claim is refused with an error that keeps the server's own word for it.
pub(crate) async fn assert_refused(receiver: &Receiver, word: &str) {
    let event = key("evt_refused");
    let claim = receiver.store.claim(&ClaimRequest::new(&event, ClaimToken::random(), Duration::from_secs(30))).await;
    let error = claim.expect_err("a refusal");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let causes =
        successors(error.source(), |cause: &&dyn Error| (*cause).source()).map(ToString::to_string).collect::<Vec<_>>();
    assert!(causes.iter().any(|cause| cause.contains(word)), "{causes:?}");
}
