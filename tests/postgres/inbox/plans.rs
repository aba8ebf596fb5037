//! However many events are waiting, only those that are leased are looked at.

use tower_webhook::queue::{LeaseRequest, Queue};

use crate::postgres::fixture::{Fixture, LEASE, eventually};

#[tokio::test]
async fn lease_looks_at_what_it_takes_and_not_at_what_is_waiting() {
    let fixture = Fixture::new().await;
    // Each index that is made scans the table, and the server tells of it when the migration's connection has ended.
    let scans = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_user_tables WHERE relname = 'events'";
    eventually("the server tells of the indexes", async || fixture.count(scans).await > 0).await;
    let made = fixture.count(scans).await;
    // In two hundred orders, so that all indexes are asked; and as many that are done. The statistics know nothing of it.
    fixture.run(
        "INSERT INTO events (key, state, token, lease_until, received_at, attempts, fingerprint, arrival, endpoint, due_at,
                             head, body, order_key, sequence)
         SELECT '1.0:a//' || n, CASE WHEN n <= 10000 THEN 'completed' ELSE 'accepted' END, '', now(), now(), 0, 0, n, 'a',
                CASE WHEN n > 10000 THEN now() - interval '1 day' + n * interval '1 millisecond' END,
                '', '', 'order ' || n % 200, n
           FROM generate_series(1, 20000) n",
    )
    .await;
    let store = fixture.another();
    let leased = store.lease(&LeaseRequest::new(50, LEASE)).await.expect("an answer");
    assert_eq!(leased.len(), 50);
    assert!(leased.iter().all(|leased| !leased.superseded));
    // The server tells of what a connection has read at the latest when it ends.
    drop((store, leased));
    let read = "SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes WHERE relname = 'events'";
    eventually("the server tells", async || fixture.count(read).await > 0).await;
    let read = fixture.count(read).await;
    assert!((50..500).contains(&read), "{read} of 20,000");
    assert_eq!(fixture.count(scans).await, made, "no scan but those");
}
