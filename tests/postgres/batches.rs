//! What shares a statement, and what must not be shared with it.

use futures_util::future::{join, join_all, join3};
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold, Store, StoreErrorKind};

use crate::postgres::fixture::{Fixture, WEEK, eventually, key, run_on, shared};
use crate::support::proxy::{Proxy, Weather};

const FRESH: Claim = Claim::Fresh { attempt: Some(1) };

fn token(number: u8) -> ClaimToken {
    ClaimToken::from_bytes([number; 16])
}

fn body(number: u64) -> Fingerprint {
    Fingerprint::from_u64(number)
}

// On one thread, what is asked for together is asked before the first batch is formed: one batch.

#[tokio::test]
async fn claims_of_one_id_in_one_batch_have_one_winner_and_answers_of_their_own() {
    let fixture = Fixture::new().await;
    let key = key("evt_1");
    let claim = |number, fingerprint| fixture.claim(&key, token(number)).fingerprint(fingerprint);
    let claims = [claim(1, body(1)), claim(2, body(1)), claim(3, body(2)), claim(1, body(1))];
    let answers = join_all(claims.iter().map(|claim| fixture.store.claim(claim))).await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
    let [same, other] = [true, false].map(|same_body| Claim::InFlight { same_body });
    assert_eq!(answers, [FRESH, same, other, FRESH]);

    let done = Completion::succeeded("200 OK", WEEK);
    assert_eq!(fixture.store.complete(&claims[0], &done).await.expect("an answer"), Hold::Held);
    let answers = join_all(claims.iter().map(|claim| fixture.store.claim(claim))).await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
    let [same, other] = [true, false].map(|same_body| Claim::Completed { same_body });
    assert_eq!(answers, [same, same, other, same]);
}

/// The holder's own question is not answered by somebody else's.
#[tokio::test]
async fn holder_that_asks_again_after_a_stranger_in_one_batch_is_still_fresh() {
    let fixture = Fixture::new().await;
    let key = key("evt_1");
    let (mine, theirs) = (fixture.claim(&key, token(1)), fixture.claim(&key, token(2)));
    assert_eq!(fixture.store.claim(&mine).await.expect("an answer"), FRESH);
    let (stranger, holder) = join(fixture.store.claim(&theirs), fixture.store.claim(&mine)).await;
    assert_eq!(stranger.expect("an answer"), Claim::InFlight { same_body: true });
    assert_eq!(holder.expect("an answer"), FRESH);
}

#[tokio::test]
async fn settlements_of_one_id_in_one_batch_are_done_in_their_order() {
    let fixture = Fixture::new().await;
    let done = Completion::succeeded("200 OK", WEEK);
    for (id, then) in [("completed", "completed"), ("released", "released")] {
        let key = key(id);
        let claim = fixture.claim(&key, token(1));
        assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), FRESH);
        let renew = fixture.store.renew(&claim);
        let (complete, release) = (fixture.store.complete(&claim, &done), fixture.store.release(&key, token(1)));
        let answers = match id {
            "completed" => join3(renew, complete, release).await,
            _ => join3(renew, release, complete).await,
        };
        let (first, second, third) = answers;
        assert_eq!(first.expect("an answer"), Hold::Held);
        assert_eq!((second.expect("an answer"), third.expect("an answer")), (Hold::Held, Hold::Lost));
        assert_eq!(fixture.state(&key).await.as_deref(), Some(then));
    }
}

/// Postgres takes no NUL in a text, and the layer lets no such id through; a caller of the store could.
#[tokio::test]
async fn bad_row_fails_alone() {
    let fixture = Fixture::new().await;
    let keys: Vec<_> = (0..50).map(|n| key(&n.to_string())).chain([key("b\0d")]).collect();
    let claims: Vec<_> = keys.iter().map(|key| fixture.claim(key, token(1))).collect();
    let done = Completion::succeeded("200 OK", WEEK);
    for (claim, answer) in claims.iter().zip(join_all(claims.iter().map(|claim| fixture.store.claim(claim))).await) {
        match claim.key.id().contains('\0') {
            true => assert_eq!(answer.expect_err("refused").kind(), StoreErrorKind::Unavailable),
            false => assert_eq!(answer.expect("an answer"), FRESH),
        }
    }
    let answers = join_all(claims.iter().map(|claim| fixture.store.complete(claim, &done))).await;
    assert_eq!(answers.into_iter().filter(|answer| matches!(answer, Ok(Hold::Held))).count(), 50);
}

#[tokio::test]
async fn row_that_this_store_never_wrote_fails_alone() {
    let fixture = Fixture::new().await;
    let keys: Vec<_> = (0..20).map(|n| key(&n.to_string())).collect();
    let claims: Vec<_> = keys.iter().map(|key| fixture.claim(key, token(1))).collect();
    join_all(claims.iter().map(|claim| fixture.store.claim(claim))).await;
    fixture.run(&format!("UPDATE events SET state = 'odd' WHERE key = '{}'", keys[7].as_str())).await;
    for (n, answer) in join_all(claims.iter().map(|claim| fixture.store.claim(claim))).await.into_iter().enumerate() {
        match n {
            7 => assert_eq!(answer.expect_err("unreadable").kind(), StoreErrorKind::Corrupt),
            _ => assert_eq!(answer.expect("an answer"), FRESH),
        }
    }
}

/// Nobody but this store inserts; if somebody does, only those who ask for that key have to wait.
#[tokio::test]
async fn key_that_an_open_transaction_inserts_is_in_flight_and_delays_no_other() {
    let fixture = Fixture::new().await;
    let mut theirs = shared().connect().await;
    let keys: Vec<_> = (0..40).map(|n| key(&n.to_string())).collect();
    let insert = format!(
        "BEGIN; INSERT INTO events (key, state, token, lease_until, received_at, attempts, fingerprint)
         VALUES ('{}', 'running', '\\x00', now() + interval '1 day', now(), 1, 0)",
        keys[7].as_str()
    );
    run_on(&mut theirs, fixture.about(&insert)).await;
    let claims: Vec<_> = keys.iter().map(|key| fixture.claim(key, token(1))).collect();
    let answers = join_all(claims.iter().map(|claim| fixture.store.claim(claim))).await;
    for (n, answer) in answers.into_iter().enumerate() {
        let expected = if n == 7 { Claim::InFlight { same_body: true } } else { FRESH };
        assert_eq!(answer.expect("an answer"), expected, "{n}");
    }
    run_on(&mut theirs, "ROLLBACK".to_owned()).await;
    assert_eq!(fixture.store.claim(&claims[7]).await.expect("an answer"), FRESH);
}

/// A claim that is on its way when whoever asked for it leaves. The proxy holds the reply back.
async fn leave_during(fixture: &Fixture, proxy: &Proxy, key: &EventKey) {
    // Prepares the statements on every connection, so that what follows is one request: keys are spread over connections.
    for warm in (0..16).map(|n| crate::postgres::fixture::key(&format!("warm {n}"))) {
        assert_eq!(fixture.store.claim(&fixture.claim(&warm, token(9))).await.expect("an answer"), FRESH);
        assert_eq!(fixture.store.renew(&fixture.claim(&warm, token(9))).await.expect("an answer"), Hold::Held);
    }
    proxy.set(Weather::HoldReplies);
    let (store, asked) = (fixture.store.clone(), key.clone());
    let claiming = tokio::spawn(async move { store.claim(&ClaimRequest::new(&asked, token(1), WEEK)).await });
    let direct = Fixture { pool: shared().pool(), table: fixture.table.clone(), store: fixture.store.clone() };
    eventually("the claim is committed", async || direct.state(key).await.is_some()).await;
    assert!(!claiming.is_finished(), "the reply is still on its way");
    claiming.abort();
    assert!(claiming.await.expect_err("aborted").is_cancelled());
    proxy.set(Weather::Fair);
}

#[tokio::test]
async fn claim_of_a_waiter_that_left_is_released() {
    let proxy = Proxy::before(shared().address()).await;
    let fixture = Fixture::over(shared().pool_at(proxy.address)).await;
    let key = key("evt_1");
    leave_during(&fixture, &proxy, &key).await;
    eventually("the claim is released", async || fixture.state(&key).await.as_deref() == Some("released")).await;
    let other = fixture.claim(&key, token(2));
    assert_eq!(fixture.store.claim(&other).await.expect("an answer"), Claim::Fresh { attempt: Some(2) });
}

/// A delivery that waits asks again and again under one token. What releases the first claim must not release the second.
#[tokio::test]
async fn claim_of_a_waiter_that_left_and_asks_again_is_kept() {
    let proxy = Proxy::before(shared().address()).await;
    let fixture = Fixture::over(shared().pool_at(proxy.address)).await;
    for round in 0..5 {
        let key = key(&round.to_string());
        leave_during(&fixture, &proxy, &key).await;
        let again = fixture.claim(&key, token(1));
        assert!(matches!(fixture.store.claim(&again).await.expect("an answer"), Claim::Fresh { .. }));
        // Whatever was to be released was asked for before this.
        assert_eq!(fixture.store.renew(&again).await.expect("an answer"), Hold::Held);
        assert_eq!(fixture.state(&key).await.as_deref(), Some("running"), "round {round}");
        fixture.run("DELETE FROM events").await;
    }
}
