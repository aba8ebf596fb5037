//! Stores for the conformance suite, on servers whose clock is moved by shifting what they hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Client, cmd};
use deadpool_redis::{Config, Pool, Runtime, cluster};
use tower_webhook::store::RedisStore;
use tower_webhook::store::redis::RedisPool;
use tower_webhook::testing::conformance::Harness;

use crate::support::redis_server::{RedisCluster, RedisServer};

/// Brings the end of every key nearer, and deletes those that it passes.
const SHIFT: &str = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local left = redis.call('PTTL', key) - ARGV[2]
  if left > 0 then redis.call('PEXPIRE', key, string.format('%d', left)) else redis.call('DEL', key) end
end";

const FOREVER: &str = "4000000000000";

pub(crate) fn pool(server: &RedisServer) -> Pool {
    pool_of(&server.url())
}

pub(crate) fn pool_of(url: &str) -> Pool {
    Config::from_url(url).create_pool(Some(Runtime::Tokio1)).expect("a pool")
}

pub(crate) fn cluster_pool(cluster: &RedisCluster) -> cluster::Pool {
    cluster::Config::from_urls(cluster.urls()).create_pool(Some(Runtime::Tokio1)).expect("a pool")
}

/// Gives every check a store under a prefix of its own, and empties the last one.
pub(crate) struct Shifting {
    pool: RedisPool,
    nodes: Vec<MultiplexedConnection>,
    name: String,
    stores: AtomicUsize,
    replicas: u32,
}

impl Shifting {
    /// `nodes` are the servers that `pool` leads to; `name` is this harness's own.
    pub(crate) async fn new(pool: impl Into<RedisPool>, nodes: &[RedisServer], name: &str) -> Self {
        let mut connections = Vec::new();
        for node in nodes {
            let client = Client::open(node.url()).expect("a URL");
            let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
            connection.set_response_timeout(Duration::from_secs(60));
            connections.push(connection);
        }
        let (pool, name) = (pool.into(), name.to_owned());
        Self { pool, nodes: connections, name, stores: AtomicUsize::new(0), replicas: 0 }
    }

    /// The same, with stores that wait for so many replicas.
    pub(crate) fn waiting_for(self, replicas: u32) -> Self {
        Self { replicas, ..self }
    }

    /// Another, on the same servers.
    pub(crate) fn another(&self, name: &str) -> Self {
        let (pool, nodes) = (self.pool.clone(), self.nodes.clone());
        Self { pool, nodes, name: name.to_owned(), stores: AtomicUsize::new(0), replicas: self.replicas }
    }

    async fn shift(&self, milliseconds: &str) {
        for node in &self.nodes {
            let pattern = format!("{}.*", self.name);
            let mut shift = cmd("EVAL");
            shift.arg(SHIFT).arg(0).arg(pattern).arg(milliseconds);
            shift.exec_async(&mut node.clone()).await.expect("a server that answers");
        }
    }
}

impl Harness for Shifting {
    type Store = RedisStore;

    async fn store(&self) -> RedisStore {
        self.shift(FOREVER).await;
        let prefix = format!("{}.{}:", self.name, self.stores.fetch_add(1, Ordering::Relaxed));
        // A busy machine is not what these checks are about, and one connection per store is enough to make.
        let store = RedisStore::builder(self.pool.clone()).prefix(prefix).connections(1);
        store.timeout(Duration::from_secs(30)).replicas(self.replicas).replica_timeout(Duration::from_secs(20)).build()
    }

    async fn pass(&self, time: Duration) {
        self.shift(&time.as_millis().to_string()).await;
    }
}
