//! Commits that wait for a replica that is away. No timeout of the server's ends them, nor does closing their connections.

use futures_util::future::{join, join_all};
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, PostgresStore, Store};

use crate::postgres::fixture::{Fixture, WEEK, eventually, key};
use crate::postgres::inbox::queue::{ACCEPTED, KEPT, accept, try_accept};
use crate::support::servers::postgres::{PostgresServer, Settings};

/// How many connections the documentation of the store names, at the most: for claims, and for whatever ends them.
const CLAIMS: i64 = 6;
const SETTLES: i64 = 3;

/// Twice as often as there are connections.
const ROUNDS: usize = 6;

/// A server without a replica, and a store with everything as it is by default.
async fn fixture() -> (PostgresServer, Fixture) {
    let server = PostgresServer::start_with(Settings::default().set("fsync=off"));
    let fixture = Fixture::on(&server).await;
    let store =
        PostgresStore::builder(fixture.pool.clone()).table(&fixture.table).expect("a name").purge_by_hand().build();
    (server, Fixture { store, ..fixture })
}

/// How many sessions of the store's wait to commit.
async fn committing(fixture: &Fixture, name: &str) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name";
    fixture.count(&format!("{sql} = 'tower-webhook {name}'")).await
}

/// From now on every commit waits.
async fn replica_goes(fixture: &Fixture) {
    fixture.run("CREATE TABLE probe (n int)").await;
    fixture.run("ALTER SYSTEM SET synchronous_standby_names = 'nowhere'").await;
    fixture.run("SELECT pg_reload_conf()").await;
    let pool = fixture.pool.clone();
    let probes = tokio::spawn(async move {
        // The server takes a moment to heed its configuration. The first that has to wait is the last.
        while sqlx::raw_sql("INSERT INTO probe VALUES (1)").execute(&pool).await.is_ok() {}
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    eventually("commits wait", async || fixture.count(waiting).await == 1).await;
    probes.abort();
}

async fn replica_is_done_without(fixture: &Fixture) {
    fixture.run("ALTER SYSTEM RESET synchronous_standby_names").await;
    fixture.run("SELECT pg_reload_conf()").await;
}

/// So many that each of the store's connections for claims has some.
fn keys(round: usize) -> Vec<EventKey> {
    (0..16).map(|n| key(&format!("{round}.{n}"))).collect()
}

#[tokio::test]
async fn claims_that_are_never_answered_open_no_more_connections_than_documented_and_are_released_in_the_end() {
    let (_server, fixture) = fixture().await;
    replica_goes(&fixture).await;
    for round in 0..ROUNDS {
        let keys = keys(round);
        let claims = keys.iter().map(async |key| fixture.store.claim(&fixture.claim(key, ClaimToken::random())).await);
        for claim in join_all(claims).await {
            claim.expect_err("no answer");
        }
        let committing = committing(&fixture, "claims").await;
        assert!((1..=CLAIMS).contains(&committing), "round {round}: {committing} sessions");
    }
    let error = fixture.store.claim(&fixture.claim(&key("last"), ClaimToken::random())).await.expect_err("no answer");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("pg_stat_activity"), "{cause}");
    let all = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tower-webhook claims'";
    eventually("there are no others", async || fixture.count(all).await <= CLAIMS).await;

    replica_is_done_without(&fixture).await;
    eventually("the late claims are released", async || {
        fixture.count("SELECT count(*) FROM events WHERE state = 'released'").await >= 1
            && fixture.count("SELECT count(*) FROM events WHERE state <> 'released'").await == 0
    })
    .await;
    for key in (0..ROUNDS).flat_map(keys) {
        let claimed = fixture.store.claim(&fixture.claim(&key, ClaimToken::random())).await.expect("an answer");
        assert!(matches!(claimed, Claim::Fresh { .. }), "{key}: {claimed:?}");
    }
}

#[tokio::test]
async fn accepted_events_and_completions_that_are_never_answered_open_no_more_connections_than_documented() {
    let (_server, fixture) = fixture().await;
    let running: Vec<_> = (0..ROUNDS).map(|n| (key(&format!("running.{n}")), ClaimToken::random())).collect();
    for (key, token) in &running {
        let claimed = fixture.store.claim(&ClaimRequest::new(key, *token, WEEK)).await.expect("an answer");
        assert_eq!(claimed, Claim::Fresh { attempt: Some(1) });
    }
    replica_goes(&fixture).await;
    let done = Completion::succeeded("200 OK", WEEK);
    for (round, (key, token)) in running.iter().enumerate() {
        let keys = keys(round);
        let accepted = join_all(keys.iter().map(|key| try_accept(&fixture.store, key)));
        let claim = fixture.claim(key, *token);
        let (accepted, completed) = join(accepted, fixture.store.complete(&claim, &done)).await;
        completed.expect_err("no answer");
        for accepted in accepted {
            accepted.expect_err("no answer");
        }
        let (claims, settles) = (committing(&fixture, "claims").await, committing(&fixture, "settles").await);
        assert!((1..=CLAIMS).contains(&claims), "round {round}: {claims} sessions");
        assert!((1..=SETTLES).contains(&settles), "round {round}: {settles} sessions");
    }
    replica_is_done_without(&fixture).await;
    for (key, token) in &running {
        let completed = fixture.store.complete(&fixture.claim(key, *token), &done).await;
        assert_eq!(completed.expect("an answer"), Hold::Held, "{key}: it may have been completed before");
    }
    eventually("what was accepted is there", async || {
        fixture.count("SELECT count(*) FROM events WHERE state = 'accepted'").await >= 1
    })
    .await;
    for key in (0..ROUNDS).flat_map(keys) {
        let accepted = accept(&fixture.store, &key).await;
        assert!([KEPT, ACCEPTED].contains(&accepted), "{key}: {accepted:?}");
    }
}
