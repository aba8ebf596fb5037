//! Every duration and every count of every builder, at zero, at one and at the most that there is: it is refused with a
//! `ConfigError`, or what is built of it works. Nothing panics, in whatever task.
//!
//! Those of the stores on Redis and on Postgres are tried among the tests of these stores, where there are servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tower::ServiceExt;
use tower_webhook::inbox::{Inbox, OrderSource};
use tower_webhook::queue::{Filter, KindLimits, LeaseRequest, Page, Queue, StoredRequest};
use tower_webhook::scheme::{self, Custom, Profile, Template, Tolerance};
use tower_webhook::secrets::{Key, Secret, Secrets, TenantSecrets};
use tower_webhook::store::{BreakerStore, ClaimRequest, ClaimToken, Completion, MemoryStore, Store};
use tower_webhook::testing::TestSender;
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{ConfigError, EventKey, HandlerError, WebhookEvent, WebhookLayer, Worker};

#[cfg(feature = "sqlite")]
use crate::support::extremes::try_verbs;
use crate::support::extremes::{COUNTS, NoPanics, TIMES, in_time};
use crate::support::faulty::{Fault, Faulty, Verb};
use crate::support::{Answer, SECRET};

type Configure<T, V> = (&'static str, fn(T, V) -> Result<T, ConfigError>);

fn handlers() -> Router {
    Router::new().route("/webhooks", post(|_: WebhookEvent| async {}))
}

fn event(id: &str) -> String {
    format!(r#"{{"id":"{id}","type":"test.event","resource":"r","version":{}}}"#, u64::MAX)
}

async fn deliver(app: &Router, sender: &TestSender, id: &str) -> StatusCode {
    let request = sender.deliver(event(id)).request();
    Answer::read(app.clone().oneshot(request).await.expect("a router cannot fail")).await.status
}

/// Delivers an event twice at once, and once more; then drains the layer.
async fn try_layer(what: &str, layer: &WebhookLayer, sender: &TestSender) {
    let app: Router = handlers().layer(layer.clone());
    let (first, second) =
        in_time(what, async { tokio::join!(deliver(&app, sender, "1"), deliver(&app, sender, "1")) }).await;
    let third = in_time(what, deliver(&app, sender, "2")).await;
    for status in [first, second, third] {
        let usual = [200, 401, 408, 413, 503];
        assert!(usual.contains(&status.as_u16()), "{what}: {status}");
    }
    in_time(what, layer.drain_handle().drain(Duration::from_secs(30))).await;
}

async fn try_worker(what: &str, inbox: impl Queue + Clone, worker: Worker<Router>) {
    let layer = WebhookLayer::inbox(crate::support::scheme(), inbox.clone());
    let app: Router = handlers().layer(layer);
    let sender = TestSender::new(crate::support::scheme());
    assert_eq!(deliver(&app, &sender, "1").await, StatusCode::OK, "{what}");
    let worked = async {
        let stop = async {
            while inbox.counts().await.map_or(true, |counts| counts.completed == 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        worker.run(stop).await
    };
    in_time(what, worked).await;
}

/// Every verb of a store once.
async fn try_store(what: &str, store: &impl Store, time: Duration) {
    for n in 0..3 {
        let key = EventKey::new("/webhooks", None, &n.to_string());
        let claim = ClaimRequest::new(&key, ClaimToken::random(), time);
        let verbs = async {
            let _ = store.claim(&claim).await;
            let _ = store.renew(&claim).await;
            let _ = store.complete(&claim, &Completion::succeeded("200 OK", time)).await;
            let _ = store.claim(&claim).await;
            let _ = store.release(&key, claim.token).await;
        };
        in_time(what, verbs).await;
    }
}

/// Every verb of an inbox once.
async fn try_inbox(what: &str, inbox: &impl Queue, time: Duration, count: usize) {
    let (key, stored_request) = (EventKey::new("/inbox", None, "1"), StoredRequest::new("", "", UNIX_EPOCH));
    let claim = ClaimRequest::new(&key, ClaimToken::random(), time).event_type(Some("x"));
    let limits = KindLimits::new(count).with("x", count);
    let verbs = async {
        let _ = inbox.enqueue(&claim, &stored_request).await;
        let _ = inbox.peek(&claim).await;
        let mut request = LeaseRequest::new(count, time);
        (request.per_endpoint, request.per_type) = (Some(&limits), Some(&limits));
        let leased = inbox.lease(&request).await.expect("an answer");
        assert!(leased.len() <= count);
        for leased in leased {
            let _ = inbox.start(&leased.claim(time)).await;
            let _ = inbox.retry(&leased.claim(time), time, "flaky").await;
        }
        for leased in inbox.lease(&LeaseRequest::new(count, time)).await.expect("an answer") {
            let _ = inbox.bury(&leased.claim(time), "hopeless").await;
        }
        inbox.list(&Filter::all(), &Page::first(count)).await.expect("a list");
        let page = Page::first(count);
        if let Some(last) = inbox.list(&Filter::all(), &Page::first(1)).await.expect("a list").first() {
            inbox.list(&Filter::all(), &page.after(last)).await.expect("a list");
        }
        assert!(inbox.waiting(count as u64).await.expect("a number") <= count as u64);
        inbox.requeue(&Filter::all(), true).await.expect("a number");
        inbox.discard(&Filter::all(), time).await.expect("a number");
        inbox.counts().await.expect("counts");
        inbox.forget(&Filter::all()).await.expect("a number");
    };
    in_time(what, verbs).await;
}

const LAYER_TIMES: [Configure<WebhookLayer, Duration>; 8] = [
    ("body_deadline", WebhookLayer::body_deadline),
    ("lease", WebhookLayer::lease),
    ("retention", WebhookLayer::retention),
    ("replay_guard", WebhookLayer::replay_guard),
    ("claim_deadline", WebhookLayer::claim_deadline),
    ("in_flight_wait", |layer, time| Ok(layer.in_flight_wait(time))),
    ("ready_wait", |layer, time| Ok(layer.ready_wait(time))),
    ("retry_after", |layer, time| Ok(layer.retry_after(time))),
];

const LAYER_COUNTS: [Configure<WebhookLayer, usize>; 3] = [
    ("body_limit", WebhookLayer::body_limit),
    ("max_running", WebhookLayer::max_running),
    ("max_waiting_per_event", |layer, count| Ok(layer.max_waiting_per_event(count))),
];

#[tokio::test(flavor = "multi_thread")]
async fn layers_take_extreme_settings_or_refuse_them() {
    let panics = NoPanics::begin();
    let sender = TestSender::new(crate::support::scheme());
    let order = OrderSource::json("resource").and_then(|order| order.sequence("version")).expect("paths");
    let inline = || WebhookLayer::new(crate::support::scheme(), MemoryStore::new());
    let inbox =
        || WebhookLayer::inbox(crate::support::scheme(), Inbox::new(MemoryStore::new()).order_by(order.clone()));
    for layer in [&inline as &dyn Fn() -> WebhookLayer, &inbox] {
        for (name, configure) in LAYER_TIMES {
            for time in TIMES {
                let what = format!("{name}({time:?})");
                if let Ok(layer) = configure(layer(), time) {
                    try_layer(&what, &layer, &sender).await;
                }
                panics.end(&what);
            }
        }
        for (name, configure) in LAYER_COUNTS {
            for count in COUNTS {
                let what = format!("{name}({count})");
                if let Ok(layer) = configure(layer(), count) {
                    try_layer(&what, &layer, &sender).await;
                }
                panics.end(&what);
            }
        }
    }
    for count in COUNTS {
        let what = format!("max_waiting_events({count})");
        if let Ok(inbox) = Inbox::new(MemoryStore::new()).max_waiting_events(count as u64) {
            try_layer(&what, &WebhookLayer::inbox(crate::support::scheme(), inbox), &sender).await;
        }
        panics.end(&what);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drains_take_extreme_deadlines() {
    let panics = NoPanics::begin();
    for time in TIMES {
        let begun = Arc::new(tokio::sync::Notify::new());
        let started = begun.clone();
        let slow = move |_: WebhookEvent| {
            let started = started.clone();
            async move {
                started.notify_one();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let layer = WebhookLayer::new(crate::support::scheme(), MemoryStore::new());
        let app: Router = Router::new().route("/webhooks", post(slow)).layer(layer.clone());
        let delivering =
            tokio::spawn(async move { deliver(&app, &TestSender::new(crate::support::scheme()), "1").await });
        in_time("the handler", begun.notified()).await;
        let drained = in_time("a drain", layer.drain_handle().drain(time)).await;
        assert!(drained.dropped <= 1);
        in_time("the delivery", delivering).await.expect("no panic");
        panics.end(&format!("drain({time:?})"));
    }
}

const WORKER_TIMES: [Configure<Worker<Router>, Duration>; 6] = [
    ("lease", Worker::lease),
    ("poll_every", Worker::poll_every),
    ("claim_deadline", Worker::claim_deadline),
    ("grace", |worker, time| Ok(worker.grace(time))),
    ("attempt_timeout", Worker::attempt_timeout),
    ("attempt_timeout_of_type", |worker, time| worker.attempt_timeout_of_type("x", time)),
];

const WORKER_COUNTS: [Configure<Worker<Router>, usize>; 4] = [
    ("concurrency", Worker::concurrency),
    ("batch", Worker::batch),
    ("concurrency_per_type", Worker::concurrency_per_type),
    ("concurrency_per_endpoint", Worker::concurrency_per_endpoint),
];

async fn try_workers<I: Queue + Clone>(panics: &NoPanics, inbox: impl AsyncFn() -> I) {
    for (name, configure) in WORKER_TIMES {
        for time in TIMES {
            // A deadline that every answer misses is for nobody.
            let misses_all = name == "claim_deadline" && time == Duration::from_nanos(1);
            let (what, inbox) = (format!("{name}({time:?})"), inbox().await);
            if let Ok(worker) = configure(Worker::new(inbox.clone(), handlers()), time)
                && !misses_all
            {
                try_worker(&what, inbox, worker.retries(RetryPolicy::new().max_attempts(u32::MAX))).await;
            }
            panics.end(&what);
        }
    }
    for (name, configure) in WORKER_COUNTS {
        for count in COUNTS {
            let (what, inbox) = (format!("{name}({count})"), inbox().await);
            if let Ok(worker) = configure(Worker::new(inbox.clone(), handlers()), count) {
                try_worker(&what, inbox, worker).await;
            }
            panics.end(&what);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_take_extreme_settings_or_refuse_them() {
    try_workers(&NoPanics::begin(), async || MemoryStore::new()).await;
}

/// A handler that fails once, and asks for a pause.
#[tokio::test(flavor = "multi_thread")]
async fn retry_policies_take_extreme_settings() {
    let panics = NoPanics::begin();
    for (first, longest) in TIMES.into_iter().flat_map(|first| TIMES.map(|longest| (first, longest))) {
        for attempts in [0, 1, u32::MAX] {
            for asked in TIMES {
                let inbox = MemoryStore::new();
                let runs = Arc::new(AtomicUsize::new(0));
                let counter = runs.clone();
                let fails_once = move |_: WebhookEvent| {
                    let run = counter.fetch_add(1, Ordering::SeqCst);
                    async move { if run == 0 { Err(HandlerError::transient("flaky").retry_after(asked)) } else { Ok(()) } }
                };
                let handlers = Router::new().route("/webhooks", post(fails_once));
                let app: Router = handlers.clone().layer(WebhookLayer::inbox(crate::support::scheme(), inbox.clone()));
                deliver(&app, &TestSender::new(crate::support::scheme()), "1").await;
                let policy = RetryPolicy::new().max_attempts(attempts).first_pause(first).longest_pause(longest);
                let what = format!("{policy:?}, retry after {asked:?}");
                in_time(&what, Worker::new(inbox.clone(), handlers).retries(policy).run_until_idle()).await;
                let counts = inbox.counts().await.expect("counts");
                assert_eq!(counts.waiting + counts.completed + counts.dead, 1, "{what}");
                assert_eq!(counts.dead == 1, attempts < 2, "{what}");
                panics.end(&what);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_stores_take_extreme_settings() {
    let panics = NoPanics::begin();
    for capacity in COUNTS {
        for min_retention in TIMES {
            for time in TIMES {
                let store = MemoryStore::builder().capacity(capacity).min_retention(min_retention);
                let store = store.keep_completed_bodies(time).build();
                let what = format!("capacity({capacity}), min_retention({min_retention:?}), {time:?}");
                try_store(&what, &store, time).await;
                for count in COUNTS {
                    try_inbox(&what, &store, time, count).await;
                }
                panics.end(&what);
            }
        }
    }
}

/// Over a store that is down, too, which opens the circuit.
#[tokio::test(flavor = "multi_thread")]
async fn breakers_take_extreme_settings() {
    let panics = NoPanics::begin();
    for (first, longest) in TIMES.into_iter().flat_map(|first| TIMES.map(|longest| (first, longest))) {
        for count in COUNTS {
            for is_down in [false, true] {
                let inner = Faulty::new(MemoryStore::new());
                if is_down {
                    for verb in [Verb::Claim, Verb::Renew, Verb::Complete] {
                        inner.breaks(verb, Fault::Fail);
                    }
                }
                let failures = u32::try_from(count).unwrap_or(u32::MAX);
                let build = || {
                    let breaker = BreakerStore::builder(inner.clone()).failures(failures);
                    breaker.cool_down(first, longest).hung_after(longest)
                };
                let what = format!("failures({failures}), cool_down({first:?}, {longest:?}), down: {is_down}");
                try_store(&what, &build().build(), first).await;
                try_store(&what, &build().fallback_may_double(count).build(), longest).await;
                panics.end(&what);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_secrets_take_extreme_settings() {
    let panics = NoPanics::begin();
    let secrets = || {
        TenantSecrets::new(
            |head| head.uri().path().strip_prefix('/').map(str::to_owned),
            |tenant| async move {
                tokio::task::yield_now().await;
                Ok((tenant == "webhooks").then(|| Secret::new(SECRET).map(|secret| vec![secret])).transpose()?)
            },
        )
    };
    for time in TIMES {
        for count in COUNTS {
            for secrets in [secrets().cache(count, time), secrets().deadline(time), secrets().max_lookups(count)] {
                let what = format!("cache({count}, {time:?}), or deadline, or max_lookups");
                let scheme = scheme::timestamped(secrets).expect("a scheme");
                let layer = WebhookLayer::new(scheme, MemoryStore::new());
                try_layer(&what, &layer, &TestSender::new(crate::support::scheme())).await;
                panics.end(&what);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn schemes_take_extreme_settings_or_refuse_them() {
    let panics = NoPanics::begin();
    for time in TIMES {
        for count in COUNTS {
            let what = format!("{time:?}, {count}");
            let builder = Template::builder("own").signature("x-signature", "t={timestamp},v1={hex}").tolerance(time);
            let built = builder.sender_timeout(time).retry_window(time).body_limit(count).build(SECRET);
            if let Ok(own) = built {
                let layer = WebhookLayer::new(own.clone(), MemoryStore::new());
                try_layer(&what, &layer, &TestSender::new(own)).await;
            }
            let preset = crate::support::scheme().tolerance(time);
            let profile = Profile::default().sender_timeout(time).retry_window(time).tolerance(time).body_limit(count);
            let secrets = Secrets::new(SECRET, |text| Key::hmac_sha256(text.as_bytes())).expect("a secret");
            let custom = Custom::by_body("custom", secrets, |_, _| Ok(Vec::new())).with_profile(profile);
            let sender = TestSender::new(crate::support::scheme());
            try_layer(&what, &WebhookLayer::new(preset, MemoryStore::new()), &sender).await;
            try_layer(&what, &WebhookLayer::new(custom, MemoryStore::new()), &sender).await;
            panics.end(&what);
        }
        let tolerance = Tolerance::from(time);
        assert_eq!(tolerance.check(0, UNIX_EPOCH + Duration::from_secs(1)).is_ok(), time == Duration::MAX);
        assert!(tolerance.window().is_some());
        panics.end(&format!("{tolerance:?}"));
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::path::PathBuf;

    use tower_webhook::store::SqliteStore;

    use super::*;
    use crate::support::directory::Directory;

    /// A file that there is not yet.
    fn file(directory: &Directory) -> PathBuf {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        directory.path().join(format!("{}.db", NUMBER.fetch_add(1, Ordering::Relaxed)))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite_stores_take_extreme_settings() {
        let (panics, directory) = (NoPanics::begin(), Directory::new("builders"));
        for wait in TIMES {
            for kept in TIMES {
                let builder = SqliteStore::builder().lock_wait(wait).keep_completed_bodies(kept);
                let store = builder.open(file(&directory)).await.expect("a store");
                try_verbs(&format!("lock_wait({wait:?}), keep_completed_bodies({kept:?})"), &store, true).await;
                store.forget(&Filter::all()).await.expect("an empty inbox");
                for time in TIMES {
                    let what = format!("lock_wait({wait:?}), keep_completed_bodies({kept:?}), {time:?}");
                    try_store(&what, &store, time).await;
                    for count in COUNTS {
                        try_inbox(&what, &store, time, count).await;
                    }
                    in_time(&what, store.purge()).await.expect("a purge");
                    panics.end(&what);
                }
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite_workers_take_extreme_settings_or_refuse_them() {
        let directory = Directory::new("builders");
        try_workers(&NoPanics::begin(), async || SqliteStore::open(file(&directory)).await.expect("a store")).await;
    }
}
