//! Everything at once, by seed: duplicates, failures, panics, hang-ups, forgeries and a store with hiccups.
//!
//! `FAULTS_SEED=<number> cargo test --test main faults::random` plays one more scenario.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{EventKey, WebhookEvent, WebhookLayer};

use crate::support::checker::{Dice, Ledger, asked_seed};
use crate::support::faulty::{Fault, Faulty, Verb};
use crate::support::scheme;

const EVENTS: u64 = 16;
const GRACE: Duration = Duration::from_secs(600);

/// How time passes for handlers and senders.
#[derive(Clone, Copy, PartialEq)]
enum Time {
    /// Tokio's paused clock: sleeping is free, and the store may break.
    Paused,
    /// Real threads: only yielding.
    Real,
}

impl Time {
    async fn pass(self, amount: u64) {
        match self {
            Self::Paused => tokio::time::sleep(Duration::from_millis(amount * 50)).await,
            Self::Real => {
                for _ in 0..amount {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

#[derive(Clone)]
struct Scenario {
    dice: Dice,
    time: Time,
    ledger: Ledger,
    store: Faulty,
    layer: WebhookLayer,
    app: Router,
    /// From here on every handler succeeds.
    calm: Arc<AtomicBool>,
}

impl Scenario {
    fn new(seed: u64, time: Time) -> Self {
        let (dice, ledger, calm) = (Dice::new(seed), Ledger::default(), Arc::new(AtomicBool::new(false)));
        let store = Faulty::new(MemoryStore::new());
        let layer = WebhookLayer::new(scheme(), store.clone()).endpoint("random").expect("a name");
        let (fate, record, calmed) = (dice.clone(), ledger.clone(), calm.clone());
        let handler = move |event: WebhookEvent| async move {
            let mut fate = fate.part(&format!("{} {:?}", event.id(), event.attempt()));
            time.pass(fate.below(4) * fate.below(200)).await;
            match fate.below(5) {
                0 if !calmed.load(Ordering::SeqCst) => std::panic::resume_unwind(Box::new("as the dice said")),
                1 if !calmed.load(Ordering::SeqCst) => return StatusCode::INTERNAL_SERVER_ERROR,
                _ => {}
            }
            record.effect(&event);
            StatusCode::OK
        };
        let app = Router::new().route("/webhooks", post(handler)).layer(layer.clone());
        Self { dice, time, ledger, store, layer, app, calm }
    }

    fn request(&self, id: &str) -> Request<Body> {
        self.ledger.signed(&EventKey::new("random", None, id));
        TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}"}}"#)).request_as()
    }

    /// One delivery, whose client may hang up at any poll.
    async fn deliver(self, id: String, number: u64) {
        let mut dice = self.dice.part(&format!("{id} delivery {number}"));
        self.time.pass(dice.below(100)).await;
        let patience = match dice.below(3) {
            0 => dice.below(6),
            _ => u64::MAX,
        };
        let answer = self.app.clone().oneshot(self.request(&id));
        if let Some(response) = until_hang_up(answer, patience).await {
            let status = response.expect("a router cannot fail").status();
            assert!(matches!(status.as_u16(), 200 | 500 | 503), "{status}");
            self.ledger.answered(&id, status);
        }
    }

    /// A delivery that nobody signed, of an event that may or may not exist.
    async fn forge(self, number: u64) {
        let id = format!("evt_{}", self.dice.part(&format!("forgery {number}")).below(2 * EVENTS));
        let forgery = TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}"}}"#)).tampered();
        let response = self.app.clone().oneshot(forgery.request()).await.expect("a router cannot fail");
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }

    /// A store that fails now and then, in every way that leaves it a chance to keep its promise.
    async fn hiccup(self) {
        let mut dice = self.dice.part("hiccups");
        for _ in 0..20 {
            self.time.pass(dice.below(40)).await;
            let verb = [Verb::Claim, Verb::Complete, Verb::Release][dice.below(3) as usize];
            let fault = [Fault::Fail, Fault::LoseReply, Fault::Hang, Fault::HoldReply][dice.below(4) as usize];
            self.store.breaks_times(verb, fault, 1 + dice.below(4) as usize);
            self.time.pass(dice.below(60)).await;
            self.store.heal(verb);
        }
    }

    async fn play(self, name: &str) {
        let mut dice = self.dice.part("plan");
        let mut tasks = JoinSet::new();
        for event in 0..EVENTS {
            for number in 0..1 + dice.below(6) {
                tasks.spawn(self.clone().deliver(format!("evt_{event}"), number));
            }
            tasks.spawn(self.clone().forge(event));
        }
        if self.time == Time::Paused {
            tasks.spawn(self.clone().hiccup());
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        self.ledger.check(&self.store, name);
        self.retry_until_acknowledged(name).await;
        assert_eq!(self.layer.drain_handle().drain(GRACE).await.dropped, 0, "{name}");
        self.ledger.check(&self.store, name);
        assert_eq!(self.store.held(), (0, EVENTS as usize), "{name}: nothing is left running");
    }

    /// Senders do not give up, and handlers no longer fail: every event comes through, once.
    async fn retry_until_acknowledged(&self, name: &str) {
        self.calm.store(true, Ordering::SeqCst);
        for id in (0..EVENTS).map(|event| format!("evt_{event}")) {
            let mut retries = 0;
            while !self.ledger.is_acknowledged(&id) {
                let response = self.app.clone().oneshot(self.request(&id)).await.expect("a router cannot fail");
                self.ledger.answered(&id, response.status());
                self.time.pass(20).await;
                retries += 1;
                assert!(retries < 1_000, "{name}: {id} is stuck, the last answer was {}", response.status());
            }
        }
    }
}

/// What `future` gives, unless it is pending more often than `patience` allows: then it is dropped.
async fn until_hang_up<F: Future>(future: F, patience: u64) -> Option<F::Output> {
    let (mut future, mut pending) = (Box::pin(future), 0);
    poll_fn(move |cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if pending >= patience => Poll::Ready(None),
        Poll::Pending => {
            pending += 1;
            Poll::Pending
        }
    })
    .await
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    asked_seed().into_iter().chain(0..count)
}

#[tokio::test(start_paused = true)]
async fn invariants_hold_whatever_happens_in_paused_time() {
    for seed in seeds(60) {
        let name = format!("FAULTS_SEED={seed}");
        println!("{name}");
        Scenario::new(seed, Time::Paused).play(&name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn invariants_hold_whatever_happens_in_parallel() {
    for seed in seeds(60) {
        let name = format!("FAULTS_SEED={seed}");
        println!("{name}");
        Scenario::new(seed, Time::Real).play(&name).await;
    }
}
