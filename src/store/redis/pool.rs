use std::fmt;

use deadpool_redis::{Connection, Pool, PoolError, cluster, sentinel};

use super::line::Line;

/// The pool that a [`RedisStore`](super::RedisStore) takes its connections from: any of deadpool-redis, for one server, for a
/// Cluster, or for what a Sentinel says is the primary.
#[derive(Clone)]
pub struct RedisPool(Kind);

#[derive(Clone)]
enum Kind {
    Node(Pool),
    Cluster(cluster::Pool),
    Sentinel(sentinel::Pool),
}

impl RedisPool {
    /// Takes a connection out of the pool for good: its place there is free for another at once.
    pub(super) async fn take(&self) -> Result<Line, PoolError> {
        Ok(match &self.0 {
            Kind::Node(pool) => Line::Node(Connection::take(pool.get().await?)),
            Kind::Cluster(pool) => Line::Cluster(cluster::Connection::take(pool.get().await?)),
            Kind::Sentinel(pool) => Line::Node(sentinel::Connection::take(pool.get().await?)),
        })
    }

    /// Lets go of the connections that lie idle in the pool: where one broke, or leads to a server that is no longer the
    /// primary, so may they.
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
