//! The contract of every inbox, on Redis.

use tower_webhook::testing::conformance;

use crate::harness::{Shifting, cluster_pool, pool};
use crate::support::redis_server::{RedisCluster, RedisServer};

#[tokio::test(flavor = "multi_thread")]
async fn inbox_on_one_server_conforms() {
    let servers = [RedisServer::start()];
    conformance::inbox::run(&Shifting::new(pool(&servers[0]), &servers, "inbox").await).await;
}

/// All keys begin with a name in braces, which decides about the node.
#[tokio::test(flavor = "multi_thread")]
async fn inbox_on_a_cluster_conforms_under_a_hash_tag() {
    let cluster = RedisCluster::start();
    let harness = Shifting::new(cluster_pool(&cluster), &cluster.nodes[..3], "{inbox}").await;
    conformance::inbox::run(&harness).await;
    conformance::run(&harness).await;
}
