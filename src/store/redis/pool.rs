use std::fmt;

use deadpool_redis::cluster::ClusterConnection;
use deadpool_redis::redis::aio::{ConnectionLike, MultiplexedConnection};
use deadpool_redis::redis::{Cmd, Pipeline, RedisFuture, Value};
use deadpool_redis::{Pool, PoolError, cluster, sentinel};

/// The pool that a [`RedisStore`](super::RedisStore) takes its connections from: any of deadpool-redis, for one server,
/// for a Cluster, or for the primary that a Sentinel names.
#[derive(Clone)]
pub struct RedisPool(Kind);

#[derive(Clone)]
enum Kind {
    Node(Pool),
    Cluster(cluster::Pool),
    Sentinel(sentinel::Pool),
}

/// A connection that was taken out of the pool. Clones share it, and their commands are answered in order.
#[derive(Clone)]
pub(super) enum Connection {
    Node(MultiplexedConnection),
    /// A connection to every node of a Cluster. The client replaces them by itself.
    Cluster(ClusterConnection),
}

impl RedisPool {
    /// Takes a connection out of the pool for good: its place there is free for another at once.
    pub(super) async fn take(&self) -> Result<Connection, PoolError> {
        Ok(match &self.0 {
            Kind::Node(pool) => Connection::Node(deadpool_redis::Connection::take(pool.get().await?)),
            Kind::Cluster(pool) => Connection::Cluster(cluster::Connection::take(pool.get().await?)),
            Kind::Sentinel(pool) => Connection::Node(sentinel::Connection::take(pool.get().await?)),
        })
    }

    /// Drops the idle connections of the pool: where one broke, or leads to a demoted server, the others may, too.
    pub(super) fn drop_idle(&self) {
        match &self.0 {
            Kind::Node(pool) => drop(pool.retain(|_, _| false)),
            Kind::Cluster(pool) => drop(pool.retain(|_, _| false)),
            Kind::Sentinel(pool) => drop(pool.retain(|_, _| false)),
        }
    }

    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self.0, Kind::Cluster(_))
    }

    const fn name(&self) -> &'static str {
        match self.0 {
            Kind::Node(_) => "node",
            Kind::Cluster(_) => "cluster",
            Kind::Sentinel(_) => "sentinel",
        }
    }
}

impl From<Pool> for RedisPool {
    fn from(pool: Pool) -> Self {
        Self(Kind::Node(pool))
    }
}

impl From<cluster::Pool> for RedisPool {
    fn from(pool: cluster::Pool) -> Self {
        Self(Kind::Cluster(pool))
    }
}

impl From<sentinel::Pool> for RedisPool {
    fn from(pool: sentinel::Pool) -> Self {
        Self(Kind::Sentinel(pool))
    }
}

/// Not the pool's own `Debug`, which knows the URL.
impl fmt::Debug for RedisPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisPool({})", self.name())
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Node(node) => node.req_packed_command(command),
            Self::Cluster(cluster) => cluster.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Node(node) => node.req_packed_commands(pipeline, offset, count),
            Self::Cluster(cluster) => cluster.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Node(node) => node.get_db(),
            Self::Cluster(cluster) => cluster.get_db(),
        }
    }
}
