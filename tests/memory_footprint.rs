//! What a remembered id costs. Alone in its file: it measures the whole process.
#![cfg(target_os = "linux")]

use std::time::Duration;

use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, MemoryStore, Store};
use tower_webhook::testing::ManualClock;

const IDS: usize = 1_000_000;
const BYTES_PER_ID: usize = 56;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a resident size");
    let kibibytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kibibytes * 1024
}

async fn complete(store: &MemoryStore, ids: std::ops::Range<usize>) {
    let done = Completion::succeeded("200 OK", Duration::from_secs(7 * 24 * 3600));
    for id in ids {
        let key = EventKey::new("/webhooks/stripe", None, &format!("evt_1NG8Du2eZvKYlo2CUI79{id:08}"));
        let request = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
        assert!(matches!(store.claim(&request).await, Ok(Claim::Fresh { .. })));
        assert!(matches!(store.complete(&request, &done).await, Ok(Hold::Held)));
    }
}

#[tokio::test]
async fn a_million_ids_take_at_most_56_bytes_each() {
    let clock = ManualClock::at_unix(1_700_000_000);
    let store = MemoryStore::builder().capacity(IDS).clock(clock.clone()).build();
    complete(&store, 0..1).await;
    let before = resident();

    // One round fills it, the other evicts what is old for what is new.
    for ids in [1..IDS, IDS..IDS + IDS / 4] {
        complete(&store, ids).await;
        clock.advance(Duration::from_secs(3600));
        let held = store.len();
        let each = (resident() - before) / held;
        println!("{held} ids, {} evicted: {each} bytes each", store.stats().evicted);
        assert!(each <= BYTES_PER_ID, "{each} bytes per id");
    }
    assert!(store.len() >= IDS && store.stats().evicted > 0);
}
