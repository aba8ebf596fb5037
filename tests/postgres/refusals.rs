//! Rows 35 and 36: the server is there, and refuses.

use futures_util::future::{join, join_all};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Store};
use tower_webhook::{EventKey, Outcome};

use crate::postgres::fixture::{Fixture, LEASE, eventually, key, run_on};
use crate::postgres::receiver::{Receiver, assert_unavailable};
use crate::support::servers::postgres::{PostgresServer, Settings};

/// Every change of a row fails with this SQLSTATE, this many times.
async fn fail(fixture: &Fixture, code: &str, times: u32) {
    fixture
        .run(&format!(
            "DROP SEQUENCE IF EXISTS failures; CREATE SEQUENCE failures;
         CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('failures') <= {times} THEN RAISE EXCEPTION 'provoked' USING ERRCODE = '{code}'; END IF;
            RETURN NEW;
         END $$;
         CREATE OR REPLACE TRIGGER fail BEFORE INSERT OR UPDATE ON events FOR EACH ROW EXECUTE FUNCTION fail()"
        ))
        .await;
}

#[tokio::test]
async fn row_35_serialization_failures_are_retried_within_bounds() {
    let server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    let fixture = receiver.fixture(&server);
    for code in ["40001", "40P01"] {
        fail(&fixture, code, 4).await;
        let answer = receiver.deliver(&format!("evt_{code}")).await;
        assert_eq!(answer.outcome, Some(Outcome::Completed), "{code}");
    }
    assert_eq!(receiver.handler.runs(), 2);

    fail(&fixture, "40001", 1_000_000).await;
    assert_unavailable(&receiver.deliver("evt_never").await);
    receiver.settled().await;
    assert_eq!((receiver.handler.runs(), fixture.state(&key("evt_never")).await), (2, None));
    fail(&fixture, "40001", 0).await;
    assert_eq!(receiver.deliver("evt_never").await.outcome, Some(Outcome::Completed));
    receiver.check(&server).await;
}

/// A role whose transactions are REPEATABLE READ by default: two stores take over the same lapsed claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_35_another_default_isolation_changes_nothing() {
    for isolation in ["repeatable read", "serializable"] {
        let setting = format!("default_transaction_isolation={isolation}");
        let server = PostgresServer::start_with(Settings::default().set("fsync=off").set(&setting));
        let fixture = Fixture::on(&server).await;
        let stores = [fixture.store.clone(), fixture.another()];
        for round in 0..10 {
            let key = key(&round.to_string());
            for attempt in 1..=2 {
                let claims: Vec<_> = (0..32)
                    .map(|n| {
                        let (store, key) = (stores[n % 2].clone(), key.clone());
                        let claim = move || async move {
                            let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
                            store.claim(&claim).await.expect("an answer")
                        };
                        tokio::spawn(claim())
                    })
                    .collect();
                let claims = join_all(claims).await;
                let won = Claim::Fresh { attempt: Some(attempt) };
                assert_eq!(claims.iter().filter(|claim| *claim.as_ref().expect("no panic") == won).count(), 1);
                fixture.pass(2 * LEASE).await;
            }
        }
    }
}

/// A real deadlock: somebody's transaction and a batch insert the same two keys in opposite orders. Not every two keys share a batch,
/// so it takes some rounds.
#[tokio::test]
async fn row_35_deadlocked_batch_is_asked_again() {
    let server = PostgresServer::start_with(Settings::default().set("deadlock_timeout=50ms"));
    let fixture = Fixture::on(&server).await;
    let (mut theirs, watcher) = (server.connect().await, server.pool());
    run_on(&mut theirs, "SET deadlock_timeout = '1min'".to_owned()).await;
    for round in 0..20 {
        let (first, second) = (key(&format!("{round}.1")), key(&format!("{round}.2")));
        run_on(&mut theirs, "BEGIN".to_owned()).await;
        insert(&mut theirs, &fixture, &second).await;
        let (one, other) = (fixture.claim(&first, ClaimToken::random()), fixture.claim(&second, ClaimToken::random()));
        let claiming = join(fixture.store.claim(&one), fixture.store.claim(&other));
        let interfering = async {
            let waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            eventually("the batch waits", async || {
                !sqlx::query(waits).fetch_all(&watcher).await.expect("activity").is_empty()
            })
            .await;
            insert(&mut theirs, &fixture, &first).await;
            run_on(&mut theirs, "ROLLBACK".to_owned()).await;
        };
        let ((one, other), ()) = join(claiming, interfering).await;
        assert_eq!(one.expect("an answer"), Claim::Fresh { attempt: Some(1) });
        assert_eq!(other.expect("an answer"), Claim::Fresh { attempt: Some(1) });
        if server.log().contains("deadlock detected") {
            return;
        }
    }
    panic!("no deadlock in twenty rounds:\n{}", server.log());
}

async fn insert(theirs: &mut PgConnection, fixture: &Fixture, key: &EventKey) {
    let insert = fixture.about(
        "INSERT INTO events (key, state, token, lease_until, received_at, attempts, fingerprint)
         VALUES ($1, 'running', '\\x00', now(), now(), 1, 0) ON CONFLICT DO NOTHING",
    );
    sqlx::query(AssertSqlSafe(insert)).bind(key.as_str()).execute(theirs).await.expect("inserted");
}

#[tokio::test]
async fn row_36_too_many_connections_is_a_503_until_there_are_fewer() {
    let few =
        Settings::default().set("max_connections=4").set("superuser_reserved_connections=0").set("max_wal_senders=0");
    let server = PostgresServer::start_with(few);
    let receiver = Receiver::on(&server).await;
    let mut taken = Vec::new();
    while let Ok(connection) = PgConnection::connect_with(&server.options()).await {
        taken.push(connection);
    }
    assert_unavailable(&receiver.deliver("evt_1").await);
    receiver.settled().await;
    assert_eq!(receiver.handler.runs(), 0);
    for connection in taken {
        connection.close().await.expect("closed");
    }
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    receiver.check(&server).await;
}

/// The kernel refuses to let the server's files grow any further, which is what a full disk is to it: a short write.
#[tokio::test]
async fn row_36_full_disk_is_a_503_until_there_is_room() {
    let server = PostgresServer::start_with(Settings::default().largest_file_kib(16 * 1024 + 4));
    let receiver = Receiver::on(&server).await;
    let fixture = receiver.fixture(&server);
    let fill =
        "INSERT INTO webhook_events (key, state, token, lease_until, received_at, attempts, fingerprint, summary)
        SELECT 'filler ' || gen_random_uuid(), 'released', '\\x00', now(), now(), 1, 0, repeat('x', 1900)
          FROM generate_series(1, 100)";
    let full = loop {
        if let Err(error) = sqlx::query(fill).execute(&fixture.pool).await {
            break error;
        }
    };
    assert_eq!(full.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref(), Some("53100"), "{full}");
    // Smaller rows find gaps for a while.
    let tiny = fill.replace("1900", "10").replace("1, 100", "1, 1");
    while sqlx::query(AssertSqlSafe(&*tiny)).execute(&fixture.pool).await.is_ok() {}
    assert_unavailable(&receiver.deliver("evt_1").await);
    receiver.settled().await;
    assert_eq!((receiver.handler.runs(), fixture.state(&key("evt_1")).await), (0, None));
    fixture.run("TRUNCATE events").await;
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    receiver.check(&server).await;
}
