//! What is kept for ever: dead letters, and how far each order has got.

use tower_webhook::queue::{EventState, Filter, Order, Page, Queue};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Hold, Store};

use super::queue::{KEPT, accept, accept_ordered, complete, lease_one};
use crate::postgres::fixture::{Fixture, LEASE, WEEK, key};

#[tokio::test]
async fn purge_leaves_dead_letters_and_what_is_to_be_run() {
    let fixture = Fixture::new().await;
    for id in ["done", "dead", "running"] {
        assert_eq!(accept(&fixture.store, &key(id)).await, KEPT);
        let leased = lease_one(&fixture.store).await;
        match id {
            "done" => complete(&fixture.store, &leased).await,
            "dead" => {
                assert_eq!(fixture.store.bury(&leased.claim(LEASE), "hopeless").await.expect("buried"), Hold::Held);
            }
            _ => {}
        }
    }
    assert_eq!(accept(&fixture.store, &key("waiting")).await, KEPT);
    fixture.pass(2 * WEEK).await;
    // Expired is as good as purged.
    assert_eq!(fixture.store.get(&key("done")).await.expect("an answer"), None);
    assert_eq!(fixture.store.counts().await.expect("counts").completed, 0);
    assert_eq!(fixture.store.list(&Filter::all(), &Page::first(10)).await.expect("a list").len(), 3);
    assert_eq!(fixture.store.requeue(&Filter::one(key("done")), true).await.expect("an answer").events, 0);
    assert_eq!(fixture.store.purge().await.expect("purged"), 1);
    let left = fixture.store.list(&Filter::all(), &Page::first(10)).await.expect("a list");
    let left: Vec<_> = left.iter().map(|event| event.key.id()).collect();
    assert_eq!(left, ["dead", "running", "waiting"]);
    let dead = fixture.store.get(&key("dead")).await.expect("an answer").expect("the dead letter");
    assert_eq!((dead.state, dead.failures.len()), (EventState::Dead, 1));
    assert!(dead.request.is_some_and(|stored_request| !stored_request.body.is_empty()));
}

#[tokio::test]
async fn superseded_sequence_numbers_stay_superseded_after_every_retention() {
    let fixture = Fixture::new().await;
    let run = async |sequence: i64, id: &str| {
        accept_ordered(&fixture.store, &key(id), Order::of("sub_1").sequence(sequence)).await;
        let leased = lease_one(&fixture.store).await;
        complete(&fixture.store, &leased).await;
        leased.superseded
    };
    assert!(!run(5, "five").await);
    assert!(run(3, "three").await);
    for round in 0..2 {
        fixture.pass(2 * WEEK).await;
        assert_eq!(fixture.store.purge().await.expect("purged"), 2);
        assert_eq!(fixture.count("SELECT count(*) FROM events").await, 1, "one row for the order, and no event");
        assert!(fixture.store.list(&Filter::all(), &Page::first(10)).await.expect("a list").is_empty());
        assert_eq!(fixture.store.counts().await.expect("counts"), Default::default());
        assert!(run(4, &format!("four, {round}")).await, "{round}");
        assert!(!run(6 + round, &format!("new, {round}")).await, "{round}");
    }
}

#[tokio::test]
async fn superseded_sequence_numbers_stay_superseded_when_an_expired_event_is_delivered_again() {
    for inline in [true, false] {
        let fixture = Fixture::new().await;
        let order = |sequence| Order::of("sub_1").sequence(sequence);
        accept_ordered(&fixture.store, &key("five"), order(5)).await;
        complete(&fixture.store, &lease_one(&fixture.store).await).await;
        fixture.pass(2 * WEEK).await;
        if inline {
            let five = key("five");
            let again = ClaimRequest::new(&five, ClaimToken::random(), LEASE);
            assert_eq!(fixture.store.claim(&again).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
        } else {
            // Of another order by now.
            accept_ordered(&fixture.store, &key("five"), Order::of("sub_2").sequence(5)).await;
            assert!(!lease_one(&fixture.store).await.superseded);
        }
        accept_ordered(&fixture.store, &key("four"), order(4)).await;
        assert!(lease_one(&fixture.store).await.superseded, "inline: {inline}");
    }
}

#[tokio::test]
async fn discarded_event_keeps_its_sequence_and_is_not_applied_when_it_is_purged() {
    let fixture = Fixture::new().await;
    let order = |sequence| Order::of("sub_1").sequence(sequence);
    for (sequence, id) in [(1, "one"), (9, "nine")] {
        accept_ordered(&fixture.store, &key(id), order(sequence)).await;
        assert_eq!(fixture.store.discard(&Filter::one(key(id)), WEEK).await.expect("discarded"), 1);
    }
    accept_ordered(&fixture.store, &key("two"), order(2)).await;
    let two = lease_one(&fixture.store).await;
    assert!(!two.superseded);
    complete(&fixture.store, &two).await;
    assert_eq!(fixture.store.requeue(&Filter::one(key("one")), true).await.expect("requeued").events, 1);
    let one = lease_one(&fixture.store).await;
    assert!(one.superseded, "discarded once, and old news by now");
    complete(&fixture.store, &one).await;
    fixture.pass(2 * WEEK).await;
    fixture.store.purge().await.expect("purged");
    accept_ordered(&fixture.store, &key("three"), order(3)).await;
    assert!(!lease_one(&fixture.store).await.superseded);
}
