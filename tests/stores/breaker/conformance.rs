//! The breaker is a store: closed, and open with a fallback.

use std::time::Duration;

use tower_webhook::store::breaker::{BreakerStore, CircuitState};
use tower_webhook::store::{Claim, ClaimRequest, Ending, Hold, MemoryStore, Store, StoreError, StoreFuture};
use tower_webhook::testing::ManualClock;
use tower_webhook::testing::conformance::{self, Harness};

use super::fixture::Event;
use crate::support::checker::asked_seed;

struct Closed {
    clock: ManualClock,
    fallback: bool,
}

impl Harness for Closed {
    type Store = BreakerStore;

    async fn store(&self) -> Self::Store {
        let builder = BreakerStore::builder(MemoryStore::builder().clock(self.clock.clone()).build());
        let builder = if self.fallback { builder.fallback_may_double(1_000) } else { builder };
        builder.clock(self.clock.clone()).build()
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

/// A store that is never there.
struct Away;

impl Store for Away {
    fn claim<'a>(&'a self, _: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(std::future::ready(Err(StoreError::unavailable("away"))))
    }

    fn renew<'a>(&'a self, _: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(std::future::ready(Err(StoreError::unavailable("away"))))
    }

    fn settle<'a>(&'a self, _: &'a ClaimRequest<'a>, _: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(std::future::ready(Err(StoreError::unavailable("away"))))
    }
}

/// The circuit is open, and every probe fails.
struct Open(ManualClock);

impl Harness for Open {
    type Store = BreakerStore;

    async fn store(&self) -> Self::Store {
        let breaker = BreakerStore::builder(Away).failures(1).fallback_may_double(1_000).clock(self.0.clone()).build();
        breaker.claim(&Event::new("opens it").request()).await.expect_err("the store is away");
        assert_eq!(breaker.stats().circuit, CircuitState::Open);
        breaker
    }

    async fn pass(&self, time: Duration) {
        self.0.advance(time);
    }
}

const SEQUENCES: u32 = 10_000;

async fn play(harness: &impl Harness, seed: u64) {
    let seed = asked_seed().unwrap_or(seed);
    println!("FAULTS_SEED={seed}");
    conformance::model(harness, seed, SEQUENCES).await;
}

fn clock() -> ManualClock {
    ManualClock::at_unix(1_700_000_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn closed_breaker_conforms() {
    let harness = Closed { clock: clock(), fallback: false };
    conformance::store().run(&harness).await;
    play(&harness, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn closed_breaker_with_a_fallback_conforms() {
    let harness = Closed { clock: clock(), fallback: true };
    conformance::store().run(&harness).await;
    play(&harness, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fallback_of_an_open_breaker_conforms() {
    let harness = Open(clock());
    conformance::store().run(&harness).await;
    play(&harness, 3).await;
}
