//! Commits that wait for a replica that is away. No timeout of the server's ends them, nor does closing their connections.

use futures_util::future::{join, join_all};
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, PostgresStore, Store};

use crate::bed::{Bed, WEEK, eventually, key};
use crate::inbox_desk::{ACCEPTED, KEPT, accept, try_accept};
use crate::support::servers::postgres::{PostgresServer, Settings};

/// How many connections the documentation of the store names, at the most: for claims, and for whatever ends them.
const CLAIMS: i64 = 6;
const SETTLES: i64 = 3;

/// Twice as often as there are connections.
const ROUNDS: usize = 6;

/// A server without a replica, and a store with everything as it is by default.
async fn bed() -> (PostgresServer, Bed) {
    let server = PostgresServer::start_with(Settings::default().set("fsync=off"));
    let bed = Bed::on(&server).await;
    let store = PostgresStore::builder(bed.pool.clone()).table(&bed.table).expect("a name").purge_by_hand().build();
    (server, Bed { store, ..bed })
}

/// How many sessions of the store's wait to commit.
async fn committing(bed: &Bed, name: &str) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name";
    bed.count(&format!("{sql} = 'tower-webhook {name}'")).await
}

/// From now on every commit waits.
async fn replica_goes(bed: &Bed) {
    bed.run("CREATE TABLE probe (n int)").await;
    bed.run("ALTER SYSTEM SET synchronous_standby_names = 'nowhere'").await;
    bed.run("SELECT pg_reload_conf()").await;
    let pool = bed.pool.clone();
    let probes = tokio::spawn(async move {
        // The server takes a moment to heed its configuration. The first that has to wait is the last.
        while sqlx::raw_sql("INSERT INTO probe VALUES (1)").execute(&pool).await.is_ok() {}
    });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    eventually("commits wait", async || bed.count(waiting).await == 1).await;
    probes.abort();
}

async fn replica_is_done_without(bed: &Bed) {
    bed.run("ALTER SYSTEM RESET synchronous_standby_names").await;
    bed.run("SELECT pg_reload_conf()").await;
}

/// So many that each of the store's connections for claims has some.
fn keys(round: usize) -> Vec<EventKey> {
    (0..16).map(|n| key(&format!("{round}.{n}"))).collect()
}

#[tokio::test]
async fn claims_that_are_never_answered_open_no_more_connections_than_documented_and_are_released_in_the_end() {
    let (_server, bed) = bed().await;
    replica_goes(&bed).await;
    for round in 0..ROUNDS {
        let keys = keys(round);
        let claims = keys.iter().map(async |key| bed.store.claim(&bed.claim(key, ClaimToken::random())).await);
        for claim in join_all(claims).await {
            claim.expect_err("no answer");
        }
        let committing = committing(&bed, "claims").await;
        assert!((1..=CLAIMS).contains(&committing), "round {round}: {committing} sessions");
    }
    let error = bed.store.claim(&bed.claim(&key("last"), ClaimToken::random())).await.expect_err("no answer");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert!(cause.contains("pg_stat_activity"), "{cause}");
    let all = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tower-webhook claims'";
    eventually("there are no others", async || bed.count(all).await <= CLAIMS).await;

    replica_is_done_without(&bed).await;
    eventually("the late claims are released", async || {
        bed.count("SELECT count(*) FROM events WHERE state = 'released'").await >= 1
            && bed.count("SELECT count(*) FROM events WHERE state <> 'released'").await == 0
    })
    .await;
    for key in (0..ROUNDS).flat_map(keys) {
        let claimed = bed.store.claim(&bed.claim(&key, ClaimToken::random())).await.expect("an answer");
        assert!(matches!(claimed, Claim::Fresh { .. }), "{key}: {claimed:?}");
    }
}

#[tokio::test]
async fn accepted_events_and_completions_that_are_never_answered_open_no_more_connections_than_documented() {
    let (_server, bed) = bed().await;
    let running: Vec<_> = (0..ROUNDS).map(|n| (key(&format!("running.{n}")), ClaimToken::random())).collect();
    for (key, token) in &running {
        let claimed = bed.store.claim(&ClaimRequest::new(key, *token, WEEK)).await.expect("an answer");
        assert_eq!(claimed, Claim::Fresh { attempt: Some(1) });
    }
    replica_goes(&bed).await;
    let done = Completion::succeeded("200 OK", WEEK);
    for (round, (key, token)) in running.iter().enumerate() {
        let keys = keys(round);
        let accepted = join_all(keys.iter().map(|key| try_accept(&bed.store, key)));
        let claim = bed.claim(key, *token);
        let (accepted, completed) = join(accepted, bed.store.complete(&claim, &done)).await;
        completed.expect_err("no answer");
        for accepted in accepted {
            accepted.expect_err("no answer");
        }
        let (claims, settles) = (committing(&bed, "claims").await, committing(&bed, "settles").await);
        assert!((1..=CLAIMS).contains(&claims), "round {round}: {claims} sessions");
        assert!((1..=SETTLES).contains(&settles), "round {round}: {settles} sessions");
    }
    replica_is_done_without(&bed).await;
    for (key, token) in &running {
        let completed = bed.store.complete(&bed.claim(key, *token), &done).await;
        assert_eq!(completed.expect("an answer"), Hold::Held, "{key}: it may have been completed before");
    }
    eventually("what was accepted is there", async || {
        bed.count("SELECT count(*) FROM events WHERE state = 'accepted'").await >= 1
    })
    .await;
    for key in (0..ROUNDS).flat_map(keys) {
        let accepted = accept(&bed.store, &key).await;
        assert!([KEPT, ACCEPTED].contains(&accepted), "{key}: {accepted:?}");
    }
}
