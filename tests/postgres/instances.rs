//! Several stores on one table are one.

use futures_util::future::join_all;
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, PostgresStore, Store};

use crate::postgres::fixture::{Fixture, WEEK, key};

/// Whether the claim was won.
pub(crate) async fn wins(store: &PostgresStore, key: &EventKey) -> bool {
    let claim = store.claim(&ClaimRequest::new(key, ClaimToken::random(), WEEK)).await.expect("an answer");
    assert!(matches!(claim, Claim::Fresh { .. } | Claim::InFlight { same_body: true }), "{claim:?}");
    matches!(claim, Claim::Fresh { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_claims_over_two_stores_have_one_winner() {
    let fixture = Fixture::new().await;
    let stores = [fixture.store.clone(), fixture.another()];
    for round in 0..24 {
        let key = key(&round.to_string());
        let claims: Vec<_> = (0..64)
            .map(|n| {
                let (store, key) = (stores[n % 2].clone(), key.clone());
                tokio::spawn(async move { wins(&store, &key).await })
            })
            .collect();
        let won = join_all(claims).await.into_iter().filter(|won| *won.as_ref().expect("no panic")).count();
        assert_eq!(won, 1, "round {round}");
    }
}

#[tokio::test]
async fn what_one_store_completes_is_completed_for_the_other() {
    let fixture = Fixture::new().await;
    let (other, key) = (fixture.another(), key("evt_1"));
    let mine = fixture.claim(&key, ClaimToken::random());
    let theirs = fixture.claim(&key, ClaimToken::random());
    assert_eq!(fixture.store.claim(&mine).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
    assert_eq!(other.claim(&theirs).await.expect("an answer"), Claim::InFlight { same_body: true });
    let done = Completion::succeeded("200 OK", WEEK);
    assert_eq!(other.complete(&theirs, &done).await.expect("an answer"), Hold::Lost);
    assert_eq!(other.release(&key, theirs.token).await.expect("an answer"), Hold::Lost);
    // Any instance can settle what it has the token of: fencing is by token.
    assert_eq!(other.complete(&mine, &done).await.expect("an answer"), Hold::Held);
    assert_eq!(fixture.store.claim(&theirs).await.expect("an answer"), Claim::Completed { same_body: true });
}

#[tokio::test]
async fn attempts_are_counted_across_releases_and_lapses() {
    let fixture = Fixture::new().await;
    let key = key("evt_1");
    for attempt in 1..=3 {
        let claim = fixture.claim(&key, ClaimToken::random());
        assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), Claim::Fresh { attempt: Some(attempt) });
        assert_eq!(fixture.store.release(&key, claim.token).await.expect("an answer"), Hold::Held);
        assert_eq!(
            fixture.store.release(&key, claim.token).await.expect("an answer"),
            Hold::Held,
            "the reply may be lost"
        );
    }
    let claim = fixture.claim(&key, ClaimToken::random());
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), Claim::Fresh { attempt: Some(4) });
    fixture.pass(2 * WEEK).await;
    let claim = fixture.claim(&key, ClaimToken::random());
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), Claim::Fresh { attempt: Some(5) });
    let done = Completion::succeeded("200 OK", WEEK);
    assert_eq!(fixture.store.complete(&claim, &done).await.expect("an answer"), Hold::Held);
    fixture.pass(2 * WEEK).await;
    let claim = fixture.claim(&key, ClaimToken::random());
    assert_eq!(
        fixture.store.claim(&claim).await.expect("an answer"),
        Claim::Fresh { attempt: Some(1) },
        "as if never been"
    );
}
