use std::time::Duration;

use tower_webhook::store::MemoryStore;
use tower_webhook::testing::ManualClock;
use tower_webhook::testing::conformance::{self, Harness};

struct Memory(ManualClock);

impl Harness for Memory {
    type Store = MemoryStore;

    async fn store(&self) -> MemoryStore {
        MemoryStore::builder().clock(self.0.clone()).build()
    }

    async fn pass(&self, time: Duration) {
        self.0.advance(time);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_conforms() {
    conformance::inbox::run(&Memory(ManualClock::at_unix(1_700_000_000))).await;
}
