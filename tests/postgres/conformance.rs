//! The contract of stores, and ten thousand random sequences.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::AssertSqlSafe;
use tokio::task::JoinSet;
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, Ending, Enlistment, Hold, PostgresStore, Store, StoreFuture};
use tower_webhook::testing::conformance::{self, Harness};

use crate::postgres::fixture::{Fixture, patient, pooler, shared, shift};
use crate::support::checker::asked_seed;

/// A new table for every check. Time passes by shifting what is in it.
#[derive(Default)]
pub(crate) struct Tables {
    /// Whether the stores reach the server through a pooler.
    pub(crate) pooled: bool,
    /// How long completed bodies are kept, if not as long as their records.
    bodies: Option<Duration>,
    current: Mutex<Option<Arc<Fixture>>>,
}

impl Tables {
    pub(crate) fn behind_a_pooler() -> Self {
        Self { pooled: true, ..Self::default() }
    }

    pub(crate) fn keeping_bodies(self, time: Duration) -> Self {
        Self { bodies: Some(time), ..self }
    }
}

impl Harness for Tables {
    type Store = PostgresStore;

    async fn store(&self) -> PostgresStore {
        let fixture = if self.pooled { Fixture::pooled().await } else { Fixture::new().await };
        let store = match self.bodies {
            Some(time) if self.pooled => {
                let store = patient(&pooler().pool(shared()), &fixture.table).pooled();
                store.keep_completed_bodies(time).build()
            }
            Some(time) => patient(&fixture.pool, &fixture.table).keep_completed_bodies(time).build(),
            None => fixture.store.clone(),
        };
        *self.current.lock().expect("no panic under the lock") = Some(fixture.into());
        store
    }

    async fn pass(&self, time: Duration) {
        let fixture = self.current.lock().expect("no panic under the lock").clone();
        fixture.expect("a store before time passes").pass(time).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_store_keeps_the_contract() {
    conformance::store().run(&Tables::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_inbox_keeps_the_contract() {
    conformance::queue().run(&Tables::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn completed_bodies_go_before_their_records() {
    for kept in [Duration::from_secs(60), Duration::ZERO] {
        conformance::completed_bodies(kept).run(&Tables::default().keeping_bodies(kept)).await;
    }
}

const SEED: u64 = 0x0507_6e55;
const SEQUENCES: u32 = 10_000;
const AT_ONCE: u32 = 200;

/// All sequences in one table and through one store, so that they share its batches; each with keys of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_thousand_random_sequences_answer_like_the_model() {
    let first = asked_seed().unwrap_or(SEED);
    println!("FAULTS_SEED={first}");
    let fixture = Arc::new(Fixture::on(shared()).await);
    let mut parts = JoinSet::new();
    for part in 0..AT_ONCE {
        let harness = Part { fixture: fixture.clone(), part, sequence: AtomicU32::new(0) };
        let seed = first + u64::from(part);
        parts.spawn(async move { conformance::model(&harness, seed, SEQUENCES / AT_ONCE).await });
    }
    parts.join_all().await;
}

/// Some of the sequences, one after the other.
struct Part {
    fixture: Arc<Fixture>,
    part: u32,
    sequence: AtomicU32,
}

impl Part {
    fn prefix(&self) -> String {
        format!("{}.{}", self.part, self.sequence.load(Ordering::Relaxed))
    }
}

impl Harness for Part {
    type Store = Prefixed;

    async fn store(&self) -> Prefixed {
        self.sequence.fetch_add(1, Ordering::Relaxed);
        Prefixed { store: self.fixture.store.clone(), prefix: self.prefix() }
    }

    async fn pass(&self, time: Duration) {
        let prefix = self.prefix();
        let keys = ["0", "1", "2"].map(|id| prefixed(&prefix, &EventKey::new("/model", None, id)).as_str().to_owned());
        let sql = self.fixture.about(&(shift(time) + " WHERE key = ANY ($1)"));
        let shifted = sqlx::query(AssertSqlSafe(sql)).bind(keys.to_vec()).execute(&self.fixture.pool).await;
        shifted.expect("a statement that works");
    }
}

/// A store whose endpoints have a name before theirs.
struct Prefixed {
    store: PostgresStore,
    prefix: String,
}

fn prefixed(prefix: &str, key: &EventKey) -> EventKey {
    EventKey::new(&format!("{prefix}{}", key.endpoint()), key.tenant(), key.id())
}

/// The same claim under another key.
fn of<'a>(claim: &ClaimRequest<'_>, key: &'a EventKey) -> ClaimRequest<'a> {
    ClaimRequest::new(key, claim.token, claim.lease).fingerprint(claim.fingerprint)
}

impl Store for Prefixed {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move { self.store.claim(&of(request, &prefixed(&self.prefix, request.key))).await })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { self.store.renew(&of(claim, &prefixed(&self.prefix, claim.key))).await })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            match ending {
                Ending::Complete(completion) => {
                    let completion = &completion;
                    self.store.complete(&of(claim, &prefixed(&self.prefix, claim.key)), completion).await
                }
                _ => {
                    let key = claim.key;
                    let token = claim.token;
                    self.store.release(&prefixed(&self.prefix, key), token).await
                }
            }
        })
    }

    fn enlistment(&self) -> Option<Enlistment> {
        self.store.enlistment()
    }
}
