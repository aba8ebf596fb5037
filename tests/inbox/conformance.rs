//! The memory store as an inbox, and as a store beside it.

use std::time::{Duration, SystemTime};

use tower_webhook::EventKey;
use tower_webhook::queue::{Queue, StoredRequest};
use tower_webhook::store::{ClaimRequest, ClaimToken, MemoryStore};
use tower_webhook::testing::ManualClock;
use tower_webhook::testing::conformance::{self, Harness};

struct Memory {
    clock: ManualClock,
    in_use: bool,
    bodies: Duration,
}

impl Memory {
    fn new(in_use: bool) -> Self {
        Self { clock: ManualClock::at_unix(1_700_000_000), in_use, bodies: Duration::MAX }
    }
}

impl Harness for Memory {
    type Store = MemoryStore;

    async fn store(&self) -> MemoryStore {
        let store = MemoryStore::builder().keep_completed_bodies(self.bodies).clock(self.clock.clone()).build();
        if self.in_use {
            let key = EventKey::new("/elsewhere", None, "evt");
            let claim = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
            store.enqueue(&claim, &StoredRequest::new("", "", SystemTime::UNIX_EPOCH)).await.expect("room");
        }
        store
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_conforms() {
    conformance::queue().run(&Memory::new(false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn store_conforms_while_its_inbox_is_in_use() {
    conformance::store().run(&Memory::new(true)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_conforms_while_bodies_go_before_records() {
    for bodies in [Duration::from_secs(30), Duration::ZERO] {
        let memory = Memory { bodies, ..Memory::new(false) };
        conformance::completed_bodies(bodies).run(&memory).await;
    }
    let memory = Memory { bodies: Duration::from_secs(30), ..Memory::new(false) };
    conformance::queue().run(&memory).await;
}
