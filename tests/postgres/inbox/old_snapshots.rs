//! An old snapshot, as a backup has it: what ended since then stays in the indexes, and leases do not walk over it again and again.

use sqlx::PgConnection;
use tower_webhook::store::{Hold, Store};

use super::kinds::{entries_read, fixture_alone};
use super::queue::{KEPT, accept, lease, lease_one};
use crate::postgres::fixture::{Fixture, eventually, key, run_on};
use crate::support::servers::postgres::PostgresServer;

const ENDED: i64 = 60_000;

/// Has so many events leased and completed since a snapshot that the connection keeps open. Each leaves two dead entries in
/// the index of what is due.
async fn events_that_ended(server: &PostgresServer, fixture: &Fixture) -> PgConnection {
    fixture.run(&format!(
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
        assert_eq!(fixture.run(sql).await, ENDED as u64);
    }
    let dead = "SELECT pg_stat_get_dead_tuples('events'::regclass)";
    eventually("the server counts them", async || fixture.count(dead).await >= ENDED).await;
    backup
}

#[tokio::test]
async fn leases_do_not_walk_again_and_again_over_what_ended() {
    const LEASES: i64 = 100;
    let (server, fixture) = fixture_alone().await;
    let _backup = events_that_ended(&server, &fixture).await;
    let before = entries_read(&fixture).await;
    let store = fixture.another();
    for _ in 0..LEASES {
        assert!(lease(&store, 64).await.is_empty());
    }
    drop(store);
    let read = entries_read(&fixture).await - before;
    // Walks over everything are few: the first leases, and those that see whether something was missed.
    assert!((2 * ENDED..2 * ENDED * LEASES / 4).contains(&read), "{read} for {LEASES} leases, {ENDED} events ended");
}

/// Events that are put where leases do not begin any more.
#[tokio::test]
async fn event_that_is_put_back_to_its_old_place_is_leased_again() {
    let (server, fixture) = fixture_alone().await;
    let _backup = events_that_ended(&server, &fixture).await;
    assert_eq!(accept(&fixture.store, &key("old")).await, KEPT);
    fixture.run("UPDATE events SET due_at = now() - interval '1 hour' WHERE state = 'accepted'").await;
    let other = fixture.another();
    let old = lease_one(&fixture.store).await;
    for store in [&fixture.store, &other] {
        for _ in 0..50 {
            assert!(lease(store, 64).await.is_empty());
        }
    }
    assert_eq!(fixture.store.release(&old.key, old.token).await.expect("an answer"), Hold::Held);
    let again = lease_one(&fixture.store).await;
    assert_eq!((&again.key, again.attempt), (&old.key, 1), "at once, by the store that put it back");
    assert_eq!(fixture.store.release(&again.key, again.token).await.expect("an answer"), Hold::Held);
    eventually("another store finds it, too", async || !lease(&other, 64).await.is_empty()).await;
    // An event that was behind another one has been due since it arrived, too.
    let order = tower_webhook::queue::Order::of("order");
    for id in ["first", "second"] {
        super::queue::accept_ordered(&fixture.store, &key(id), order.clone()).await;
    }
    fixture.run("UPDATE events SET lease_until = now() - interval '1 hour' WHERE due_at = 'infinity'").await;
    let first = lease_one(&fixture.store).await;
    for _ in 0..50 {
        assert!(lease(&fixture.store, 64).await.is_empty());
    }
    super::queue::complete(&fixture.store, &first).await;
    assert_eq!(lease_one(&fixture.store).await.key, key("second"));
}
