//! The behaviour of every store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, Ending, Enlistment, Hold, SqliteStore, Store, StoreFuture};
use tower_webhook::testing::ManualClock;
use tower_webhook::testing::conformance::{self, Harness};

use crate::sqlite::fixture::Fixture;
use crate::support::checker::asked_seed;

/// One file, in which every store has keys of its own.
struct OneFile {
    _fixture: Fixture,
    clock: ManualClock,
    store: SqliteStore,
    stores: AtomicUsize,
}

impl OneFile {
    async fn new() -> Self {
        let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(1_700_000_000));
        let store = SqliteStore::builder().clock(clock.clone()).open(fixture.path()).await.expect("a store");
        Self { _fixture: fixture, clock, store, stores: AtomicUsize::new(0) }
    }
}

impl Harness for OneFile {
    type Store = Prefixed;

    async fn store(&self) -> Prefixed {
        Prefixed { prefix: self.stores.fetch_add(1, Ordering::Relaxed), store: self.store.clone() }
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

/// A part of a store that nobody else uses.
struct Prefixed {
    prefix: usize,
    store: SqliteStore,
}

impl Prefixed {
    fn key(&self, key: &EventKey) -> EventKey {
        EventKey::new(&format!("{}{}", self.prefix, key.endpoint()), key.tenant(), key.id())
    }
}

fn with_key<'a>(request: &ClaimRequest<'a>, key: &'a EventKey) -> ClaimRequest<'a> {
    ClaimRequest::new(key, request.token, request.lease).fingerprint(request.fingerprint).event_type(request.event_type)
}

impl Store for Prefixed {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move { self.store.claim(&with_key(request, &self.key(request.key))).await })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { self.store.renew(&with_key(claim, &self.key(claim.key))).await })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            match ending {
                Ending::Complete(completion) => {
                    let completion = &completion;
                    self.store.complete(&with_key(claim, &self.key(claim.key)), completion).await
                }
                _ => {
                    let key = claim.key;
                    let token = claim.token;
                    self.store.release(&self.key(key), token).await
                }
            }
        })
    }

    fn enlistment(&self) -> Option<Enlistment> {
        self.store.enlistment()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn store_conforms() {
    conformance::store().run(&OneFile::new().await).await;
}

/// Four files at a time: each sequence has a clock to itself, and one file's sequences run one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_random_sequences_agree_with_the_model() {
    let seed = asked_seed().unwrap_or(4);
    println!("FAULTS_SEED={seed}");
    let mut files = JoinSet::new();
    for file in 0..4 {
        files.spawn(async move { conformance::model(&OneFile::new().await, seed + (file << 48), 2_500).await });
    }
    while let Some(ended) = files.join_next().await {
        if let Err(failed) = ended {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}
