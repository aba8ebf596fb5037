//! Every duration and count of the builder, at zero, at one and at the most that there is, on a server: the store answers every
//! verb, and with the most, every verb works.

use std::time::Duration;

use tower_webhook::store::RedisStore;

use crate::redis::fixture::{PATIENT, pool};
use crate::support::extremes::{COUNTS, NoPanics, TIMES, try_verbs};
use crate::support::servers::redis::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_duration_and_count_has_every_verb_answered() {
    let panics = NoPanics::begin();
    let server = RedisServer::start();
    let pool = pool(&server);
    let builder = |what: &str| RedisStore::builder(pool.clone()).prefix(format!("{{{what}}}:")).timeout(PATIENT);
    for time in TIMES {
        let what = format!("timeout({time:?})");
        try_verbs(&what, &builder(&what).timeout(time).build(), time == Duration::MAX).await;
        panics.end(&what);
        let what = format!("keep_completed_bodies({time:?})");
        try_verbs(&what, &builder(&what).keep_completed_bodies(time).build(), true).await;
        panics.end(&what);
    }
    for count in COUNTS {
        let what = format!("connections({count})");
        try_verbs(&what, &builder(&what).connections(count).build(), true).await;
        panics.end(&what);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_number_of_replicas_and_wait_for_them_has_every_verb_answered() {
    let panics = NoPanics::begin();
    let server = RedisServer::start();
    let replica = RedisServer::replica_of(&server);
    replica.wait_until(&["INFO", "replication"], "master_link_status:up");
    let pool = pool(&server);
    for time in TIMES {
        for replicas in [0, 1, u32::MAX] {
            let what = format!("replicas({replicas}), replica_timeout({time:?})");
            // There is one, and more would be waited for all the time.
            let patience = if replicas == u32::MAX { time.min(Duration::from_millis(100)) } else { time };
            let store = RedisStore::builder(pool.clone()).prefix(format!("{{{what}}}:")).timeout(PATIENT);
            let store = store.replicas(replicas).replica_timeout(patience).build();
            try_verbs(&what, &store, replicas == 0 || replicas == 1 && time == Duration::MAX).await;
            panics.end(&what);
        }
    }
}
