//~ is not a clock
//~ a test gives a `testing::ManualClock`, which it moves

use tower_webhook::store::MemoryStore;

pub fn store() -> MemoryStore {
    MemoryStore::builder().clock(std::time::SystemTime::now()).build()
}
