//! A Sentinel that fails over: the store follows it to the new primary.

use deadpool_redis::Runtime;
use deadpool_redis::sentinel::{Config, Pool, SentinelServerType};
use tower_webhook::Outcome;

use crate::redis::receiver::Receiver;
use crate::support::servers::redis::RedisServer;

pub(crate) fn pool(sentinel: &RedisServer) -> Pool {
    let config = Config::from_urls([sentinel.url()], "primary".to_owned(), SentinelServerType::Master);
    config.create_pool(Some(Runtime::Tokio1)).expect("a pool")
}

struct Setup {
    primary: RedisServer,
    replica: RedisServer,
    sentinel: RedisServer,
    receiver: Receiver,
}

/// With one event completed, on both servers.
async fn setup() -> Setup {
    let primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    let sentinel = RedisServer::sentinel_of(&primary);
    let receiver = Receiver::hasty(pool(&sentinel));
    assert_eq!(receiver.deliver("evt_0").await.outcome, Some(Outcome::Completed));
    replica.wait_until(&["DBSIZE"], "1");
    Setup { primary, replica, sentinel, receiver }
}

async fn assert_follows(setup: &Setup) {
    let receiver = &setup.receiver;
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.deliver_until_acknowledged("evt_0").await.outcome, Some(Outcome::Duplicate));
    assert_eq!(receiver.handler.runs(), 2);
    receiver.settled().await;
    assert_eq!(setup.replica.command(&["INFO", "replication"]).lines().nth(1), Some("role:master"));
    assert_eq!(setup.replica.keys().len(), 2);
    receiver.check(&setup.replica);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_primary_is_left_for_the_one_that_the_sentinel_promotes() {
    let mut setup = setup().await;
    setup.primary.kill();
    setup.replica.wait_until(&["INFO", "replication"], "role:master");
    assert_follows(&setup).await;
}

/// The old primary lives on and answers, with READONLY.
#[tokio::test(flavor = "multi_thread")]
async fn row_27_demoted_primary_is_left_for_the_one_that_the_sentinel_promotes() {
    let setup = setup().await;
    setup.sentinel.wait_until(&["SENTINEL", "FAILOVER", "primary"], "OK");
    setup.replica.wait_until(&["INFO", "replication"], "role:master");
    setup.primary.wait_until(&["INFO", "replication"], "role:slave");
    assert_follows(&setup).await;
}

/// It answers nothing, and its connections stay open.
#[tokio::test(flavor = "multi_thread")]
async fn frozen_primary_is_left_for_the_one_that_the_sentinel_promotes() {
    let setup = setup().await;
    setup.primary.freeze();
    setup.replica.wait_until(&["INFO", "replication"], "role:master");
    assert_follows(&setup).await;
}
