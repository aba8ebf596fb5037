//! The contract of every inbox, on Redis.

use std::time::Duration;

use tower_webhook::testing::conformance;

use crate::redis::fixture::{Fixture, cluster_pool, pool};
use crate::support::servers::redis::{RedisCluster, RedisServer};

#[tokio::test(flavor = "multi_thread")]
async fn inbox_on_one_server_conforms() {
    let servers = [RedisServer::start()];
    conformance::queue().run(&Fixture::new(pool(&servers[0]), &servers, "inbox").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_bodies_end_before_their_records() {
    let servers = [RedisServer::start()];
    for kept in [Duration::from_secs(60), Duration::ZERO] {
        let harness = Fixture::new(pool(&servers[0]), &servers, "bodies").await.keeping_bodies(kept);
        conformance::completed_bodies(kept).run(&harness).await;
    }
}

/// All keys begin with a name in braces, which decides about the node.
#[tokio::test(flavor = "multi_thread")]
async fn inbox_on_a_cluster_conforms_under_a_hash_tag() {
    let cluster = RedisCluster::start();
    let harness = Fixture::new(cluster_pool(&cluster), &cluster.nodes[..3], "{inbox}").await;
    conformance::queue().run(&harness).await;
    conformance::store().run(&harness).await;
}
