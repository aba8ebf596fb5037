//! Who waits for whom. The answers do not tell, since a wait that is too long is given up; the server's log does.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use futures_util::future::{join, join_all};
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::breaker::CircuitState;
use tower_webhook::store::{BreakerStore, Claim, ClaimToken, Completion, Hold, PostgresStore, Store, StoreErrorKind};
use tower_webhook::testing::TestSender;
use tower_webhook::{EventKey, Outcome, WebhookLayer};

use crate::postgres::fixture::{Fixture, PATIENCE, WEEK, eventually, key, run_on};
use crate::postgres::instances::wins;
use crate::postgres::receiver::{Receiver, assert_unavailable};
use crate::support::logs::Logs;
use crate::support::servers::pgbouncer::Pgbouncer;
use crate::support::servers::postgres::{PostgresServer, Settings};
use crate::support::{Answer, scheme};

/// A server that logs every wait for a lock of more than a millisecond, and who waited.
fn watchful() -> PostgresServer {
    let settings = Settings::default().set("fsync=off").set("log_lock_waits=on").set("deadlock_timeout=1ms");
    PostgresServer::start_with(settings.set("log_line_prefix=%a: "))
}

/// What the server logged of the store's connections with one of these words in it.
fn logged(server: &PostgresServer, words: &[&str]) -> Vec<String> {
    let log = server.log();
    let of_the_store = log.lines().filter(|line| line.starts_with("tower-webhook"));
    of_the_store.filter(|line| words.iter().any(|word| line.contains(word))).map(str::to_owned).collect()
}

/// A handler's transaction holds rows whose leases are over, and all that can be asked is asked of them and of others at once.
#[tokio::test]
async fn no_batch_waits_for_a_row_that_a_transaction_holds() {
    let server = watchful();
    let fixture = Fixture::on(&server).await;
    let held: Vec<_> = (0..8).map(|n| key(&format!("held_{n}"))).collect();
    let fresh: Vec<_> = (0..40).map(|n| key(&format!("fresh_{n}"))).collect();
    let lapsed = key("lapsed");
    let (mine, theirs) = (ClaimToken::random(), ClaimToken::random());
    for key in held.iter().chain([&lapsed]) {
        assert_eq!(
            fixture.store.claim(&fixture.claim(key, mine)).await.expect("an answer"),
            Claim::Fresh { attempt: Some(1) }
        );
    }
    fixture.pass(2 * WEEK).await;
    let mut handler = server.connect().await;
    run_on(&mut handler, fixture.about("BEGIN; UPDATE events SET state = 'completed' WHERE key LIKE '%/held_%'")).await;

    // On one thread, what is asked for together is in one batch; there are two kinds of them, and more than one of each.
    let asked = held.iter().chain(&fresh).chain([&lapsed]);
    let claims =
        join_all(asked.map(async |key| fixture.store.claim(&fixture.claim(key, theirs)).await.expect("an answer")));
    let done = Completion::succeeded("200 OK", WEEK);
    let settlements = join_all(held.iter().map(|key| async {
        let claim = fixture.claim(key, mine);
        assert_eq!(fixture.store.renew(&claim).await.expect("an answer"), Hold::Held, "by whoever holds the row");
        assert_eq!(fixture.store.complete(&claim, &done).await.expect_err("held").kind(), StoreErrorKind::Locked);
        assert_eq!(fixture.store.release(key, mine).await.expect_err("held").kind(), StoreErrorKind::Locked);
    }));
    let (claims, _) = join(claims, settlements).await;
    assert_eq!(claims[..8], [Claim::InFlight { same_body: true }; 8]);
    assert_eq!(claims[8..48], [Claim::Fresh { attempt: Some(1) }; 40]);
    assert_eq!(claims[48], Claim::Fresh { attempt: Some(2) });
    run_on(&mut handler, "COMMIT".to_owned()).await;
    assert_eq!(logged(&server, &["still waiting for", "lock timeout"]), [""; 0]);
}

/// Claims all of `keys` at once, in this order; how many were won.
async fn claim_all(store: PostgresStore, keys: Vec<EventKey>) -> usize {
    join_all(keys.iter().map(|key| wins(&store, key))).await.into_iter().filter(|won| *won).count()
}

/// Here a batch may wait, for another that is inserting the same key and is over in no time; but no two for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn overlapping_batches_in_opposite_orders_do_not_deadlock() {
    let server = watchful();
    let fixture = Fixture::on(&server).await;
    let stores = [fixture.store.clone(), fixture.another(), fixture.another()];
    for round in 0..20 {
        let keys: Vec<_> = (0..300).map(|n| key(&format!("{round}.{n}"))).collect();
        let backwards: Vec<_> = keys.iter().rev().cloned().collect();
        let from_the_middle: Vec<_> = keys[150..].iter().chain(&keys[..150]).cloned().collect();
        let orders = [keys, backwards, from_the_middle];
        let claims = stores.iter().zip(orders).map(|(store, keys)| tokio::spawn(claim_all(store.clone(), keys)));
        let won: usize = join_all(claims).await.into_iter().map(|won| won.expect("no panic")).sum();
        assert_eq!(won, 300, "round {round}: each key has one winner");
    }
    assert_eq!(fixture.count("SELECT count(*) FROM events WHERE attempts = 1 AND state = 'running'").await, 6_000);
    assert_eq!(logged(&server, &["deadlock"]), [""; 0]);
}

/// The locks of `LOCK TABLE` and `ALTER TABLE`, and of `CREATE INDEX`.
const TABLE_LOCKS: [&str; 2] = ["ACCESS EXCLUSIVE", "SHARE"];

fn locked_by(mode: &str) -> String {
    format!("BEGIN; LOCK TABLE webhook_events IN {mode} MODE")
}

/// Neither has been seen before, and nobody runs them: they are not in flight.
#[tokio::test]
async fn locked_table_is_a_store_that_does_not_answer() {
    let server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    let mut other = server.connect().await;
    for (round, mode) in TABLE_LOCKS.into_iter().enumerate() {
        assert_eq!(receiver.deliver(&format!("warm_{round}")).await.outcome, Some(Outcome::Completed));
        run_on(&mut other, locked_by(mode)).await;
        let deliveries: Vec<_> = (0..8).map(|n| receiver.spawn(&format!("evt_{round}.{n}"))).collect();
        for delivery in deliveries {
            assert_unavailable(&delivery.await.expect("no panic"));
        }
        run_on(&mut other, "ROLLBACK".to_owned()).await;
        receiver.settled().await;
        assert_eq!(receiver.handler.runs(), 9 * round + 1);
        for n in 0..8 {
            receiver.deliver_until_acknowledged(&format!("evt_{round}.{n}")).await;
        }
    }
    receiver.check(&server).await;
}

/// Ten times what the store's deadline allows, and a third of every other deadline: whoever answers within it is the store.
const BY_THE_STORE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn delivery_on_a_locked_table_is_answered_by_the_store_before_any_deadline_of_the_layer() {
    let server = PostgresServer::start();
    let store = PostgresStore::new(server.pool());
    store.migrate().await.expect("a table");
    let layer = WebhookLayer::new(scheme(), store).in_flight_wait(PATIENCE).claim_deadline(PATIENCE);
    let app = Router::new().route("/webhooks", post(|| async {})).layer(layer.expect("a deadline"));
    let mut other = server.connect().await;
    for (round, mode) in TABLE_LOCKS.into_iter().enumerate() {
        run_on(&mut other, locked_by(mode)).await;
        let (logs, _guard) = Logs::capture();
        let delivery = TestSender::new(scheme()).deliver(format!(r#"{{"id":"evt_{round}"}}"#)).request();
        let answer = tokio::time::timeout(BY_THE_STORE, app.clone().oneshot(delivery)).await;
        let answer = Answer::read(answer.expect("an answer of the store's").expect("a router cannot fail")).await;
        assert_unavailable(&answer);
        assert_eq!(logs.count("locks the whole table"), 1, "{mode}: {:?}", logs.lines());
        run_on(&mut other, "ROLLBACK".to_owned()).await;
    }
}

#[tokio::test]
async fn claim_on_a_locked_table_fails_and_says_why() {
    let server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    let fixture = receiver.fixture(&server);
    let key = key("evt_1");
    let claim = fixture.claim(&key, ClaimToken::random());
    let mut other = server.connect().await;
    for mode in TABLE_LOCKS {
        run_on(&mut other, locked_by(mode)).await;
        let error = receiver.store.claim(&claim).await.expect_err("no answer");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        let cause = error.source().expect("a cause").to_string();
        assert!(cause.contains("locks the whole table"), "{mode}: {cause}");
        run_on(&mut other, "ROLLBACK".to_owned()).await;
    }
    assert_eq!(receiver.store.claim(&claim).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
}

#[tokio::test]
async fn breaker_opens_when_the_table_is_locked() {
    let server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    let fixture = receiver.fixture(&server);
    let breaker = BreakerStore::builder(receiver.store.clone()).failures(2).build();
    let mut other = server.connect().await;
    run_on(&mut other, locked_by("ACCESS EXCLUSIVE")).await;
    for n in 0..2 {
        assert_eq!(breaker.stats().circuit, CircuitState::Closed);
        let key = key(&n.to_string());
        breaker.claim(&fixture.claim(&key, ClaimToken::random())).await.expect_err("no answer");
    }
    assert_eq!(breaker.stats().circuit, CircuitState::Open);
    run_on(&mut other, "ROLLBACK".to_owned()).await;
}

/// The claim waits for the lock as long as its deadline allows, and is neither taken for a duplicate nor given up.
#[tokio::test]
async fn claim_outlasts_a_lock_on_the_table_that_is_given_back_in_time() {
    let server = watchful();
    let fixture = Fixture::on(&server).await;
    let key = key("evt_1");
    let claim = fixture.claim(&key, ClaimToken::random());
    let mut other = server.connect().await;
    run_on(&mut other, fixture.about("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE")).await;
    let unlock = async {
        // More often than a key is asked for that somebody's transaction holds.
        eventually("the claim waits", async || logged(&server, &["due to lock timeout"]).len() > 10).await;
        run_on(&mut other, "ROLLBACK".to_owned()).await;
    };
    let (claimed, ()) = join(fixture.store.claim(&claim), unlock).await;
    assert_eq!(claimed.expect("an answer"), Claim::Fresh { attempt: Some(1) });
}

/// A key that somebody's transaction inserts, on a table that nobody locks: its own claims wait, and no other.
#[tokio::test]
async fn key_that_an_open_transaction_inserts_is_in_flight_on_a_table_that_is_not_locked() {
    let server = watchful();
    let fixture = Fixture::on(&server).await;
    let held = key("held");
    let mut theirs = server.connect().await;
    let insert = format!(
        "BEGIN; INSERT INTO events (key, state, token, lease_until, received_at, attempts, fingerprint)
         VALUES ('{}', 'running', '\\x00', now() + interval '1 day', now(), 1, 0)",
        held.as_str()
    );
    run_on(&mut theirs, fixture.about(&insert)).await;
    let claim = fixture.claim(&held, ClaimToken::random());
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), Claim::InFlight { same_body: true });
    run_on(&mut theirs, "ROLLBACK".to_owned()).await;
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
}

/// The store's sessions that claim have nothing to do, and nothing is claimed.
async fn nothing_is_claimed(fixture: &Fixture) {
    eventually("nothing is claimed", async || {
        // In this order: what a session has claimed is to be seen once the session is idle.
        let sessions = "SELECT count(*) FROM pg_stat_activity
            WHERE application_name = 'tower-webhook claims' AND state <> 'idle'";
        fixture.count(sessions).await == 0
            && fixture.count("SELECT count(*) FROM events WHERE state = 'running'").await == 0
    })
    .await;
}

/// The deadline comes while the claim waits, and the lock goes before the server has given the wait up.
#[tokio::test]
async fn claim_given_up_while_it_waits_for_a_locked_table_does_not_hold_its_event() {
    let server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    let fixture = receiver.fixture(&server);
    let mut other = server.connect().await;
    assert_eq!(receiver.deliver("warm").await.outcome, Some(Outcome::Completed));
    for round in 0..8 {
        let id = format!("evt_{round}");
        run_on(&mut other, locked_by("ACCESS EXCLUSIVE")).await;
        let delivery = receiver.spawn(&id);
        eventually("the claim waits", async || {
            fixture.count("SELECT count(*) FROM pg_locks WHERE NOT granted").await > 0
        })
        .await;
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(2)).await;
        tokio::time::resume();
        assert_unavailable(&delivery.await.expect("no panic"));
        run_on(&mut other, "ROLLBACK".to_owned()).await;
        nothing_is_claimed(&fixture).await;
        let mut answer = receiver.deliver(&id).await;
        while answer.rejection() == Some(RejectionKind::InFlight) {
            // A session is idle, too, until it reads what was sent to it.
            nothing_is_claimed(&fixture).await;
            answer = receiver.deliver(&id).await;
        }
        assert_eq!(answer.outcome, Some(Outcome::Completed), "{id}");
    }
    receiver.check(&server).await;
}

/// Transactions that claim an event commit when this lock can be had, as on a slow disk or with a slow replica. No timeout of the
/// server's ends a commit.
const SLOW_COMMITS: &str = "
    CREATE FUNCTION wait_to_commit() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS
        $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER slow_commits AFTER INSERT OR UPDATE ON webhook_events DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.state = 'running') EXECUTE FUNCTION wait_to_commit();
    SELECT pg_advisory_lock(1)";

async fn late_commits_hold_no_event(receiver: Receiver, server: &PostgresServer) {
    let fixture = receiver.fixture(server);
    let mut other = server.connect().await;
    receiver.handler.answers(500);
    assert_eq!(receiver.deliver("known").await.outcome, Some(Outcome::Released));
    receiver.handler.answers(200);
    run_on(&mut other, SLOW_COMMITS.to_owned()).await;
    // One after the other: in one batch, the claim of what is known would wait for the commit of what is new.
    for id in ["known", "new"] {
        assert_unavailable(&receiver.deliver(id).await);
    }
    // The receiver has released its doubtful claims, and there was nothing to release yet.
    receiver.settled().await;
    run_on(&mut other, "SELECT pg_advisory_unlock(1)".to_owned()).await;
    eventually("both claims were committed and released", async || {
        fixture.count("SELECT coalesce(sum(attempts), 0) FROM events WHERE state = 'released'").await == 3
    })
    .await;
    for id in ["known", "new"] {
        assert_eq!(receiver.deliver(id).await.outcome, Some(Outcome::Completed), "{id}");
    }
    assert_eq!(receiver.handler.runs(), 3);
    receiver.check(server).await;
}

#[tokio::test]
async fn claim_that_is_committed_after_its_deadline_does_not_hold_its_event() {
    let server = PostgresServer::start();
    late_commits_hold_no_event(Receiver::on(&server).await, &server).await;
}

#[tokio::test]
async fn claim_that_is_committed_after_its_deadline_through_a_pooler_does_not_hold_its_event() {
    let server = PostgresServer::start();
    let pooler = Pgbouncer::before(&server);
    let receiver = Receiver::on_store(PostgresStore::builder(pooler.pool(&server)).pooled().build());
    receiver.store.migrate().await.expect("a table");
    late_commits_hold_no_event(receiver, &server).await;
}
