//! Row 29: the server is at its `maxmemory`. It takes no new event, and whatever ends one.

use std::time::Duration;

use tower_webhook::Outcome;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store};

use crate::redis::fixture::{PATIENT, cluster_pool, pool, pool_of, store};
use crate::redis::old_server::OldServer;
use crate::redis::receiver::{Receiver, assert_refused, assert_unavailable, key};
use crate::support::servers::redis::{RedisCluster, RedisServer};

const LEASE: Duration = Duration::from_secs(30);

fn fill(server: &RedisServer) {
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
}

fn make_room(server: &RedisServer) {
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
}

/// The handler has succeeded: were its completion refused, its claim would end, and another instance would run the event again.
#[tokio::test(flavor = "multi_thread")]
async fn row_29_full_server_refuses_claims_and_stores_completions() {
    let server = RedisServer::start();
    let receiver = Receiver::on(&server);
    let elsewhere = Receiver::patient(store(pool(&server)), receiver.ledger.clone());
    assert_eq!(receiver.deliver("evt_0").await.outcome, Some(Outcome::Completed));
    receiver.handler.hold();
    let running = receiver.spawn("evt_2");
    receiver.handler.started(2).await;
    fill(&server);
    assert_refused(&receiver, "OOM").await;
    assert_unavailable(&receiver.deliver("evt_1").await);
    // Redis refuses every command that might write, and so even what it knows.
    assert_unavailable(&elsewhere.deliver("evt_0").await);
    receiver.handler.go();
    assert_eq!(running.await.expect("no panic").outcome, Some(Outcome::Completed), "stored, though the server is full");
    receiver.handler.hold_no_more();
    let record = server.command(&["GET", &format!("tower-webhook:{}", key("evt_2"))]);
    assert!(record.starts_with("c:"), "{record}");
    make_room(&server);
    assert_eq!(elsewhere.deliver("evt_2").await.outcome, Some(Outcome::Duplicate), "no instance runs it again");
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!((receiver.handler.runs(), elsewhere.handler.runs()), (3, 0));
    receiver.check(&server);
}

/// The scripts may not be known to the server yet: a restart forgets them.
#[tokio::test]
async fn full_server_renews_releases_and_completes_whatever_scripts_it_knows() {
    let server = RedisServer::start();
    let _replica = RedisServer::replica_of(&server);
    let plain = store(pool(&server));
    let replicated = RedisStore::builder(pool(&server))
        .timeout(PATIENT)
        .replicas(1)
        .replica_timeout(Duration::from_secs(30))
        .build();
    for (n, store) in [plain, replicated].iter().enumerate() {
        let (kept, given_up) = (key(&format!("kept_{n}")), key(&format!("given_up_{n}")));
        let (kept, given_up) = (
            ClaimRequest::new(&kept, ClaimToken::random(), LEASE),
            ClaimRequest::new(&given_up, ClaimToken::random(), LEASE),
        );
        assert!(matches!(store.claim(&kept).await, Ok(Claim::Fresh { .. })));
        assert!(matches!(store.claim(&given_up).await, Ok(Claim::Fresh { .. })));
        fill(&server);
        let completion = Completion::succeeded("OK", LEASE);
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(store.renew(&kept).await.expect("an answer"), Hold::Held);
        assert_eq!(store.release(given_up.key, given_up.token).await.expect("an answer"), Hold::Held);
        for _ in 0..2 {
            let completed = store.complete(&given_up, &completion).await;
            assert_eq!(completed.expect("an answer"), Hold::Held, "though its claim is gone");
        }
        let _ = store.claim(&kept).await.expect_err("its own claim is given no new lease, either");
        assert_eq!(store.complete(&kept, &completion).await.expect("an answer"), Hold::Held);
        make_room(&server);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_cluster_stores_completions() {
    let cluster = RedisCluster::start();
    let receiver = Receiver::with_pool(cluster_pool(&cluster));
    receiver.handler.hold();
    let running: Vec<_> = (0..9).map(|n| receiver.spawn(&format!("evt_{n}"))).collect();
    receiver.handler.started(9).await;
    cluster.nodes.iter().for_each(fill);
    assert_unavailable(&receiver.deliver("evt_late").await);
    (0..9).for_each(|_| receiver.handler.go());
    for delivery in running {
        assert_eq!(delivery.await.expect("no panic").outcome, Some(Outcome::Completed));
    }
}

/// Redis 6 knows no flags, and refuses whatever writes. It does not refuse deletions.
#[tokio::test(flavor = "multi_thread")]
async fn full_old_server_stores_completions_when_it_has_room() {
    let old = OldServer::start().await;
    let receiver = Receiver::with_pool(pool_of(&old.url()));
    let given_up = key("evt_given_up");
    let given_up = ClaimRequest::new(&given_up, ClaimToken::random(), LEASE);
    assert!(matches!(receiver.store.claim(&given_up).await, Ok(Claim::Fresh { .. })));
    receiver.handler.hold();
    let running = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    fill(&old.server);
    receiver.handler.go();
    assert_eq!(running.await.expect("no panic").outcome, Some(Outcome::CompletionPending));
    assert_eq!(receiver.store.release(given_up.key, given_up.token).await.expect("an answer"), Hold::Held);
    make_room(&old.server);
    receiver.settled().await;
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!(receiver.handler.runs(), 1);
    receiver.check(&old.server);
}

#[tokio::test]
async fn check_of_a_full_server_is_a_warning_and_no_error() {
    let server = RedisServer::with(&["--appendonly", "yes"]);
    server.command(&["ACL", "SETUSER", "silent", "on", ">pw", "~*", "+@all", "-info", "-config"]);
    let hidden = pool_of(&format!("redis://silent:pw@{}/", server.address()));
    fill(&server);
    for (pool, warnings) in [(pool(&server), 1), (hidden, 3)] {
        let store = store(pool);
        let report = store.check().await.expect("a report");
        let of_memory = report.warnings.iter().filter(|warning| warning.contains("at its maxmemory")).count();
        assert_eq!((of_memory, report.warnings.len()), (1, warnings), "{report:?}");
        assert_eq!(server.keys().len(), 0, "nothing of the check is left");
    }
    make_room(&server);
    let report = store(pool(&server)).check().await.expect("a report");
    assert_eq!(report.warnings, Vec::<String>::new());
}

#[tokio::test]
async fn check_of_a_full_old_server_is_a_warning_and_no_error() {
    let old = OldServer::start().await;
    fill(&old.server);
    let report = store(pool_of(&old.url())).check().await.expect("a report");
    assert!(report.warnings.iter().any(|warning| warning.contains("at its maxmemory")), "{report:?}");
}
