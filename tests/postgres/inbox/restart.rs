//! The server is killed: what was acknowledged is there.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::Row;
use tower_webhook::store::{Claim, PostgresStore};

use super::queue::{ACCEPTED, KEPT, accept, lease, try_accept};
use crate::postgres::fixture::{Fixture, eventually, key};
use crate::support::servers::postgres::PostgresServer;

#[tokio::test]
async fn accepted_events_survive_a_kill_right_after_the_answer() {
    let mut server = PostgresServer::start();
    let fixture = Fixture::on(&server).await;
    let keys: Vec<_> = (0..100).map(|n| key(&n.to_string())).collect();
    for answer in join_all(keys.iter().map(|key| accept(&fixture.store, key))).await {
        assert_eq!(answer, KEPT);
    }
    server.kill();
    server.restart();
    assert_eq!(accept(&fixture.store, &keys[0]).await, ACCEPTED, "connected again by itself");
    let leased: BTreeSet<_> = lease(&fixture.store, 200).await.into_iter().map(|leased| leased.key).collect();
    assert_eq!(leased, keys.into_iter().collect());
}

/// No acknowledgement without a row; a row without an acknowledgement is the sender's to find accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn server_killed_during_acceptances_has_every_event_that_was_acknowledged() {
    let mut server = PostgresServer::start();
    let fixture = Fixture::on(&server).await;
    for round in 0..3 {
        let kept = Arc::new(Mutex::new(BTreeSet::new()));
        let senders: Vec<_> = (0..16)
            .map(|sender| tokio::spawn(send(fixture.store.clone(), format!("{round}.{sender}"), kept.clone())))
            .collect();
        eventually("some are acknowledged", async || kept.lock().expect("no panic").len() > 200).await;
        server.kill();
        for sender in senders {
            sender.await.expect("no panic");
        }
        server.restart();
        eventually("connected again", async || sqlx::query("SELECT 1").execute(&fixture.pool).await.is_ok()).await;
        let sql = fixture.about("SELECT key FROM events WHERE state = 'accepted' AND body IS NOT NULL");
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&fixture.pool).await.expect("the table");
        let there: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
        let kept = kept.lock().expect("no panic");
        assert_eq!(kept.difference(&there).next(), None, "of {} acknowledged, {} are there", kept.len(), there.len());
    }
}

/// Accepts one event after the other until it fails.
async fn send(store: PostgresStore, sender: String, kept: Arc<Mutex<BTreeSet<String>>>) {
    for n in 0.. {
        let key = key(&format!("{sender}.{n}"));
        match tokio::time::timeout(Duration::from_secs(2), try_accept(&store, &key)).await {
            Ok(Ok(Claim::Fresh { .. })) => _ = kept.lock().expect("no panic").insert(key.as_str().to_owned()),
            Ok(Ok(other)) => panic!("{other:?}"),
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
