//! Expired rows go; nothing else does.

use std::time::Duration;

use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, PostgresStore, Store};

use crate::postgres::fixture::{Fixture, LEASE, WEEK, eventually, key, run_on, shared};

/// Rows of every kind: what is expired of them is three times `rows`.
async fn fill(fixture: &Fixture, rows: u32) {
    for (state, expires) in [
        ("completed", "now() - interval '1 second'"),
        ("failed", "now() - interval '1 day'"),
        ("released", "now() - interval '1 hour'"),
        ("completed", "now() + interval '1 hour'"),
        ("released", "now() + interval '1 hour'"),
        ("running", "NULL"),
    ] {
        fixture
            .run(
                &format!(
                "INSERT INTO events (key, state, token, lease_until, received_at, attempts, fingerprint, expires_at)
             SELECT '{state} ' || {expires} || n, '{state}', '\\x00', now() - interval '1 year', now(), 1, 0, {expires}
               FROM generate_series(1, {rows}) n"
            )
                .replace("'running ' || NULL || n", "'running ' || n"),
            )
            .await;
    }
}

#[tokio::test]
async fn purge_deletes_what_has_expired_and_leaves_the_rest() {
    let fixture = Fixture::new().await;
    fill(&fixture, 1_100).await;
    assert_eq!(fixture.store.purge().await.expect("purged"), 3_300, "in batches of a thousand");
    assert_eq!(fixture.count("SELECT count(*) FROM events").await, 3_300);
    assert_eq!(fixture.count("SELECT count(*) FROM events WHERE expires_at < now()").await, 0);
    assert_eq!(
        fixture.count("SELECT count(*) FROM events WHERE state = 'running'").await,
        1_100,
        "nobody knows their outcome"
    );
    assert_eq!(fixture.store.purge().await.expect("purged"), 0);
}

#[tokio::test]
async fn purge_does_not_wait_for_a_locked_row() {
    let fixture = Fixture::new().await;
    fill(&fixture, 2).await;
    let mut theirs = shared().connect().await;
    run_on(&mut theirs, fixture.about("BEGIN; SELECT key FROM events WHERE state = 'failed' LIMIT 1 FOR UPDATE")).await;
    assert_eq!(fixture.store.purge().await.expect("purged"), 5);
    run_on(&mut theirs, "ROLLBACK".to_owned()).await;
    assert_eq!(fixture.store.purge().await.expect("purged"), 1);
}

#[tokio::test]
async fn purged_event_is_as_if_it_had_never_been() {
    let fixture = Fixture::new().await;
    let key = key("evt_1");
    let claim = fixture.claim(&key, ClaimToken::random());
    fixture.store.claim(&claim).await.expect("an answer");
    assert_eq!(fixture.store.complete(&claim, &Completion::succeeded("", WEEK)).await.expect("an answer"), Hold::Held);
    assert_eq!(fixture.store.purge().await.expect("purged"), 0, "its retention has only begun");
    fixture.pass(2 * WEEK).await;
    assert_eq!(fixture.store.purge().await.expect("purged"), 1);
    assert_eq!(fixture.store.complete(&claim, &Completion::succeeded("", WEEK)).await.expect("an answer"), Hold::Lost);
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
}

#[tokio::test]
async fn traffic_sets_a_purge_off() {
    let fixture = Fixture::new().await;
    fill(&fixture, 10).await;
    let store = PostgresStore::builder(fixture.pool.clone()).table(&fixture.table).expect("a name");
    let store = store.purge_every(Duration::from_secs(3600)).expect("a time").build();
    let key = key("evt_1");
    store.claim(&ClaimRequest::new(&key, ClaimToken::random(), LEASE)).await.expect("an answer");
    eventually("purged", async || fixture.count("SELECT count(*) FROM events WHERE expires_at < now()").await == 0)
        .await;
    assert_eq!(fixture.count("SELECT count(*) FROM events").await, 31);
}
