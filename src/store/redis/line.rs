use deadpool_redis::cluster::ClusterConnection;
use deadpool_redis::redis::aio::{ConnectionLike, MultiplexedConnection};
use deadpool_redis::redis::{Cmd, Pipeline, RedisFuture, Value};

/// One connection. Clones share it, and what they send is answered in order.
#[derive(Clone)]
pub(super) enum Line {
    Node(MultiplexedConnection),
    /// One to every node of a Cluster, which it looks after by itself.
    Cluster(ClusterConnection),
}

impl ConnectionLike for Line {
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
