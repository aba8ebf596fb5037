//! An old snapshot, as a backup has it: what ended since then stays in the indexes, and leases do not walk over it again and again.

use sqlx::PgConnection;
use tower_webhook::store::{Hold, Store};

use crate::bed::{Bed, eventually, key, run_on};
use crate::inbox_desk::{KEPT, accept, lease, lease_one};
use crate::inbox_kinds::{bed_alone, entries_read};
use crate::support::servers::postgres::PostgresServer;

const ENDED: i64 = 60_000;

/// Has so many events leased and completed since a snapshot that the connection keeps open. Each leaves two dead entries in
/// the index of what is due.
async fn events_that_ended(server: &PostgresServer, bed: &Bed) -> PgConnection {
    bed.run(&format!(
        "INSERT INTO events (key, state, token, lease_until, received_at, attempts, fingerprint, arrival, endpoint, due_at, head, body)
         SELECT '1.0:a//' || n, 'accepted', '', now(), now(), 0, 0, nextval('events_arrivals'), 'a',
                now() - interval '1 minute' + n * interval '1 microsecond', '', ''
           FROM generate_series(1, {ENDED}) n"
    ))
    .await;
    let mut backup = server.connect().await;
    run_on(&mut backup, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class".to_owned()).await;
    for sql in [
        "UPDATE events SET state = 'running', due_at = due_at + interval '30 s' WHERE endpoint = 'a'",
        "UPDATE events SET state = 'completed', due_at = NULL, expires_at = now() + interval '7 days' WHERE endpoint = 'a'",
    ] {
        assert_eq!(bed.run(sql).await, ENDED as u64);
    }
    let dead = "SELECT pg_stat_get_dead_tuples('events'::regclass)";
    eventually("the server counts them", async || bed.count(dead).await >= ENDED).await;
    backup
}

#[tokio::test]
async fn leases_do_not_walk_again_and_again_over_what_ended() {
    const LEASES: i64 = 100;
    let (server, bed) = bed_alone().await;
    let _backup = events_that_ended(&server, &bed).await;
    let before = entries_read(&bed).await;
    let store = bed.another();
    for _ in 0..LEASES {
        assert!(lease(&store, 64).await.is_empty());
    }
    drop(store);
    let read = entries_read(&bed).await - before;
    // Walks over everything are few: the first leases, and those that see whether something was missed.
    assert!((2 * ENDED..2 * ENDED * LEASES / 4).contains(&read), "{read} for {LEASES} leases, {ENDED} events ended");
}

/// Events that are put where leases do not begin any more.
#[tokio::test]
async fn event_that_is_put_back_to_its_old_place_is_leased_again() {
    let (server, bed) = bed_alone().await;
    let _backup = events_that_ended(&server, &bed).await;
    assert_eq!(accept(&bed.store, &key("old")).await, KEPT);
    bed.run("UPDATE events SET due_at = now() - interval '1 hour' WHERE state = 'accepted'").await;
    let other = bed.another();
    let old = lease_one(&bed.store).await;
    for store in [&bed.store, &other] {
        for _ in 0..50 {
            assert!(lease(store, 64).await.is_empty());
        }
    }
    assert_eq!(bed.store.release(&old.key, old.token).await.expect("an answer"), Hold::Held);
    let again = lease_one(&bed.store).await;
    assert_eq!((&again.key, again.attempt), (&old.key, 1), "at once, by the store that put it back");
    assert_eq!(bed.store.release(&again.key, again.token).await.expect("an answer"), Hold::Held);
    eventually("another store finds it, too", async || !lease(&other, 64).await.is_empty()).await;
    // One that was held up has been due since it came, too.
    let order = tower_webhook::queue::Order::of("order");
    for id in ["first", "second"] {
        crate::inbox_desk::accept_ordered(&bed.store, &key(id), order.clone()).await;
    }
    bed.run("UPDATE events SET lease_until = now() - interval '1 hour' WHERE due_at = 'infinity'").await;
    let first = lease_one(&bed.store).await;
    for _ in 0..50 {
        assert!(lease(&bed.store, 64).await.is_empty());
    }
    crate::inbox_desk::complete(&bed.store, &first).await;
    assert_eq!(lease_one(&bed.store).await.key, key("second"));
}
