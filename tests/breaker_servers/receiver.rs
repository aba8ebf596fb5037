//! A receiver on a Redis store, with a breaker in between or without.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::post;
use deadpool_redis::{Config, Runtime};
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::breaker::{BreakerStoreBuilder, CircuitState, Conflict};
use tower_webhook::store::{BreakerStore, RedisStore, Store};
use tower_webhook::testing::{ManualClock, TestSender};
use tower_webhook::{Outcome, WebhookEvent, WebhookLayer};

use crate::support::audited::key;
use crate::support::checker::Ledger;
use crate::support::handler::Handler;
use crate::support::servers::redis::RedisServer;
use crate::support::{Answer, NOW, scheme};

pub(crate) const FAILURES: usize = 3;
/// Longer than any cool-down of the breakers here.
const COOL_DOWN: Duration = Duration::from_secs(5);
/// Longer than anything takes; what never comes fails the test then.
const PATIENCE: Duration = Duration::from_secs(60);

/// With little patience, because the server is away most of the time.
fn redis(server: &RedisServer) -> RedisStore {
    let pool = Config::from_url(server.url()).create_pool(Some(Runtime::Tokio1)).expect("a pool");
    RedisStore::builder(pool).timeout(Duration::from_millis(200)).build()
}

/// A receiver at `/webhooks`. Its clones share everything.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) handler: Handler,
    pub(crate) layer: WebhookLayer,
    ledger: Ledger,
    app: Router,
    sender: TestSender,
}

impl Receiver {
    fn over(store: impl Store, ledger: Ledger) -> Self {
        let clock = ManualClock::at_unix(NOW);
        let layer = WebhookLayer::new(scheme(), store).clock(clock.clone());
        let handler = Handler::new();
        let (acting, books) = (handler.clone(), ledger.clone());
        let act = move |event: WebhookEvent| async move {
            let status = acting.run(event.clone()).await;
            if status.is_success() {
                books.effect(&event);
            }
            status
        };
        let app = Router::new().route("/webhooks", post(act)).layer(layer.clone());
        Self { handler, layer, ledger, app, sender: TestSender::new(scheme()).clock(clock) }
    }

    /// Another instance, without a breaker. They have one ledger.
    pub(crate) fn another(&self, server: &RedisServer) -> Self {
        Self::over(redis(server), self.ledger.clone())
    }

    /// Never lost, never let in, and never doubled but for these.
    pub(crate) fn check_but_for(&self, doubled: &[&str], server: &RedisServer) {
        let keys = server.keys();
        let keys: BTreeSet<_> = keys.iter().map(|key| key.trim_start_matches("tower-webhook:").to_owned()).collect();
        self.ledger.check_but_for(doubled, &keys, "no seed: nothing is random here");
    }

    pub(crate) async fn deliver(&self, id: &str) -> Answer {
        self.ledger.signed(&key(id));
        let delivery = self.sender.deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#));
        let answering = self.app.clone().oneshot(delivery.request::<Body>());
        let response = tokio::time::timeout(PATIENCE, answering).await.expect("an answer");
        let answer = Answer::read(response.expect("a router cannot fail")).await;
        self.ledger.answered(id, answer.status);
        answer
    }

    /// Delivers until it is acknowledged, as a sender does: on a busy machine, a server that works may miss the timeout.
    pub(crate) async fn acknowledges(&self, id: &str) -> Option<Outcome> {
        let begun = Instant::now();
        loop {
            let answer = self.deliver(id).await;
            if answer.status.is_success() {
                return answer.outcome;
            }
            assert!(begun.elapsed() < PATIENCE, "never acknowledged: {answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn is_refused(&self, id: &str) {
        let answer = self.deliver(id).await;
        assert_eq!((answer.status, answer.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")), "{answer:?}");
        assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable));
    }

    /// Waits for what goes on in the background: completions that are repeated, doubtful claims that are released.
    pub(crate) async fn settled(&self) {
        let begun = Instant::now();
        while self.layer.drain_handle().running() > 0 {
            assert!(begun.elapsed() < PATIENCE, "something never ended");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A receiver whose store is behind a breaker.
pub(crate) struct Guarded {
    pub(crate) receiver: Receiver,
    pub(crate) breaker: BreakerStore,
    clock: ManualClock,
    conflicts: Arc<Mutex<Vec<Conflict>>>,
}

impl Guarded {
    pub(crate) fn new(
        server: &RedisServer,
        configure: impl FnOnce(BreakerStoreBuilder) -> BreakerStoreBuilder,
    ) -> Self {
        let (clock, conflicts) = (ManualClock::at_unix(NOW), Arc::<Mutex<Vec<_>>>::default());
        let found = conflicts.clone();
        let builder = BreakerStore::builder(redis(server))
            .failures(FAILURES as u32)
            .cool_down(Duration::from_secs(1), COOL_DOWN)
            .clock(clock.clone())
            .on_conflict(move |conflict| found.lock().expect("no panic under the lock").push(conflict.clone()));
        let breaker = configure(builder).build();
        Self { receiver: Receiver::over(breaker.clone(), Ledger::default()), breaker, clock, conflicts }
    }

    pub(crate) fn circuit(&self) -> CircuitState {
        self.breaker.stats().circuit
    }

    pub(crate) fn conflicts(&self) -> Vec<Conflict> {
        self.conflicts.lock().expect("no panic under the lock").clone()
    }

    /// The first deliveries of an outage are refused, and open the circuit.
    pub(crate) async fn notices_the_outage(&self) {
        for number in 0..FAILURES {
            assert_eq!(self.circuit(), CircuitState::Closed);
            self.receiver.is_refused(&format!("first of the outage {number}")).await;
        }
        assert_eq!(self.circuit(), CircuitState::Open);
        self.receiver.settled().await;
    }

    /// The next claim is the probe.
    pub(crate) fn cools_down(&self) {
        self.clock.advance(COOL_DOWN);
    }

    /// Lets cool-downs pass until this has come true: a server that is just back may miss a probe.
    pub(crate) async fn cools_down_until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        while !condition().await {
            assert!(begun.elapsed() < PATIENCE, "never came: {what}");
            self.cools_down();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
