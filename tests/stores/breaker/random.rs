//! Outages at random moments, by seed, with deliveries, duplicates, failures and hang-ups going on. The jitter of cool-downs
//! and retries is not the seed's: play one several times.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_webhook::store::{Completion, MemoryStore, Store};
use tower_webhook::testing::TestSender;
use tower_webhook::{EventKey, WebhookEvent, WebhookLayer};

use super::fixture::{Event, FRESH, Fixture, claim};
use crate::support::checker::{Dice, Ledger, asked_seed};
use crate::support::faulty::{Fault, Faulty, Verb};
use crate::support::scheme;

const EVENTS: u64 = 24;
const FAULTS: [Fault; 4] = [Fault::Fail, Fault::LoseReply, Fault::Hang, Fault::HoldReply];
const ALONE: &str = "alone";
const GRACE: Duration = Duration::from_secs(600);

/// Some part of a time, and small ones as likely as large ones.
fn part(time: Duration, dice: &mut Dice) -> Duration {
    let scale = [50, 10, 1][dice.below(3) as usize];
    Duration::from_millis(dice.below(time.as_millis() as u64 / scale))
}

/// How often each event was run.
type Runs = Arc<Mutex<HashMap<String, u64>>>;

fn count(runs: &Runs, id: &str) -> u64 {
    let mut runs = runs.lock().expect("no panic under the lock");
    let run = runs.entry(id.to_owned()).or_default();
    *run += 1;
    *run
}

/// One instance of a receiver behind a breaker.
#[derive(Clone)]
struct Instance {
    name: &'static str,
    dice: Dice,
    ledger: Ledger,
    fixture: Fixture,
    layer: WebhookLayer,
    app: Router,
    /// From here on every handler succeeds.
    calm: Arc<AtomicBool>,
    pace: Pace,
}

/// How long things take, at most.
#[derive(Clone, Copy)]
struct Pace {
    handler: Duration,
    outage: Duration,
}

impl Instance {
    fn new(name: &'static str, seed: u64, memory: MemoryStore, ledger: &Ledger, pace: Pace) -> Self {
        let (dice, calm) = (Dice::new(seed).part(name), Arc::new(AtomicBool::new(false)));
        let fixture = Fixture::around(Faulty::new(memory), |builder| match seed % 5 {
            0 if name == ALONE => builder,
            _ => builder.fallback_may_double(EVENTS as usize),
        });
        let layer = WebhookLayer::new(scheme(), fixture.breaker.clone()).endpoint("random").expect("a name");
        let (fate, record, calmed, runs) = (dice.clone(), ledger.clone(), calm.clone(), Runs::default());
        let handler = move |event: WebhookEvent| async move {
            let mut fate = fate.part(&format!("{} run {}", event.id(), count(&runs, event.id())));
            tokio::time::sleep(part(pace.handler, &mut fate)).await;
            match fate.below(5) {
                0 if !calmed.load(Ordering::SeqCst) => std::panic::resume_unwind(Box::new("as the dice said")),
                1 if !calmed.load(Ordering::SeqCst) => return StatusCode::INTERNAL_SERVER_ERROR,
                _ => {}
            }
            record.effect(&event);
            StatusCode::OK
        };
        let app = Router::new().route("/webhooks", post(handler)).layer(layer.clone());
        Self { name, dice, ledger: ledger.clone(), fixture, layer, app, calm, pace }
    }

    fn request(&self, id: &str) -> Request<Body> {
        self.ledger.signed(&EventKey::new("random", None, id));
        TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}"}}"#)).request_as()
    }

    /// One delivery, whose sender may hang up.
    async fn deliver(self, id: String, number: u64) {
        let mut dice = self.dice.part(&format!("{id} delivery {number}"));
        tokio::time::sleep(Duration::from_millis(dice.below(120_000))).await;
        let patience = match dice.below(3) {
            0 => Duration::from_millis(dice.below(3_000)),
            _ => GRACE,
        };
        let answer = self.app.clone().oneshot(self.request(&id));
        if let Ok(response) = tokio::time::timeout(patience, answer).await {
            let status = response.expect("a router cannot fail").status();
            assert!(matches!(status.as_u16(), 200 | 500 | 503), "{status}");
            self.ledger.answered(&id, status);
        }
    }

    /// A delivery that nobody signed.
    async fn forge(self, number: u64) {
        let forgery = TestSender::new(scheme()).deliver(format!(r#"{{"id":"forged_{number}"}}"#)).tampered();
        tokio::time::sleep(Duration::from_millis(number * 5_000)).await;
        let response = self.app.clone().oneshot(forgery.request()).await.expect("a router cannot fail");
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    }

    /// The store goes away altogether, for a moment or for longer than a lease; or one of its verbs does.
    async fn outages(self) {
        let mut dice = self.dice.part("outages");
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(dice.below(20_000))).await;
            let fault = FAULTS[dice.below(4) as usize];
            match dice.below(4) {
                0 => {
                    let verb = [Verb::Claim, Verb::Complete, Verb::Release][dice.below(3) as usize];
                    self.fixture.store.breaks(verb, fault);
                }
                _ => self.fixture.breaks_all(fault),
            }
            tokio::time::sleep(part(self.pace.outage, &mut dice)).await;
            self.fixture.heal_all();
        }
    }

    fn start(&self, tasks: &mut JoinSet<()>) {
        let mut dice = self.dice.part("plan");
        for event in 0..EVENTS {
            for number in 0..1 + dice.below(6) {
                tasks.spawn(self.clone().deliver(format!("evt_{event}"), number));
            }
            tasks.spawn(self.clone().forge(event));
        }
        tasks.spawn(self.clone().outages());
    }

    /// Senders do not give up, handlers no longer fail, and the store is back: every event comes through.
    async fn finish(&self, scenario: &str) {
        self.calm.store(true, Ordering::SeqCst);
        for id in (0..EVENTS).map(|event| format!("evt_{event}")) {
            let mut retries = 0;
            while !self.ledger.is_acknowledged(&id) {
                let response = self.app.clone().oneshot(self.request(&id)).await.expect("a router cannot fail");
                self.ledger.answered(&id, response.status());
                tokio::time::sleep(Duration::from_secs(1)).await;
                retries += 1;
                assert!(retries < 1_000, "{scenario}: {id} is stuck on {}: {}", self.name, response.status());
            }
        }
        assert_eq!(self.layer.drain_handle().drain(GRACE).await.dropped, 0, "{scenario}");
        self.fixture.reconciled().await;
    }
}

async fn play(instances: &[Instance], scenario: &str) {
    let mut tasks = JoinSet::new();
    instances.iter().for_each(|instance| instance.start(&mut tasks));
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap_or_else(|error| panic!("{scenario}: {error}"));
    }
    for instance in instances {
        instance.finish(scenario).await;
    }
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    asked_seed().into_iter().chain(0..count)
}

/// One instance loses nothing, doubles nothing and lets nothing in, whatever its store does; and in the end the store knows
/// everything. Handlers run, and outages last, for longer than a lease.
#[tokio::test(start_paused = true)]
async fn invariants_hold_on_one_instance() {
    let pace = Pace { handler: Duration::from_secs(40), outage: Duration::from_secs(60) };
    let mut fallback_claims = 0;
    for seed in seeds(100) {
        let scenario = format!("FAULTS_SEED={seed}");
        println!("{scenario}");
        let ledger = Ledger::default();
        let instance = Instance::new(ALONE, seed, MemoryStore::new(), &ledger, pace);
        play(std::slice::from_ref(&instance), &scenario).await;
        ledger.check(&instance.fixture.store, &scenario);
        assert_eq!(
            instance.fixture.store.held(),
            (0, EVENTS as usize),
            "{scenario}: all done, and nothing left running"
        );
        assert_eq!(instance.fixture.conflicts(), [], "{scenario}: there is nobody to be in conflict with");
        fallback_claims += instance.fixture.breaker.stats().fallback_claims;
    }
    assert!(fallback_claims > 100, "{fallback_claims}: the fallback was put to use");
}

/// Row 41: two instances may double, and whatever they double comes out; nothing else does. Nothing lasts as long as a lease,
/// so that no claim is lost by its lapsing, which is another story.
#[tokio::test(start_paused = true)]
async fn row_41_every_double_is_a_conflict_and_every_conflict_a_double() {
    let pace = Pace { handler: Duration::from_secs(3), outage: Duration::from_secs(15) };
    let mut doubles = 0;
    for seed in seeds(100) {
        let scenario = format!("FAULTS_SEED={seed}");
        println!("{scenario}");
        let (ledger, memory) = (Ledger::default(), MemoryStore::new());
        let instances = ["left", "right"].map(|name| Instance::new(name, seed, memory.clone(), &ledger, pace));
        play(&instances, &scenario).await;
        let mut doubled = ledger.doubled();
        doubles += doubled.len();
        for conflict in instances.iter().flat_map(|instance| instance.fixture.conflicts()) {
            assert!(doubled.remove(conflict.key.id()), "{scenario}: {conflict:?}");
        }
        assert!(doubled.is_empty(), "{scenario}: {doubled:?} took effect twice, and nobody was told");
        assert_eq!((memory.stats().running, memory.stats().completed), (0, EVENTS as usize), "{scenario}");
    }
    assert!(doubles > 10, "{doubles}: there was something to be told");
}

/// On real threads, with a store that comes and goes between any two polls: of all who claim an event at once, one gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_winner_per_event_while_the_circuit_flaps() {
    let fixture = Fixture::around(Faulty::new(MemoryStore::new()), |builder| {
        builder.failures(1).cool_down(Duration::ZERO, Duration::from_micros(100)).fallback_may_double(10_000)
    });
    let (flapping, flaps) = (Arc::new(AtomicBool::new(true)), fixture.clone());
    let flapper = {
        let flapping = flapping.clone();
        tokio::spawn(async move {
            let mut dice = Dice::new(7);
            while flapping.load(Ordering::SeqCst) {
                flaps.breaks_all([Fault::Fail, Fault::LoseReply][dice.below(2) as usize]);
                tokio::task::yield_now().await;
                flaps.heal_all();
                tokio::task::yield_now().await;
            }
        })
    };
    for number in 0..500 {
        let event = Event::new(&format!("evt_{number}"));
        let mut claimants = JoinSet::new();
        for _ in 0..16 {
            let (fixture, mine) = (fixture.clone(), event.again());
            claimants.spawn(async move {
                let won = claim(&fixture.breaker, &mine).await == Ok(FRESH);
                if won && number % 2 == 0 {
                    let _ = fixture.breaker.complete(&mine.request(), &Completion::succeeded("200", GRACE)).await;
                }
                won
            });
        }
        let winners = claimants.join_all().await.into_iter().filter(|won| *won).count();
        assert!(winners <= 1, "{winners} claims of {:?} were fresh", event.key);
    }
    flapping.store(false, Ordering::SeqCst);
    flapper.await.expect("no panic");
    let claims = fixture.breaker.stats().fallback_claims;
    assert!((10..490).contains(&claims), "{claims}: both sides decided");
}
