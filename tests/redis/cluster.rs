//! A Cluster: every node has its share, and one that dies is replaced by its replica. CLUSTERDOWN of row 31.
//!
//! CROSSSLOT of that row cannot come up: it refuses commands and scripts with keys on several nodes, and every one of this store has
//! exactly one key. Whatever a server refuses is a 503 alike: `refusals`.

use std::time::Duration;

use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store};
use tower_webhook::{EventKey, Outcome};

use crate::redis::fixture::{PATIENT, cluster_pool, store};
use crate::redis::receiver::{Receiver, assert_unavailable};
use crate::support::servers::redis::{RedisCluster, RedisServer};

const LEASE: Duration = Duration::from_secs(30);

/// Route templates have names in braces, which decide about the node that a key is on.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_route_template_are_spread_over_all_nodes() {
    let cluster = RedisCluster::start();
    let store = store(cluster_pool(&cluster));
    for n in 0..60 {
        let key = EventKey::new("/hooks/{tenant}", Some("one"), &format!("evt_{n}"));
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        assert!(matches!(store.claim(&claim).await, Ok(Claim::Fresh { .. })));
        let hold = store.complete(&claim, &Completion::succeeded("OK", LEASE)).await;
        assert_eq!(hold.expect("an answer"), Hold::Held);
    }
    let shares: Vec<_> = cluster.nodes[..3].iter().map(|node| node.keys().len()).collect();
    assert_eq!(shares.iter().sum::<usize>(), 60);
    assert!(shares.iter().all(|share| *share >= 5), "{shares:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_is_replaced_by_its_replica() {
    let mut cluster = RedisCluster::start();
    let receiver = Receiver::hasty(cluster_pool(&cluster));
    for n in 0..30 {
        assert_eq!(receiver.deliver(&format!("evt_{n}")).await.outcome, Some(Outcome::Completed));
    }
    let share = cluster.nodes[0].command(&["DBSIZE"]);
    assert_ne!(share, "0\n", "some are on the node that is going to die");
    cluster.nodes[3].wait_until(&["DBSIZE"], &share);
    cluster.nodes[0].kill();
    for n in 0..60 {
        let known = if n < 30 { Outcome::Duplicate } else { Outcome::Completed };
        let answer = receiver.deliver_until_acknowledged(&format!("evt_{n}")).await;
        assert_eq!(answer.outcome, Some(known), "evt_{n}");
    }
    assert_eq!(receiver.handler.runs(), 60);
    receiver.settled().await;
    let keys = cluster.nodes[1..].iter().map(|node| node.keys().len()).sum::<usize>();
    assert_eq!(keys, 60);
    cluster.nodes[1..].iter().for_each(|node| receiver.check(node));
}

#[tokio::test(flavor = "multi_thread")]
async fn row_31_cluster_that_is_down_is_a_503() {
    let mut cluster = RedisCluster::start();
    let receiver = Receiver::hasty(cluster_pool(&cluster));
    receiver.deliver("evt_0").await;
    // It has no replica, and a Cluster does not serve a part of its slots.
    cluster.nodes[2].kill();
    cluster.nodes[0].wait_until(&["CLUSTER", "INFO"], "cluster_state:fail");
    cluster.nodes[1].wait_until(&["CLUSTER", "INFO"], "cluster_state:fail");
    for n in 1..6 {
        assert_unavailable(&receiver.deliver(&format!("evt_{n}")).await);
    }
    assert_eq!(receiver.handler.runs(), 1);
    cluster.nodes[2].restart();
    cluster.nodes.iter().for_each(|node: &RedisServer| node.wait_until(&["CLUSTER", "INFO"], "cluster_state:ok"));
    for n in 1..6 {
        let answer = receiver.deliver_until_acknowledged(&format!("evt_{n}")).await;
        assert_eq!(answer.outcome, Some(Outcome::Completed));
    }
    receiver.settled().await;
}

/// `WAIT` goes to the node that has the key.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_the_right_node_are_waited_for() {
    let cluster = RedisCluster::start();
    let store = RedisStore::builder(cluster_pool(&cluster)).timeout(PATIENT).replicas(1).build();
    let mut confirmed = 0;
    for n in 0..30 {
        let key = EventKey::new("/hook", None, &format!("evt_{n}"));
        confirmed += usize::from(store.claim(&ClaimRequest::new(&key, ClaimToken::random(), LEASE)).await.is_ok());
    }
    // Only the first node has a replica.
    assert!((1..30).contains(&confirmed), "{confirmed}");
    let claims: Vec<_> = cluster.nodes[..3].iter().map(|node| node.keys().len()).collect();
    assert_eq!(claims, [confirmed, 0, 0]);
}
