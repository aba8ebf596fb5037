//! Row 28: what the check at start-up finds.

use std::time::Duration;

use tower_webhook::store::{RedisStore, StoreErrorKind};

use crate::redis::fixture::{PATIENT, cluster_pool, pool, pool_of, store};
use crate::redis::old_server::OldServer;
use crate::support::logs::Logs;
use crate::support::servers::redis::{RedisCluster, RedisServer};

const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[tokio::test]
async fn row_28_eviction_is_warned_about_whatever_its_policy() {
    let server = RedisServer::with(&DURABLE);
    let store = store(pool(&server));
    assert_eq!(store.check().await.expect("a report").warnings, Vec::<String>::new());
    for policy in ["volatile-lru", "volatile-ttl", "allkeys-lru", "allkeys-random"] {
        let (logs, _listening) = Logs::capture();
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        let report = store.check().await.expect("a report");
        assert_eq!(report.nodes[0].eviction.as_deref(), Some(policy));
        assert!(report.warnings[0].contains(policy) && report.warnings[0].contains("noeviction"), "{report:?}");
        assert_eq!((report.warnings.len(), logs.count(policy)), (1, 1), "in the report, and in the log");
    }
    assert_eq!(server.keys().len(), 0, "nothing of the check is left");
}

#[tokio::test]
async fn missing_persistence_is_warned_about() {
    let server = RedisServer::start();
    let report = store(pool(&server)).check().await.expect("a report");
    let node = &report.nodes[0];
    assert_eq!((node.append_only, node.snapshots.as_deref(), node.is_primary), (Some(false), Some(""), Some(true)));
    assert!(node.version.as_ref().is_some_and(|version| version.contains('.')));
    assert!(!report.claims_by_script);
    assert!(report.warnings.len() == 1 && report.warnings[0].contains("appendonly"), "{report:?}");
}

#[tokio::test]
async fn too_few_replicas_are_warned_about() {
    let primary = RedisServer::with(&DURABLE);
    let _replica = RedisServer::replica_of(&primary);
    let patient = RedisStore::builder(pool(&primary))
        .timeout(PATIENT)
        .replicas(1)
        .replica_timeout(Duration::from_secs(30))
        .build();
    let enough = patient.check().await.expect("a report");
    assert_eq!((enough.nodes[0].replicas, enough.warnings.len()), (Some(1), 0), "{enough:?}");
    let (logs, _listening) = Logs::capture();
    let error = RedisStore::builder(pool(&primary))
        .timeout(PATIENT)
        .replicas(2)
        .build()
        .check()
        .await
        .expect_err("no claim would succeed");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(logs.count("2 replicas are to confirm every claim, and 1 are connected"), 1, "{:?}", logs.lines());
}

/// As on a managed Redis.
#[tokio::test]
async fn server_that_hides_its_configuration_is_judged_by_what_it_tells() {
    let server = RedisServer::with(&["--maxmemory-policy", "allkeys-lfu"]);
    for (user, allowed, expected) in [("shy", "-config", Some("allkeys-lfu")), ("silent", "-@dangerous", None)] {
        server.command(&["ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all", allowed]);
        let url = format!("redis://{user}:pw@{}/", server.address());
        let report = store(pool_of(&url)).check().await.expect("a report");
        assert_eq!(report.nodes[0].eviction.as_deref(), expected, "{user}");
        assert_eq!(report.warnings.len(), 2, "{report:?}");
    }
}

#[tokio::test]
async fn user_without_the_right_to_run_scripts_is_an_error() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-@scripting"]);
    let error = store(pool_of(&format!("redis://weak:pw@{}/", server.address()))).check().await;
    assert_eq!(error.expect_err("no permission").kind(), StoreErrorKind::Unavailable);
}

/// The releases' script is known to the server, and asked for by its hash; renewals come in full.
#[tokio::test]
async fn user_without_the_right_to_renew_is_an_error() {
    let server = RedisServer::start();
    store(pool(&server)).check().await.expect("a report");
    server.command(&["ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-eval"]);
    let error = store(pool_of(&format!("redis://weak:pw@{}/", server.address()))).check().await;
    assert_eq!(error.expect_err("no permission").kind(), StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn file_that_is_not_synced_while_it_is_rewritten_is_warned_about() {
    let server = RedisServer::with(&DURABLE);
    server.command(&["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]);
    let report = store(pool(&server)).check().await.expect("a report");
    assert_eq!((report.nodes[0].fsync.as_deref(), report.nodes[0].fsync_pauses), (Some("always"), Some(true)));
    assert!(report.warnings.len() == 1 && report.warnings[0].contains("no-appendfsync-on-rewrite"), "{report:?}");
}

/// What cannot be asked is not said to be wrong.
#[tokio::test]
async fn server_that_is_gone_is_an_error_and_no_warning() {
    let mut server = RedisServer::start();
    let store = store(pool(&server));
    store.check().await.expect("a report");
    server.kill();
    let (logs, _listening) = Logs::capture();
    let error = store.check().await.expect_err("there is no server");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let said = format!("{error:?}");
    assert!(said.starts_with("the store is unavailable: the server cannot be reached: check that it runs"), "{said}");
    assert_eq!(logs.count("appendonly") + logs.count("maxmemory"), 0, "{:?}", logs.lines());
}

#[tokio::test]
async fn old_server_is_reported() {
    let old = OldServer::start().await;
    let (logs, _listening) = Logs::capture();
    let store = store(pool_of(&old.url()));
    for _ in 0..2 {
        assert!(store.check().await.expect("a report").claims_by_script);
    }
    assert_eq!(logs.count("claimed by a script"), 1, "told once");
    let calls = old.server.command(&["INFO", "commandstats"]);
    let set = calls.lines().find(|line| line.starts_with("cmdstat_set:")).expect("some calls");
    assert!(set.contains("failed_calls=1"), "asked once: {set}");
}

#[tokio::test]
async fn every_primary_of_a_cluster_is_reported() {
    let cluster = RedisCluster::start();
    cluster.nodes[1].command(&["CONFIG", "SET", "maxmemory-policy", "volatile-lfu"]);
    let report = store(cluster_pool(&cluster)).check().await.expect("a report");
    let mut addresses: Vec<_> = cluster.nodes[..3].iter().map(|node| Some(node.address().to_string())).collect();
    addresses.sort();
    assert_eq!(report.nodes.iter().map(|node| node.address.clone()).collect::<Vec<_>>(), addresses);
    assert_eq!(report.nodes.iter().filter_map(|node| node.replicas).sum::<u32>(), 1);
    let suspect = cluster.nodes[1].address().to_string();
    assert!(report.warnings.iter().any(|warning| warning.starts_with(&suspect) && warning.contains("volatile-lfu")));
    assert_eq!(report.warnings.len(), 4, "and no file on any of the three");
}

#[tokio::test]
async fn replica_is_an_error_and_a_warning_says_why() {
    let primary = RedisServer::start();
    let replica = RedisServer::replica_of(&primary);
    let (logs, _listening) = Logs::capture();
    let error = store(pool(&replica)).check().await.expect_err("it takes no writes");
    let source = std::error::Error::source(&error).expect("a source").to_string();
    assert!(source.contains("read only replica"), "{source}");
    assert_eq!(logs.count("connect to the primary"), 1, "{:?}", logs.lines());
}
