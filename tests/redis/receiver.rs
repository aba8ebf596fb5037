//! A receiver on a Redis store.

use std::collections::BTreeSet;

use deadpool_redis::Pool;
use tower_webhook::store::RedisStore;

use crate::harness::pool;
use crate::support::audited::Audited;
pub(crate) use crate::support::audited::{assert_unavailable, eventually, key};
use crate::support::checker::Ledger;
use crate::support::redis_server::RedisServer;

pub(crate) type Receiver = Audited<RedisStore>;

impl Receiver {
    pub(crate) fn on(server: &RedisServer) -> Self {
        Self::with_pool(pool(server))
    }

    pub(crate) fn with_pool(pool: Pool) -> Self {
        Self::over(RedisStore::new(pool), Ledger::default())
    }

    /// Never lost, never doubled, never let in.
    pub(crate) fn check(&self, server: &RedisServer) {
        let keys = server.keys();
        let keys: BTreeSet<_> = keys.iter().map(|key| key.trim_start_matches("tower-webhook:").to_owned()).collect();
        self.ledger.check_keys(&keys, "no seed: nothing is random here");
    }
}
