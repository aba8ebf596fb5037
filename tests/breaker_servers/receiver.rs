//! A receiver on a Redis store, with a breaker in between or without.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deadpool_redis::{Config, Runtime};
use tower_webhook::Outcome;
use tower_webhook::store::breaker::{BreakerStoreBuilder, CircuitState, Conflict};
use tower_webhook::store::{BreakerStore, RedisStore, Store};
use tower_webhook::testing::ManualClock;

use crate::support::NOW;
use crate::support::audited::{Audited, assert_unavailable};
use crate::support::checker::Ledger;
use crate::support::servers::redis::RedisServer;
use crate::support::wait::PATIENCE;

pub(crate) const FAILURES: usize = 3;
/// Longer than any cool-down of the breakers here.
const COOL_DOWN: Duration = Duration::from_secs(5);

/// With little patience, because the server is away most of the time.
fn redis(server: &RedisServer) -> RedisStore {
    let pool = Config::from_url(server.url()).create_pool(Some(Runtime::Tokio1)).expect("a pool");
    RedisStore::builder(pool).timeout(Duration::from_millis(200)).build()
}

/// A receiver with a breaker before its store, or without.
pub(crate) type Receiver = Audited<Arc<dyn Store>>;

impl Receiver {
    /// Another instance, without a breaker. They have one ledger.
    pub(crate) fn another(&self, server: &RedisServer) -> Self {
        Self::configured(Arc::new(redis(server)), self.ledger.clone(), |layer| layer)
    }

    /// Never lost, never let in, and never doubled but for these.
    pub(crate) fn check_but_for(&self, doubled: &[&str], server: &RedisServer) {
        let keys = server.keys();
        let keys: BTreeSet<_> = keys.iter().map(|key| key.trim_start_matches("tower-webhook:").to_owned()).collect();
        self.ledger.check_but_for(doubled, &keys, "no seed: nothing is random here");
    }

    /// Delivers until it is acknowledged, as a sender does: on a busy machine, a server that works may miss the timeout.
    pub(crate) async fn acknowledges(&self, id: &str) -> Option<Outcome> {
        self.deliver_until_acknowledged(id).await.outcome
    }

    pub(crate) async fn is_refused(&self, id: &str) {
        assert_unavailable(&self.deliver(id).await);
    }
}

/// A receiver whose store is behind a breaker.
pub(crate) struct Guarded {
    pub(crate) receiver: Receiver,
    pub(crate) breaker: BreakerStore,
    clock: ManualClock,
    conflicts: Arc<Mutex<Vec<Conflict>>>,
}

impl Guarded {
    pub(crate) fn new(
        server: &RedisServer,
        configure: impl FnOnce(BreakerStoreBuilder) -> BreakerStoreBuilder,
    ) -> Self {
        let (clock, conflicts) = (ManualClock::at_unix(NOW), Arc::<Mutex<Vec<_>>>::default());
        let found = conflicts.clone();
        let builder = BreakerStore::builder(redis(server))
            .failures(FAILURES as u32)
            .cool_down(Duration::from_secs(1), COOL_DOWN)
            .clock(clock.clone())
            .on_conflict(move |conflict| found.lock().expect("no panic under the lock").push(conflict.clone()));
        let breaker = configure(builder).build();
        Self {
            receiver: Receiver::configured(Arc::new(breaker.clone()), Ledger::default(), |layer| layer),
            breaker,
            clock,
            conflicts,
        }
    }

    pub(crate) fn circuit(&self) -> CircuitState {
        self.breaker.stats().circuit
    }

    pub(crate) fn conflicts(&self) -> Vec<Conflict> {
        self.conflicts.lock().expect("no panic under the lock").clone()
    }

    /// The first deliveries of an outage are refused, and open the circuit.
    pub(crate) async fn notices_the_outage(&self) {
        for number in 0..FAILURES {
            assert_eq!(self.circuit(), CircuitState::Closed);
            self.receiver.is_refused(&format!("first of the outage {number}")).await;
        }
        assert_eq!(self.circuit(), CircuitState::Open);
        self.receiver.settled().await;
    }

    /// The next claim is the probe.
    pub(crate) fn cools_down(&self) {
        self.clock.advance(COOL_DOWN);
    }

    /// Lets cool-downs pass until this has come true: a server that is just back may miss a probe.
    pub(crate) async fn cools_down_until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        while !condition().await {
            assert!(begun.elapsed() < PATIENCE, "never came: {what}");
            self.cools_down();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
