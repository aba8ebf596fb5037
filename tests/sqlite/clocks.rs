//! Row 45, and reboots.

use std::time::{Duration, UNIX_EPOCH};

use tower_webhook::store::{Claim, Hold, SqliteStore, Store};
use tower_webhook::testing::ManualClock;

use crate::sqlite::fixture::{Fixture, LEASE, claim, done, is_fresh, key};

const NOW: Duration = Duration::from_secs(1_700_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const IN_FLIGHT: Claim = Claim::InFlight { same_body: true };

#[tokio::test]
async fn row_45_wall_clock_jumps_leave_leases_alone() {
    for wall in [NOW - HOUR, NOW + HOUR] {
        let (fixture, clock) = (Fixture::new(), ManualClock::at(UNIX_EPOCH + NOW));
        let store = SqliteStore::builder().clock(clock.clone()).open(fixture.path()).await.expect("a store");
        let key = key("evt_1");
        let first = claim(&key);
        assert!(is_fresh(store.claim(&first).await.expect("an answer")));
        clock.set_wall(UNIX_EPOCH + wall);
        assert_eq!(store.claim(&claim(&key)).await.expect("an answer"), IN_FLIGHT, "not ended early");
        assert_eq!(store.renew(&first).await.expect("an answer"), Hold::Held);
        clock.advance(LEASE - Duration::from_millis(1));
        assert_eq!(store.claim(&claim(&key)).await.expect("an answer"), IN_FLIGHT);
        clock.advance(Duration::from_millis(1));
        let second = claim(&key);
        assert!(is_fresh(store.claim(&second).await.expect("an answer")), "not kept alive");
        assert_eq!(store.complete(&first, &done()).await.expect("an answer"), Hold::Lost);
        assert_eq!(store.complete(&second, &done()).await.expect("an answer"), Hold::Held);
    }
}

#[tokio::test]
async fn lease_of_another_boot_has_lapsed() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    let (running, completed) = (key("running"), key("completed"));
    let (mine, theirs) = (claim(&running), claim(&completed));
    for claim in [&mine, &theirs] {
        assert!(is_fresh(store.claim(claim).await.expect("an answer")));
    }
    assert_eq!(store.complete(&theirs, &done()).await.expect("an answer"), Hold::Held);
    sqlx::query("UPDATE webhook_events SET boot = 'another'").execute(&pool).await.expect("a reboot");
    let after = fixture.store().await;
    assert_eq!(after.claim(&claim(&running)).await.expect("an answer"), Claim::Fresh { attempt: Some(2) });
    assert_eq!(after.claim(&claim(&completed)).await.expect("an answer"), Claim::Completed { same_body: true });
    assert_eq!(store.complete(&mine, &done()).await.expect("an answer"), Hold::Lost);
}

/// Nobody took the claim over: the process that made it may have been restored with its machine's memory.
#[tokio::test]
async fn lease_of_another_boot_can_be_renewed_by_its_token() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    let key = key("evt_1");
    let mine = claim(&key);
    assert!(is_fresh(store.claim(&mine).await.expect("an answer")));
    sqlx::query("UPDATE webhook_events SET boot = 'another'").execute(&pool).await.expect("a reboot");
    assert_eq!(store.renew(&mine).await.expect("an answer"), Hold::Held);
    assert_eq!(store.claim(&claim(&key)).await.expect("an answer"), IN_FLIGHT);
}

/// On the machine's own clock, and on two stores' readings of it.
#[tokio::test]
async fn stores_agree_on_when_a_lease_ends() {
    let fixture = Fixture::new();
    let (one, other) = (fixture.store().await, fixture.store().await);
    let key = key("evt_1");
    let mut brief = claim(&key);
    brief.lease = Duration::from_millis(300);
    assert!(is_fresh(one.claim(&brief).await.expect("an answer")));
    assert_eq!(other.claim(&claim(&key)).await.expect("an answer"), IN_FLIGHT);
    crate::sqlite::fixture::eventually("the lease ends", async || {
        is_fresh(other.claim(&claim(&key)).await.expect("an answer"))
    })
    .await;
    assert_eq!(one.complete(&brief, &done()).await.expect("an answer"), Hold::Lost);
}
