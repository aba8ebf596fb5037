//! Events that another program has written, or damaged.

use tower_webhook::queue::{EventState, Filter, Order, Page, Queue};

use super::queue::{KEPT, accept, accept_ordered, lease};
use crate::postgres::fixture::{Fixture, WEEK, eventually, key};
use crate::support::logs::Logs;

const REPORTED: &str = "a stored event could not be read";

/// The columns have types, so it takes more than a wrong value: a key that is none, and nothing where there must be something.
async fn damage(fixture: &Fixture, id: &str, damage: &str) {
    fixture.run("ALTER TABLE events ALTER fingerprint DROP NOT NULL").await;
    assert_eq!(fixture.run(&format!("UPDATE events SET {damage} WHERE key = '{}'", key(id).as_str())).await, 1);
}

async fn is_dead(fixture: &Fixture, letters: u64) {
    eventually("dead letters", async || fixture.store.counts().await.expect("an answer").dead == letters).await;
}

#[tokio::test]
async fn unreadable_event_is_reported_and_buried_and_others_are_leased() {
    let (logs, _guard) = Logs::capture();
    let fixture = Fixture::new().await;
    for id in ["bad", "worse", "good", "better"] {
        assert_eq!(accept(&fixture.store, &key(id)).await, KEPT);
    }
    damage(&fixture, "bad", "fingerprint = NULL").await;
    damage(&fixture, "worse", "key = 'no key'").await;
    let leased = lease(&fixture.store, 3).await;
    assert_eq!(leased.iter().map(|leased| leased.key.id()).collect::<Vec<_>>(), ["good"], "behind two bad ones");
    is_dead(&fixture, 2).await;
    fixture.pass(WEEK).await;
    assert_eq!(lease(&fixture.store, 9).await.len(), 2, "the other leases have lapsed");
    assert_eq!(logs.count(REPORTED), 2, "each of them once");

    let listed = fixture.store.list(&Filter::all(), &Page::first(9)).await.expect("an answer");
    let states: Vec<_> = listed.iter().map(|event| (event.key.id(), event.state)).collect();
    let running = EventState::Running;
    assert_eq!(states, [("bad", EventState::Dead), ("good", running), ("better", running)], "all that have a key");
    let bad = fixture.store.get(&key("bad")).await.expect("an answer").expect("an event");
    assert_eq!(bad.summary.as_deref(), Some("the stored event is not one that this version wrote"));
    assert_eq!(fixture.store.forget(&Filter::all().state(EventState::Dead)).await.expect("an answer"), 2);
}

/// A worker that asks for one at a time gets one, and does not take the inbox for empty.
#[tokio::test]
async fn lease_of_one_passes_unreadable_events() {
    let fixture = Fixture::new().await;
    for id in ["bad", "worse", "good"] {
        assert_eq!(accept(&fixture.store, &key(id)).await, KEPT);
    }
    damage(&fixture, "bad", "fingerprint = NULL").await;
    damage(&fixture, "worse", "key = 'no key'").await;
    let leased = lease(&fixture.store, 1).await;
    assert_eq!(leased.iter().map(|leased| leased.key.id()).collect::<Vec<_>>(), ["good"]);
}

/// Those behind it would wait for ever.
#[tokio::test]
async fn unreadable_event_does_not_stall_its_order() {
    let fixture = Fixture::new().await;
    for id in ["first", "second"] {
        accept_ordered(&fixture.store, &key(id), Order::of("account")).await;
    }
    damage(&fixture, "first", "fingerprint = NULL").await;
    eventually("it is the second's turn", async || {
        lease(&fixture.store, 9).await.iter().any(|leased| leased.key.id() == "second")
    })
    .await;
}
