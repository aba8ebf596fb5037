//! Expired rows go; nothing else does.

use std::time::Duration;

use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, PostgresStore, Store};

use crate::bed::{Bed, LEASE, WEEK, eventually, key, run_on, shared};

/// Rows of every kind: what is expired of them is three times `rows`.
async fn fill(bed: &Bed, rows: u32) {
    for (state, expires) in [
        ("completed", "now() - interval '1 second'"),
        ("failed", "now() - interval '1 day'"),
        ("released", "now() - interval '1 hour'"),
        ("completed", "now() + interval '1 hour'"),
        ("released", "now() + interval '1 hour'"),
        ("running", "NULL"),
    ] {
        bed.run(
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
    let bed = Bed::new().await;
    fill(&bed, 1_100).await;
    assert_eq!(bed.store.purge().await.expect("purged"), 3_300, "in batches of a thousand");
    assert_eq!(bed.count("SELECT count(*) FROM events").await, 3_300);
    assert_eq!(bed.count("SELECT count(*) FROM events WHERE expires_at < now()").await, 0);
    assert_eq!(
        bed.count("SELECT count(*) FROM events WHERE state = 'running'").await,
        1_100,
        "nobody knows their outcome"
    );
    assert_eq!(bed.store.purge().await.expect("purged"), 0);
}

#[tokio::test]
async fn purge_does_not_wait_for_a_row_that_somebody_holds() {
    let bed = Bed::new().await;
    fill(&bed, 2).await;
    let mut theirs = shared().connect().await;
    run_on(&mut theirs, bed.about("BEGIN; SELECT key FROM events WHERE state = 'failed' LIMIT 1 FOR UPDATE")).await;
    assert_eq!(bed.store.purge().await.expect("purged"), 5);
    run_on(&mut theirs, "ROLLBACK".to_owned()).await;
    assert_eq!(bed.store.purge().await.expect("purged"), 1);
}

#[tokio::test]
async fn purged_event_is_as_if_it_had_never_been() {
    let bed = Bed::new().await;
    let key = key("evt_1");
    let claim = bed.claim(&key, ClaimToken::random());
    bed.store.claim(&claim).await.expect("an answer");
    assert_eq!(bed.store.complete(&claim, &Completion::succeeded("", WEEK)).await.expect("an answer"), Hold::Held);
    assert_eq!(bed.store.purge().await.expect("purged"), 0, "its retention has only begun");
    bed.pass(2 * WEEK).await;
    assert_eq!(bed.store.purge().await.expect("purged"), 1);
    assert_eq!(bed.store.complete(&claim, &Completion::succeeded("", WEEK)).await.expect("an answer"), Hold::Lost);
    assert_eq!(bed.store.claim(&claim).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
}

#[tokio::test]
async fn traffic_sets_a_purge_off() {
    let bed = Bed::new().await;
    fill(&bed, 10).await;
    let store = PostgresStore::builder(bed.pool.clone()).table(&bed.table).expect("a name");
    let store = store.purge_every(Duration::from_secs(3600)).expect("a time").build();
    let key = key("evt_1");
    store.claim(&ClaimRequest::new(&key, ClaimToken::random(), LEASE)).await.expect("an answer");
    eventually("purged", async || bed.count("SELECT count(*) FROM events WHERE expires_at < now()").await == 0).await;
    assert_eq!(bed.count("SELECT count(*) FROM events").await, 31);
}
