//! Rows 26 and 27: replicas that are waited for, promoted, and primaries that are demoted.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tower_webhook::Outcome;
use tower_webhook::store::{ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store, StoreErrorKind};

use crate::redis::fixture::{PATIENT, pool, pool_of, store};
use crate::redis::receiver::{Receiver, assert_unavailable, eventually, key};
use crate::support::checker::Ledger;
use crate::support::servers::redis::RedisServer;

/// A receiver that waits for a replica, and has done so.
async fn waiting(server: &RedisServer) -> Receiver {
    let store =
        RedisStore::builder(pool(server)).timeout(PATIENT).replicas(1).replica_timeout(Duration::from_secs(1)).build();
    let receiver = Receiver::patient(store, Ledger::default());
    receiver.deliver_until_acknowledged("evt_0").await;
    receiver.settled().await;
    receiver
}

/// Kills the primary, promotes the replica, and gives a receiver on it that keeps the same books.
fn fail_over(primary: &mut RedisServer, replica: &RedisServer, before: &Receiver) -> Receiver {
    primary.kill();
    replica.thaw();
    assert_eq!(replica.command(&["REPLICAOF", "NO", "ONE"]), "OK\n");
    Receiver::patient(store(pool(replica)), before.ledger.clone())
}

/// Nothing reaches the replica any more, not even what would wait for it in a buffer.
fn cut_off(primary: &RedisServer, replica: &RedisServer) {
    replica.freeze();
    assert_eq!(primary.command(&["CLIENT", "KILL", "TYPE", "replica"]), "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_26_confirmed_event_survives_the_failover() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    let receiver = waiting(&primary).await;
    for n in 1..20 {
        receiver.deliver_until_acknowledged(&format!("evt_{n}")).await;
    }
    receiver.settled().await;
    let after = fail_over(&mut primary, &replica, &receiver);
    for n in 0..20 {
        assert_eq!(after.deliver(&format!("evt_{n}")).await.outcome, Some(Outcome::Duplicate));
    }
    after.check(&replica);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_26_unconfirmed_claim_is_a_503_and_runs_after_the_failover() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    let receiver = waiting(&primary).await;
    cut_off(&primary, &replica);
    assert_unavailable(&receiver.deliver("evt_1").await);
    receiver.settled().await;
    assert_eq!((receiver.handler.runs(), primary.keys().len()), (1, 1), "the claim is given back");
    let after = fail_over(&mut primary, &replica, &receiver);
    assert_eq!(after.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    after.check(&replica);
}

/// What is not waited for may be lost, and the documentation says so.
#[tokio::test(flavor = "multi_thread")]
async fn row_26_event_that_no_replica_was_waited_for_runs_again() {
    let mut primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    let receiver = Receiver::on(&primary);
    cut_off(&primary, &replica);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    let after = fail_over(&mut primary, &replica, &receiver);
    assert_eq!(after.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs() + after.handler.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_26_unconfirmed_completion_is_repeated_until_it_is_confirmed() {
    let primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    let receiver = waiting(&primary).await;
    receiver.handler.hold();
    let first = receiver.spawn("evt_1");
    receiver.handler.started(2).await;
    replica.freeze();
    receiver.handler.go();
    let answer = first.await.expect("no panic");
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::CompletionPending)));
    // The second time on connections that have written nothing yet.
    for _ in 0..2 {
        let waited = calls(&primary, "wait");
        eventually("repeated twice", async || calls(&primary, "wait") >= waited + 2).await;
        assert_eq!(receiver.layer.drain_handle().running(), 1, "still pending");
        primary.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    replica.thaw();
    receiver.settled().await;
    replica.wait_until(&["DBSIZE"], "2");
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    receiver.check(&primary);
}

/// From Redis 7.2 on `WAIT` is about what its connection wrote, and one that only found the completion wrote nothing.
#[tokio::test(flavor = "multi_thread")]
async fn row_26_repeated_completion_is_written_again_if_replicas_are_to_have_it() {
    let primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    let waiting = RedisStore::builder(pool(&primary))
        .timeout(PATIENT)
        .replicas(1)
        .replica_timeout(Duration::from_secs(30))
        .build();
    for (store, id, writes) in [(waiting, "evt_1", 1), (store(pool(&primary)), "evt_2", 0)] {
        let event = key(id);
        let claim = ClaimRequest::new(&event, ClaimToken::random(), Duration::from_secs(60));
        store.claim(&claim).await.map(drop).expect("a claim");
        let complete = async |summary: &str, retention| {
            let hold = store.complete(&claim, &Completion::succeeded(summary, Duration::from_secs(retention))).await;
            assert_eq!(hold.expect("an answer"), Hold::Held);
        };
        complete("the first", 3600).await;
        let (record, before) = (stored(&primary, id), replicated_writes(&primary, &replica, id));
        complete("the second", 7200).await;
        assert_eq!(replicated_writes(&primary, &replica, id), before + 1 + writes, "{id}, and the marker");
        assert_eq!(stored(&primary, id), record, "as it was, and for as long");
    }
}

/// What is under the event's key, and when it ends.
fn stored(server: &RedisServer, id: &str) -> [String; 2] {
    let key = format!("tower-webhook:{}", key(id).as_str());
    ["GET", "PEXPIRETIME"].map(|command| server.command(&[command, &key]))
}

/// How many writes have come to the replica, a marker behind all others among them.
fn replicated_writes(primary: &RedisServer, replica: &RedisServer, id: &str) -> usize {
    let marker = format!("{id}-{}", calls(primary, "set"));
    primary.command(&["SET", "marker", &marker]);
    replica.wait_until(&["GET", "marker"], &marker);
    calls(replica, "set")
}

/// How often a server has carried out this command.
fn calls(server: &RedisServer, command: &str) -> usize {
    let (stats, name) = (server.command(&["INFO", "commandstats"]), format!("cmdstat_{command}:calls="));
    let calls = stats.lines().find_map(|line| line.strip_prefix(&name)).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

/// On a shared connection one `WAIT` would hold up all that is behind it.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_replicas_does_not_hold_up_renewals() {
    let primary = RedisServer::start();
    let wait = Duration::from_secs(20);
    let store =
        RedisStore::builder(pool(&primary)).timeout(PATIENT).replicas(1).replica_timeout(wait).connections(1).build();
    let (held, lease) = (key("evt_held"), Duration::from_secs(60));
    let renewed = ClaimRequest::new(&held, ClaimToken::random(), lease);
    let asked = Instant::now();
    let claims = (0..4).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let key = key(&n.to_string());
            let claim = store.claim(&ClaimRequest::new(&key, ClaimToken::random(), lease)).await;
            claim.expect_err("there is no replica").kind()
        })
    });
    let claims: Vec<_> = claims.collect();
    primary.wait_until(&["INFO", "clients"], "blocked_clients:4");
    for _ in 0..10 {
        store.renew(&renewed).await.map(drop).expect("an answer");
    }
    assert!(asked.elapsed() < wait, "before any of the claims were answered");
    primary.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    claims.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The server goes on waiting for replicas on that connection, and carries out nothing that is behind.
#[tokio::test(flavor = "multi_thread")]
async fn claim_whose_caller_left_does_not_hold_up_the_next() {
    let primary = RedisServer::start();
    let store = RedisStore::builder(pool(&primary))
        .timeout(PATIENT)
        .replicas(1)
        .replica_timeout(Duration::from_secs(600))
        .build();
    for waiting in 1..=3 {
        let store = store.clone();
        let claim = tokio::spawn(async move {
            let event = key(&waiting.to_string());
            store.claim(&ClaimRequest::new(&event, ClaimToken::random(), Duration::from_secs(60))).await
        });
        primary.wait_until(&["INFO", "clients"], &format!("blocked_clients:{waiting}\r"));
        claim.abort();
        assert!(claim.await.is_err_and(|error| error.is_cancelled()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_without_enough_replicas_is_an_error_that_counts_them() {
    let primary = RedisServer::start();
    let store = RedisStore::builder(pool(&primary))
        .timeout(PATIENT)
        .replicas(2)
        .replica_timeout(Duration::from_millis(50))
        .build();
    let (event, token) = (key("evt_1"), ClaimToken::random());
    let claim = ClaimRequest::new(&event, token, Duration::from_secs(30));
    let error = store.claim(&claim).await.expect_err("no replicas");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let source = std::error::Error::source(&error).expect("a source").to_string();
    assert!(source.contains("0 of the 2 replicas"), "{source}");
    assert_eq!(primary.keys().len(), 0, "the claim is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_27_demoted_server_is_a_503_until_it_is_the_primary_again() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let receiver = Receiver::on(&server);
    assert_eq!(receiver.deliver("evt_0").await.outcome, Some(Outcome::Completed));
    let port = other.address().port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &port]);
    for _ in 0..3 {
        assert_unavailable(&receiver.deliver("evt_1").await);
    }
    assert_eq!(receiver.handler.runs(), 1);
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    receiver.settled().await;
    receiver.check(&server);
}

/// An address that leads to the primary, whichever that is, as a managed Redis has: a connection made before the failover leads
/// to the old one for as long as it lasts.
#[tokio::test(flavor = "multi_thread")]
async fn row_27_demoted_server_is_left_for_the_new_primary() {
    let old = RedisServer::start();
    let new = RedisServer::replica_of(&old);
    let name = Name::of(&old).await;
    let pool = pool_of(&format!("redis://{}/", name.address));
    // Others use the pool, too, and leave connections to the old primary in it.
    let idle = [pool.get().await, pool.get().await, pool.get().await];
    drop(idle);
    let receiver = Receiver::with_pool(pool);
    assert_eq!(receiver.deliver("evt_0").await.outcome, Some(Outcome::Completed));
    new.wait_until(&["DBSIZE"], "1");
    new.command(&["REPLICAOF", "NO", "ONE"]);
    name.leads_to(&new);
    old.command(&["REPLICAOF", "127.0.0.1", &new.address().port().to_string()]);
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.deliver_until_acknowledged("evt_0").await.outcome, Some(Outcome::Duplicate));
    assert_eq!(receiver.handler.runs(), 2);
    receiver.settled().await;
    receiver.check(&new);
}

/// A name that is resolved when a connection is made.
struct Name {
    address: std::net::SocketAddr,
    target: tokio::sync::watch::Sender<std::net::SocketAddr>,
}

impl Name {
    async fn of(server: &RedisServer) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (target, resolve) = tokio::sync::watch::channel(server.address());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let upstream = *resolve.borrow();
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(upstream).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { address, target }
    }

    fn leads_to(&self, server: &RedisServer) {
        self.target.send_replace(server.address());
    }
}
