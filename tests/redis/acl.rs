//! Users who have the documented rights, and no others.

use std::time::Duration;

use deadpool_redis::cluster::Config as ClusterConfig;
use deadpool_redis::sentinel::{Config as SentinelConfig, SentinelNodeConnectionInfo, SentinelServerType};
use deadpool_redis::{Pool, RedisConnectionInfo, Runtime};
use tower_webhook::Outcome;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store};
use tower_webhook::testing::conformance;

use crate::redis::fixture::{Fixture, PATIENT, pool_of, store};
use crate::redis::inbox::fixture::InboxFixture;
use crate::redis::receiver::{Receiver, eventually, key};
use crate::support::checker::Ledger;
use crate::support::servers::redis::{RedisCluster, RedisServer};

/// The module's documentation.
const DOCUMENTED: &str = include_str!("../../src/store/redis/mod.rs");

/// The commands that an administrator is to send, for every store and for an inbox: the words behind the user's name.
fn documented() -> [Vec<&'static str>; 2] {
    let commands = DOCUMENTED.split("ACL SETUSER webhooks").skip(1);
    let words = |text: &'static str| text.split("```").next().expect("an end").split_whitespace();
    let commands: Vec<Vec<_>> = commands.map(|text| words(text).filter(|word| *word != "//!").collect()).collect();
    commands.try_into().expect("two commands")
}

fn inline() -> Vec<&'static str> {
    documented()[0].clone()
}

fn inbox() -> Vec<&'static str> {
    documented().concat()
}

/// A pool of a user with these rights, under the prefix that the keys have.
fn user(server: &RedisServer, name: &str, rights: &[&str], prefix: &str) -> Pool {
    allow(server, name, rights, prefix);
    pool_of(&format!("redis://{name}:password@{}/", server.address()))
}

fn allow(server: &RedisServer, name: &str, rights: &[&str], prefix: &str) {
    let rights =
        rights.iter().map(|right| if right.starts_with('~') { format!("~{prefix}*") } else { (*right).into() });
    let rights: Vec<_> = rights.collect();
    let command = ["ACL", "SETUSER", name].into_iter().chain(rights.iter().map(String::as_str));
    assert_eq!(server.command(&command.collect::<Vec<_>>()), "OK\n");
}

/// The commands that the server refused for want of a right, but for those that nothing depends on: the check's questions, and how
/// the client introduces itself.
fn refused(server: &RedisServer) -> Vec<String> {
    let log = server.command(&["ACL", "LOG"]);
    let objects =
        log.lines().zip(log.lines().skip(1)).filter(|(field, _)| *field == "object").map(|(_, object)| object);
    let is_needed = |object: &&str| !["info", "config", "client"].iter().any(|command| object.starts_with(command));
    objects.filter(is_needed).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_rights_suffice_for_a_receiver() {
    let server = RedisServer::start();
    let receiver = Receiver::with_pool(user(&server, "webhooks", &inline(), "tower-webhook:"));
    let report = receiver.store.check().await.expect("a report");
    assert!(!report.warnings.iter().any(|warning| warning.contains("right")), "{report:?}");
    assert_eq!(refused(&server), ["xadd"], "tried, to see whether this may be an inbox");
    server.command(&["ACL", "LOG", "RESET"]);
    for id in ["evt_1", "evt_2"] {
        assert_eq!(receiver.deliver(id).await.outcome, Some(Outcome::Completed));
        assert_eq!(receiver.deliver(id).await.outcome, Some(Outcome::Duplicate));
    }
    receiver.check(&server);
    assert_eq!(refused(&server), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn store_conforms_with_the_documented_rights() {
    let servers = [RedisServer::start()];
    let pool = user(&servers[0], "webhooks", &inline(), "rights.");
    conformance::store().run(&Fixture::new(pool, &servers, "rights").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_conforms_with_the_documented_rights() {
    let servers = [RedisServer::start()];
    let pool = user(&servers[0], "webhooks", &inbox(), "rights.");
    let harness = Fixture::new(pool, &servers, "rights").await;
    conformance::queue().run(&harness).await;
    conformance::store().run(&harness).await;
}

/// What waits for arrivals is no part of the suite.
#[tokio::test(flavor = "multi_thread")]
async fn documented_rights_suffice_for_a_worker() {
    let server = RedisServer::start();
    let store = store(user(&server, "webhooks", &inbox(), "tower-webhook:"));
    let report = store.check().await.expect("a report");
    assert!(!report.warnings.iter().any(|warning| warning.contains("right")), "{report:?}");
    let inbox = InboxFixture::over(store);
    let handler = inbox.handler.clone();
    let working = tokio::spawn(inbox.worker().run(async move { drop(handler.started(2).await) }));
    eventually("it waits for arrivals", async || {
        server.command(&["INFO", "commandstats"]).contains("cmdstat_xread:")
            || server.command(&["CLIENT", "LIST"]).contains("cmd=xread ")
    })
    .await;
    for id in ["evt_1", "evt_2"] {
        assert_eq!(inbox.deliver(id).await.outcome, Some(Outcome::Accepted));
    }
    let _ = working.await.expect("no panic");
    assert_eq!(refused(&server), Vec::<String>::new());
}

#[tokio::test]
async fn every_right_that_a_store_lacks_is_an_error_that_names_it() {
    let server = RedisServer::start();
    let rights = inline();
    for right in rights.iter().filter_map(|right| right.strip_prefix('+')) {
        // What another store has left there would have to be asked for by its hash only.
        server.command(&["SCRIPT", "FLUSH"]);
        let denied = format!("-{right}");
        let rights = [&rights[..], &[denied.as_str()]].concat();
        let store = store(user(&server, right, &rights, "tower-webhook:"));
        let error = store.check().await.expect_err("a right is missing");
        let source = std::error::Error::source(&error).expect("a source").to_string();
        assert!(source.contains(&format!("'{right}'")) || source.contains(&format!("+{right}")), "{right}: {source}");
    }
}

#[tokio::test]
async fn every_right_that_an_inbox_lacks_is_a_warning_that_names_it() {
    let server = RedisServer::start();
    let [_, beside] = documented();
    for right in beside.iter().filter_map(|right| right.strip_prefix('+')) {
        let denied = format!("-{right}");
        let store = store(user(&server, right, &[&inbox()[..], &[denied.as_str()]].concat(), "tower-webhook:"));
        let report = store.check().await.expect("a report");
        let named = format!("the rights +{right}:");
        // A user who can accept nothing has no inbox, and is not warned.
        let expected = usize::from(right != "xadd");
        assert_eq!(report.warnings.iter().filter(|warning| warning.contains(&named)).count(), expected, "{report:?}");
    }
    assert_eq!(server.keys().len(), 0, "nothing of the checks is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_rights_suffice_on_a_cluster_and_with_replicas() {
    let cluster = RedisCluster::start();
    let rights = [&inline()[..], &["+cluster|slots", "+ping", "+wait"]].concat();
    cluster.nodes.iter().for_each(|node| allow(node, "webhooks", &rights, "tower-webhook:"));
    let urls = cluster.nodes.iter().map(|node| format!("redis://webhooks:password@{}/", node.address()));
    let pool = ClusterConfig::from_urls(urls.collect::<Vec<_>>()).create_pool(Some(Runtime::Tokio1)).expect("a pool");
    for rights in ["`+wait`", "`+cluster|slots`", "`+ping`"] {
        assert!(DOCUMENTED.contains(rights), "{rights}");
    }
    // Only the first node has a replica.
    let waiting = RedisStore::builder(pool.clone()).timeout(PATIENT).replicas(1).build();
    let mut confirmed = 0;
    for (n, store) in [store(pool), waiting].iter().enumerate() {
        for event in 0..20 {
            let event = key(&format!("evt_{n}_{event}"));
            let claim = ClaimRequest::new(&event, ClaimToken::random(), Duration::from_secs(30));
            match store.claim(&claim).await {
                Ok(Claim::Fresh { .. }) => confirmed += 1,
                Err(_) if n == 1 => continue,
                other => panic!("{other:?}"),
            }
            let completed = store.complete(&claim, &Completion::succeeded("OK", Duration::from_secs(60))).await;
            assert_eq!(completed.expect("an answer"), Hold::Held);
        }
    }
    assert!(confirmed > 20, "some of them by a replica: {confirmed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_rights_suffice_behind_a_sentinel() {
    let primary = RedisServer::start();
    let _replica = RedisServer::replica_of(&primary);
    let sentinel = RedisServer::sentinel_of(&primary);
    allow(&primary, "webhooks", &[&inline()[..], &["+role"]].concat(), "tower-webhook:");
    assert!(DOCUMENTED.contains("`+role`"));
    let (username, password) = (Some("webhooks".to_owned()), Some("password".to_owned()));
    let user = RedisConnectionInfo { username, password, ..RedisConnectionInfo::default() };
    let user = SentinelNodeConnectionInfo { tls_mode: None, redis_connection_info: Some(user) };
    let config = SentinelConfig::from_urls([sentinel.url()], "primary".to_owned(), SentinelServerType::Master);
    let config = SentinelConfig { node_connection_info: Some(user), ..config };
    let store = store(config.create_pool(Some(Runtime::Tokio1)).expect("a pool"));
    let receiver = Receiver::patient(store, Ledger::default());
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
}
