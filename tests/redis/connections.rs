//! How connections are shared, and replaced; row 32.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use deadpool_redis::redis::cmd;
use deadpool_redis::{Config, Pool, PoolConfig, Runtime};
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Hold, RedisStore, Store, StoreErrorKind};
use tower_webhook::{EventKey, Outcome};

use crate::redis::fixture::{PATIENT, pool, pool_of, store};
use crate::redis::receiver::{Receiver, assert_unavailable, key};
use crate::support::servers::redis::RedisServer;

const LEASE: Duration = Duration::from_secs(30);

fn pool_of_one(server: &RedisServer) -> Pool {
    let config = Config { pool: Some(PoolConfig::new(1)), ..Config::from_url(server.url()) };
    config.create_pool(Some(Runtime::Tokio1)).expect("a pool")
}

#[tokio::test(flavor = "multi_thread")]
async fn row_32_exhausted_pool_is_a_503_within_the_timeout() {
    let server = RedisServer::start();
    let pool = pool_of_one(&server);
    let receiver = Receiver::hasty(pool.clone());
    let occupied = pool.get().await.expect("a connection");
    let asked = Instant::now();
    assert_unavailable(&receiver.deliver("evt_1").await);
    assert!(asked.elapsed() < Duration::from_secs(15), "deadpool itself would wait for ever");
    assert_eq!((receiver.handler.runs(), server.keys().len()), (0, 0));
    drop(occupied);
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    receiver.check(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_leaves_a_pool_of_one_to_others() {
    let server = RedisServer::start();
    let pool = pool_of_one(&server);
    let receiver = Receiver::with_pool(pool.clone());
    receiver.store.check().await.expect("a server that works");
    let mut own = tokio::time::timeout(Duration::from_secs(30), pool.get()).await.expect("free").expect("a connection");
    assert_eq!(
        receiver.deliver("evt_1").await.outcome,
        Some(Outcome::Completed),
        "while somebody else has the only one"
    );
    assert_eq!(cmd("DBSIZE").query_async::<usize>(&mut own).await.expect("an answer"), 1);
}

/// 64 deliveries at once, and two connections for all of them, before and after they break.
#[tokio::test(flavor = "multi_thread")]
async fn connections_are_shared_and_so_is_making_them_anew() {
    let server = RedisServer::start();
    let store = store(pool(&server));
    for round in 0..3 {
        let before = connections_made(&server);
        let claims = (0..64).map(|n| {
            let (store, key) = (store.clone(), EventKey::new("/hook", None, &format!("{round}-{n}")));
            tokio::spawn(async move { store.claim(&ClaimRequest::new(&key, ClaimToken::random(), LEASE)).await })
        });
        for claim in join_all(claims.collect::<Vec<_>>()).await {
            let claim = claim.expect("no panic");
            assert!(matches!(claim, Ok(Claim::Fresh { .. })), "a broken connection costs no delivery: {claim:?}");
        }
        // The one that asks is counted, too.
        assert_eq!(connections_made(&server), before + 2 + 1, "round {round}");
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
}

/// A server that closes every connection is asked ten times a second, whatever the traffic.
#[tokio::test(flavor = "multi_thread")]
async fn broken_server_is_not_hammered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = accepted.clone();
    let closing = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let store = RedisStore::builder(pool_of(&format!("redis://{address}/"))).connections(1).build();
    let begun = Instant::now();
    let claims = (0..50).map(|n| {
        let (store, event) = (store.clone(), key(&n.to_string()));
        tokio::spawn(async move {
            for _ in 0..5 {
                let claim = store.claim(&ClaimRequest::new(&event, ClaimToken::random(), LEASE)).await;
                assert_eq!(claim.expect_err("there is no server").kind(), StoreErrorKind::Unavailable);
            }
        })
    });
    for claimed in join_all(claims.collect::<Vec<_>>()).await {
        claimed.expect("no panic");
    }
    let most = begun.elapsed().as_millis() / 100 + 2;
    let accepted = accepted.load(Ordering::Relaxed);
    assert!(accepted as u128 <= most, "{accepted} connections in {:?} for 250 claims", begun.elapsed());
    closing.abort();
}

/// A renewal that is under way when the handler ends must not bring the claim back after the release.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_does_not_overtake_the_release_behind_it() {
    let server = RedisServer::start();
    let store = RedisStore::builder(pool(&server)).timeout(PATIENT).connections(4).build();
    for n in 0..500 {
        let (event, token) = (key(&n.to_string()), ClaimToken::random());
        let claim = ClaimRequest::new(&event, token, LEASE);
        assert!(matches!(store.claim(&claim).await, Ok(Claim::Fresh { .. })));
        if n % 10 == 0 {
            server.command(&["SCRIPT", "FLUSH"]);
        }
        let (renewed, released) = tokio::join!(store.renew(&claim), store.release(&event, token));
        assert_eq!((renewed.expect("an answer"), released.expect("an answer")), (Hold::Held, Hold::Held));
    }
    assert_eq!(server.keys().len(), 0);
}

/// Nothing arrives any more, and nothing says so: without a replacement, the network's own timeouts would decide.
#[tokio::test(flavor = "multi_thread")]
async fn connection_that_leads_nowhere_is_replaced() {
    let server = RedisServer::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (address, upstream) = (listener.local_addr().expect("an address"), server.address());
    let (lose, lost) = watch::channel(false);
    let network = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_until(lost.clone(), client, upstream));
        }
    });
    let receiver = Receiver::hasty(pool_of(&format!("redis://{address}/")));
    receiver.store.check().await.expect("a server that works");
    lose.send_replace(true);
    assert_unavailable(&receiver.deliver("evt_1").await);
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    receiver.settled().await;
    receiver.check(&server);
    network.abort();
}

/// Passes everything until it is `lost`; from then on, what comes from the client goes nowhere. A connection made later is not
/// affected.
async fn pass_until(mut lost: watch::Receiver<bool>, mut client: TcpStream, upstream: SocketAddr) {
    let mut server = TcpStream::connect(upstream).await.expect("a server");
    if *lost.borrow() {
        let _ = copy_bidirectional(&mut client, &mut server).await;
        return;
    }
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        _ = lost.wait_for(|lost| *lost) => {}
    }
    let mut nowhere = [0; 1024];
    while client.read(&mut nowhere).await.is_ok_and(|length| length > 0) {}
}

fn connections_made(server: &RedisServer) -> usize {
    let stats = server.command(&["INFO", "stats"]);
    let made = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    made.and_then(|made| made.trim().parse().ok()).expect("a number")
}
