//! Stores for the conformance suite, on servers whose clock is moved by shifting what they hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Client, cmd};
use deadpool_redis::{Config, Pool, Runtime, cluster};
use tower_webhook::store::RedisStore;
use tower_webhook::store::redis::RedisPool;
use tower_webhook::testing::conformance::Harness;

use crate::support::servers::redis::{RedisCluster, RedisServer};

/// Brings the end of everything nearer: of keys, which are deleted if it is passed, and of what an inbox has a time for.
const SHIFT: &str = "local shift = tonumber(ARGV[2])
local function earlier(time) return string.format('%d', time - shift) end
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local left, kind = redis.call('PTTL', key), redis.call('TYPE', key).ok
  if left >= 0 and left <= shift then
    redis.call('DEL', key)
  elseif left >= 0 then
    redis.call('PEXPIRE', key, earlier(left))
  elseif kind == 'zset' and not string.find(key, 'inbox:dead', 1, true) then
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -shift, member) end
  elseif kind == 'string' and not string.find(key, 'inbox:', 1, true) then
    -- Since when an event is due, which its record knows.
    local head, time, rest = string.match(redis.call('GET', key), '^(a:.-:@%d+ %d+ )(%d+) (.*)$')
    if head then
      rest = string.gsub(rest, '^(r%a* )(%d+)$', function(mode, due) return mode .. earlier(due) end)
      redis.call('SET', key, head .. earlier(time) .. ' ' .. rest)
    end
  end
end";

/// How long a server may take that answers at all.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

const CLEAR: &str = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";

pub(crate) fn pool(server: &RedisServer) -> Pool {
    pool_of(&server.url())
}

pub(crate) fn pool_of(url: &str) -> Pool {
    Config::from_url(url).create_pool(Some(Runtime::Tokio1)).expect("a pool")
}

pub(crate) fn cluster_pool(cluster: &RedisCluster) -> cluster::Pool {
    cluster::Config::from_urls(cluster.urls()).create_pool(Some(Runtime::Tokio1)).expect("a pool")
}

/// A store that has time enough on a busy machine.
pub(crate) fn store(pool: impl Into<RedisPool>) -> RedisStore {
    RedisStore::builder(pool).timeout(PATIENT).build()
}

/// Gives every check a store under a prefix of its own, and empties the last one.
pub(crate) struct Fixture {
    pool: RedisPool,
    nodes: Vec<MultiplexedConnection>,
    name: String,
    stores: AtomicUsize,
    replicas: u32,
    completed_bodies: Option<Duration>,
}

impl Fixture {
    /// `nodes` are the servers that `pool` leads to; `name` is this fixture's own.
    pub(crate) async fn new(pool: impl Into<RedisPool>, nodes: &[RedisServer], name: &str) -> Self {
        let mut connections = Vec::new();
        for node in nodes {
            let client = Client::open(node.url()).expect("a URL");
            let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
            connection.set_response_timeout(Duration::from_secs(60));
            connections.push(connection);
        }
        let (pool, name) = (pool.into(), name.to_owned());
        Self { pool, nodes: connections, name, stores: AtomicUsize::new(0), replicas: 0, completed_bodies: None }
    }

    /// The same, with stores that wait for so many replicas.
    pub(crate) fn waiting_for(self, replicas: u32) -> Self {
        Self { replicas, ..self }
    }

    /// The same, with stores that keep completed bodies for so long.
    pub(crate) fn keeping_bodies(self, time: Duration) -> Self {
        Self { completed_bodies: Some(time), ..self }
    }

    /// Another, on the same servers.
    pub(crate) fn another(&self, name: &str) -> Self {
        let (pool, nodes, name) = (self.pool.clone(), self.nodes.clone(), name.to_owned());
        let (stores, replicas, completed_bodies) = (AtomicUsize::new(0), self.replicas, self.completed_bodies);
        Self { pool, nodes, name, stores, replicas, completed_bodies }
    }

    async fn evaluate(&self, script: &str, milliseconds: u128) {
        for node in &self.nodes {
            let pattern = format!("{}.*", self.name);
            let mut shift = cmd("EVAL");
            shift.arg(script).arg(0).arg(pattern).arg(milliseconds.to_string());
            shift.exec_async(&mut node.clone()).await.expect("a server that answers");
        }
    }
}

impl Harness for Fixture {
    type Store = RedisStore;

    async fn store(&self) -> RedisStore {
        self.evaluate(CLEAR, 0).await;
        let prefix = format!("{}.{}:", self.name, self.stores.fetch_add(1, Ordering::Relaxed));
        // A busy machine is not what these checks are about, and one connection per store is enough to make.
        let store = RedisStore::builder(self.pool.clone()).prefix(prefix).connections(1);
        let store = match self.completed_bodies {
            Some(time) => store.keep_completed_bodies(time),
            None => store,
        };
        store.timeout(Duration::from_secs(30)).replicas(self.replicas).replica_timeout(Duration::from_secs(20)).build()
    }

    async fn pass(&self, time: Duration) {
        self.evaluate(SHIFT, time.as_millis()).await;
    }
}
