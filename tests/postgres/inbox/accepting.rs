//! What is accepted together, and by whom it may be taken.

use futures_util::future::{join, join_all};
use sqlx::AssertSqlSafe;
use tower_webhook::queue::{EventState, Filter, LeaseRequest, Page, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold, PostgresStore, Store};

use super::queue::{ACCEPTED, KEPT, accept, complete, lease, lease_one, stored_request};
use crate::postgres::fixture::{Fixture, LEASE, WEEK, eventually, key, run_on, shared};
use crate::support::logs::Logs;
use crate::support::proxy::{Proxy, Weather};

const FRESH: Claim = Claim::Fresh { attempt: Some(1) };

// On one thread, what is asked for together is asked before the first batch is formed: one batch.

#[tokio::test]
async fn acceptances_of_one_id_in_one_batch_have_one_winner_and_answers_of_their_own() {
    let fixture = Fixture::new().await;
    let key = key("evt_1");
    let stored_request = stored_request(&key);
    let claim = |token: u8, body| {
        let token = ClaimToken::from_bytes([token; 16]);
        ClaimRequest::new(&key, token, LEASE).fingerprint(Fingerprint::from_u64(body))
    };
    let claims = [claim(1, 1), claim(2, 1), claim(3, 2), claim(1, 1)];
    let answers = join_all(claims.iter().map(|claim| fixture.store.enqueue(claim, &stored_request))).await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
    assert_eq!(answers, [KEPT, ACCEPTED, Claim::Accepted { same_body: false }, KEPT]);
    // The reply may have been lost, and somebody else asks in the same batch.
    let (theirs, mine) =
        join(fixture.store.enqueue(&claims[1], &stored_request), fixture.store.enqueue(&claims[0], &stored_request))
            .await;
    assert_eq!((theirs.expect("an answer"), mine.expect("an answer")), (ACCEPTED, KEPT));
    assert_eq!(lease(&fixture.store, 10).await.len(), 1);
}

#[tokio::test]
async fn claim_and_acceptance_in_one_batch_have_one_winner() {
    let fixture = Fixture::new().await;
    let (queued, inline) = (key("queued"), key("inline"));
    let (stored_request, by) = (stored_request(&queued), |key| fixture.claim(key, ClaimToken::random()));
    let (mine, theirs) = (by(&queued), by(&queued));
    let (accepted, claimed) = join(fixture.store.enqueue(&mine, &stored_request), fixture.store.claim(&theirs)).await;
    assert_eq!((accepted.expect("an answer"), claimed.expect("an answer")), (KEPT, ACCEPTED));
    let (mine, theirs) = (by(&inline), by(&inline));
    let (claimed, accepted) = join(fixture.store.claim(&mine), fixture.store.enqueue(&theirs, &stored_request)).await;
    let in_flight = Claim::InFlight { same_body: true };
    assert_eq!((claimed.expect("an answer"), accepted.expect("an answer")), (FRESH, in_flight));
    assert_eq!(fixture.store.claim(&by(&queued)).await.expect("an answer"), ACCEPTED);
}

#[tokio::test]
async fn many_large_events_at_once_are_all_accepted() {
    let fixture = Fixture::new().await;
    let keys: Vec<_> = (0..24).map(|n| key(&n.to_string())).collect();
    let large = StoredRequest::new("head", vec![7; 1024 * 1024], std::time::SystemTime::UNIX_EPOCH);
    let claims: Vec<_> = keys.iter().map(|key| fixture.claim(key, ClaimToken::random())).collect();
    for answer in join_all(claims.iter().map(|claim| fixture.store.enqueue(claim, &large))).await {
        assert_eq!(answer.expect("an answer"), KEPT);
    }
    // No more than a connection carries in time come at once.
    let mut leased = Vec::new();
    loop {
        let some = lease(&fixture.store, 100).await;
        if some.is_empty() {
            break;
        }
        assert!(some.len() < 8, "{} MiB", some.len());
        leased.extend(some);
    }
    assert_eq!(leased.iter().filter(|leased| leased.request.body == large.body).count(), 24);
}

/// Whatever their keys, however many statements they take, and whether the table knows them from before.
#[tokio::test]
async fn events_of_one_batch_arrive_in_the_order_in_which_they_were_asked() {
    let fixture = Fixture::new().await;
    let keys: Vec<_> = (0..24).rev().map(|n| key(&format!("{n:02}"))).collect();
    let large = StoredRequest::new("head", vec![7; 512 * 1024], std::time::SystemTime::UNIX_EPOCH);
    for round in 0..2 {
        let claims: Vec<_> = keys.iter().map(|key| fixture.claim(key, ClaimToken::random())).collect();
        for answer in join_all(claims.iter().map(|claim| fixture.store.enqueue(claim, &large))).await {
            assert_eq!(answer.expect("an answer"), KEPT);
        }
        let arrived = fixture.store.list(&Filter::all(), &Page::first(100)).await.expect("a list");
        assert_eq!(arrived.len(), keys.len());
        // By their keys, two connections share them: two lines, and each of them falls.
        let mut lines = ["99", "99"];
        for event in &arrived {
            let behind = lines.iter_mut().filter(|last| **last > event.key.id()).min();
            *behind.unwrap_or_else(|| panic!("{round}: {} is out of line", event.key.id())) = event.key.id();
        }
        fixture
            .run("UPDATE events SET state = 'completed', due_at = NULL, expires_at = now() - interval '1 day'")
            .await;
    }
}

#[tokio::test]
async fn counting_waiting_events_needs_no_connection_of_the_pool() {
    let fixture = Fixture::new().await;
    for id in ["a", "b", "c"] {
        assert_eq!(accept(&fixture.store, &key(id)).await, KEPT);
    }
    fixture.pool.close().await;
    let counts = join_all([2, 0, 9].map(|up_to| fixture.store.waiting(up_to))).await;
    let counts: Vec<_> = counts.into_iter().map(|count| count.expect("an answer")).collect();
    assert_eq!(counts, [2, 0, 3]);
}

#[tokio::test]
async fn event_that_is_larger_than_any_lease_should_be_is_leased_alone() {
    let fixture = Fixture::new().await;
    for (id, size) in [("huge", 6 * 1024 * 1024), ("small", 1), ("smaller", 0), ("huger", 7 * 1024 * 1024)] {
        let (key, large) = (key(id), StoredRequest::new("head", vec![7; size], std::time::SystemTime::UNIX_EPOCH));
        assert_eq!(
            fixture.store.enqueue(&fixture.claim(&key, ClaimToken::random()), &large).await.expect("an answer"),
            KEPT
        );
    }
    for together in [vec!["huge"], vec!["small", "smaller"], vec!["huger"]] {
        let leased = lease(&fixture.store, 100).await;
        assert_eq!(leased.iter().map(|leased| leased.key.id()).collect::<Vec<_>>(), together);
    }
}

/// Whoever was to be told is gone, and the sender will come again: what is queued stays queued.
#[tokio::test]
async fn acceptance_whose_caller_left_is_queued() {
    let proxy = Proxy::before(shared().address()).await;
    let fixture = Fixture::over(shared().pool_at(proxy.address)).await;
    let key = key("evt_1");
    // Prepares the statements on every connection, so that what follows is one request: keys are spread over connections.
    for n in 0..16 {
        assert_eq!(accept(&fixture.store, &crate::postgres::fixture::key(&format!("warm {n}"))).await, KEPT);
    }
    proxy.set(Weather::HoldReplies);
    let (store, asked) = (fixture.store.clone(), key.clone());
    let accepting = tokio::spawn(async move { accept(&store, &asked).await });
    let direct = Fixture { pool: shared().pool(), table: fixture.table.clone(), store: fixture.store.clone() };
    eventually("it is committed", async || direct.state(&key).await.is_some()).await;
    accepting.abort();
    assert!(accepting.await.expect_err("aborted").is_cancelled());
    proxy.set(Weather::Fair);
    // Whatever was to be undone would be asked for before this.
    let renewed = fixture.store.renew(&fixture.claim(&key, ClaimToken::random())).await;
    assert_eq!(renewed.expect("an answer"), Hold::Lost);
    assert_eq!(direct.state(&key).await.as_deref(), Some("accepted"));
    assert_eq!(accept(&fixture.store, &key).await, ACCEPTED);
}

/// Events that nobody knows of would otherwise wait for their leases to end.
#[tokio::test]
async fn lease_whose_worker_left_is_put_back() {
    let proxy = Proxy::before(shared().address()).await;
    let fixture = Fixture::over(shared().pool_at(proxy.address)).await;
    let key = key("evt_1");
    assert!(lease(&fixture.store, 1).await.is_empty(), "connected");
    assert_eq!(accept(&fixture.store, &key).await, KEPT);
    proxy.set(Weather::HoldReplies);
    let store = fixture.store.clone();
    let leasing = tokio::spawn(async move { store.lease(&LeaseRequest::new(10, WEEK)).await });
    let direct = Fixture { pool: shared().pool(), table: fixture.table.clone(), store: fixture.store.clone() };
    eventually("it is leased", async || direct.state(&key).await.as_deref() == Some("running")).await;
    leasing.abort();
    proxy.set(Weather::Fair);
    eventually("it is put back", async || direct.state(&key).await.as_deref() == Some("accepted")).await;
    assert_eq!(lease_one(&fixture.store).await.attempt, 1);
}

/// The answer had come, and nobody looked at it any more.
#[tokio::test]
async fn lease_that_was_answered_and_not_looked_at_is_put_back() {
    let fixture = Fixture::new().await;
    assert_eq!(accept(&fixture.store, &key("evt_1")).await, KEPT);
    let request = LeaseRequest::new(10, WEEK);
    let mut leasing = Box::pin(fixture.store.lease(&request));
    tokio::select! {
        biased;
        _ = &mut leasing => panic!("answered before it was asked"),
        () = std::future::ready(()) => {}
    }
    assert!(lease(&fixture.store, 10).await.is_empty(), "answered in turn");
    drop(leasing);
    eventually("it is put back", async || fixture.state(&key("evt_1")).await.as_deref() == Some("accepted")).await;
    assert_eq!(lease_one(&fixture.store).await.attempt, 1);
}

#[tokio::test]
async fn row_passes_between_inbox_and_inline_and_nothing_is_left_of_before() {
    let fixture = Fixture::new().await;
    let key = key("evt_1");
    let inline =
        "SELECT count(*) FROM events WHERE num_nonnulls(arrival, endpoint, due_at, started_at, head, body, order_key,
        sequence, failures) = 0";
    assert_eq!(accept(&fixture.store, &key).await, KEPT);
    complete(&fixture.store, &lease_one(&fixture.store).await).await;
    fixture.pass(2 * WEEK).await;
    let claim = fixture.claim(&key, ClaimToken::random());
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), FRESH, "its retention is over");
    assert_eq!(fixture.count(inline).await, 1);
    assert_eq!(fixture.store.get(&key).await.expect("an answer"), None);
    // Neither can a claim that is run inline be put into the inbox by its holder.
    assert_eq!(fixture.store.retry(&claim, LEASE, "no").await.expect("an answer"), Hold::Lost);
    assert_eq!(fixture.store.bury(&claim, "no").await.expect("an answer"), Hold::Lost);
    assert_eq!(fixture.store.release(&key, claim.token).await.expect("an answer"), Hold::Held);
    assert_eq!(accept(&fixture.store, &key).await, KEPT, "given up inline, it is free to take");
    let leased = lease_one(&fixture.store).await;
    assert_eq!((leased.attempt, &leased.request), (1, &stored_request(&key)));
    let failed = Completion::failed("no such account", WEEK);
    assert_eq!(fixture.store.complete(&leased.claim(LEASE), &failed).await.expect("an answer"), Hold::Held);
    assert_eq!(fixture.count("SELECT count(*) FROM events WHERE state = 'failed' AND expires_at IS NULL").await, 1);
    fixture.pass(2 * WEEK).await;
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), Claim::Completed { same_body: true });
}

#[tokio::test]
async fn inbox_under_an_odd_name_works_like_any_other() {
    run_on(&mut shared().connect().await, r#"CREATE SCHEMA "in'box""#.to_owned()).await;
    for name in [r#""in'box"."it''s ""odd""; --""#, r#""in'box".plain"#, &"x".repeat(52)] {
        let store = PostgresStore::builder(shared().pool()).table(name).expect("a name").build();
        store.migrate().await.expect(name);
        let key = key("evt_1");
        assert_eq!(accept(&store, &key).await, KEPT);
        let leased = lease_one(&store).await;
        assert_eq!(store.bury(&leased.claim(LEASE), "hopeless").await.expect(name), Hold::Held);
        assert_eq!(store.requeue(&Filter::all().state(EventState::Dead), false).await.expect(name).events, 1);
        let (woken, other) = (store.wake(), crate::postgres::fixture::key("evt_2"));
        assert_eq!(accept(&store, &other).await, KEPT);
        woken.await;
        assert_eq!(store.waiting(10).await.expect(name), 2);
        assert_eq!(store.counts().await.expect(name).waiting, 2);
        assert_eq!(store.discard(&Filter::all(), WEEK).await.expect(name), 2);
        assert_eq!(store.forget(&Filter::all()).await.expect(name), 2);
    }
}

/// A row that somebody else wrote holds nobody up.
#[tokio::test]
async fn row_that_this_store_never_wrote_is_not_leased_and_delays_no_other() {
    let fixture = Fixture::new().await;
    for id in ["a", "b", "c"] {
        assert_eq!(accept(&fixture.store, &key(id)).await, KEPT);
    }
    let spoil = fixture.about("UPDATE events SET key = 'odd' WHERE key = $1");
    sqlx::query(AssertSqlSafe(spoil)).bind(key("a").as_str()).execute(&fixture.pool).await.expect("spoilt");
    let leased: Vec<_> = lease(&fixture.store, 10).await.into_iter().map(|leased| leased.key).collect();
    assert_eq!(leased, [key("b"), key("c")]);
}

#[tokio::test]
async fn event_that_cannot_be_read_is_reported_and_others_are_leased() {
    let (logs, _guard) = Logs::capture();
    let fixture = Fixture::new().await;
    for id in ["bad", "good"] {
        assert_eq!(accept(&fixture.store, &key(id)).await, KEPT);
    }
    assert_eq!(
        fixture.run(&format!("UPDATE events SET key = 'no key' WHERE key = '{}'", key("bad").as_str())).await,
        1
    );
    assert_eq!(lease_one(&fixture.store).await.key.id(), "good");
    assert_eq!(logs.count("a stored event could not be read"), 1);
    assert!(logs.lines().iter().all(|line| !line.text.contains("the body of bad")), "the log has no body");
}
