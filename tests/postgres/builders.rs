//! Every duration of the builder, at zero, at one and at the most that there is, on a server: it is refused with a `ConfigError`, or
//! the store answers every verb. With the most, every verb works.

use std::time::Duration;

use tower_webhook::queue::Queue;
use tower_webhook::store::{PostgresStore, PostgresStoreBuilder};

use crate::postgres::fixture::{Fixture, eventually, key};
use crate::postgres::inbox::queue::{KEPT, accept};
use crate::support::extremes::{NoPanics, TIMES, in_time, try_verbs};

/// What the builder takes for one: it counts in milliseconds.
const MILLISECOND: Duration = Duration::from_millis(1);

fn times() -> impl Iterator<Item = Duration> {
    TIMES.into_iter().chain([MILLISECOND])
}

/// A store on a table of its own, with sessions or told that it has none.
async fn store(is_pooled: bool) -> (Fixture, PostgresStoreBuilder) {
    let fixture = Fixture::new().await;
    let builder = PostgresStore::builder(fixture.pool.clone()).table(&fixture.table).expect("a name");
    let builder = if is_pooled { builder.pooled() } else { builder };
    (fixture, builder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_is_refused_or_every_verb_is_answered() {
    let panics = NoPanics::begin();
    for time in times() {
        for is_pooled in [false, true] {
            let (_fixture, builder) = store(is_pooled).await;
            let what = format!("deadline({time:?}), pooled: {is_pooled}");
            let built = builder.deadline(time).map(PostgresStoreBuilder::build);
            assert_eq!(built.is_ok(), time >= MILLISECOND, "{what}");
            if let Ok(store) = built {
                try_verbs(&what, &store, time == Duration::MAX).await;
            }
            panics.end(&what);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_elsewhere_are_woken_with_the_longest_deadline() {
    let (fixture, builder) = store(false).await;
    let store = builder.deadline(Duration::MAX).expect("a deadline").build();
    let elsewhere = fixture.another();
    let woken = tokio::spawn(async move {
        // The first time when it begins to listen, for whatever was told before.
        elsewhere.wake().await;
        elsewhere.wake().await;
    });
    let number = std::sync::atomic::AtomicU32::new(0);
    eventually("it is woken", async || {
        let key = key(&number.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string());
        assert_eq!(accept(&store, &key).await, KEPT);
        woken.is_finished()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_interval_is_refused_or_every_verb_works() {
    let panics = NoPanics::begin();
    for time in times() {
        let (_fixture, builder) = store(false).await;
        let what = format!("purge_every({time:?})");
        let built = builder.deadline(crate::postgres::fixture::PATIENCE).expect("a deadline").purge_every(time);
        assert_eq!(built.is_ok(), time >= MILLISECOND, "{what}");
        if let Ok(builder) = built {
            try_verbs(&what, &builder.build(), true).await;
        }
        panics.end(&what);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_works_however_long_bodies_are_kept() {
    let panics = NoPanics::begin();
    for time in times() {
        let (_fixture, builder) = store(false).await;
        let what = format!("keep_completed_bodies({time:?})");
        let store = builder
            .deadline(crate::postgres::fixture::PATIENCE)
            .expect("a deadline")
            .keep_completed_bodies(time)
            .build();
        try_verbs(&what, &store, true).await;
        in_time(&what, store.purge()).await.expect("a purge");
        panics.end(&what);
    }
}
