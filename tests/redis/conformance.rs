//! The contract of every store, on Redis.

use tokio::task::JoinSet;
use tower_webhook::testing::conformance;

use crate::redis::fixture::{Fixture, cluster_pool, pool, pool_of};
use crate::redis::old_server::OldServer;
use crate::support::checker::asked_seed;
use crate::support::servers::redis::{RedisCluster, RedisServer};

#[tokio::test(flavor = "multi_thread")]
async fn one_server_conforms() {
    let servers = [RedisServer::start()];
    conformance::store().run(&Fixture::new(pool(&servers[0]), &servers, "one").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_server_conforms_by_script() {
    let old = OldServer::start().await;
    let (pool, servers) = (pool_of(&old.url()), std::slice::from_ref(&old.server));
    conformance::store().run(&Fixture::new(pool, servers, "old").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_conforms() {
    let cluster = RedisCluster::start();
    conformance::store().run(&Fixture::new(cluster_pool(&cluster), &cluster.nodes[..3], "cluster").await).await;
}

/// On connections of their own, with another command behind each, and with repetitions that write again.
#[tokio::test(flavor = "multi_thread")]
async fn server_whose_replica_is_waited_for_conforms() {
    let servers = [RedisServer::start()];
    let replica = RedisServer::replica_of(&servers[0]);
    conformance::store().run(&Fixture::new(pool(&servers[0]), &servers, "waiting").await.waiting_for(1)).await;
    assert_ne!(servers[0].command(&["INFO", "commandstats"]).find("cmdstat_wait:"), None);
    drop(replica);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_random_sequences_agree_with_the_model() {
    const TASKS: u64 = 100;
    let servers = [RedisServer::start()];
    let harness = Fixture::new(pool(&servers[0]), &servers, "model").await;
    let seed = asked_seed().unwrap_or(u64::from(std::process::id()));
    println!("FAULTS_SEED={seed}");
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let own = harness.another(&format!("model{task}"));
        tasks.spawn(async move { conformance::model(&own, seed + task, 100).await });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no difference");
    }
}
