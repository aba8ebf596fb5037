//! A breaker around a store that can be broken.

#![allow(unreachable_pub, reason = "shared by the modules of this test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_webhook::EventKey;
use tower_webhook::store::breaker::{BreakerStore, BreakerStoreBuilder, CircuitState, Conflict};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, MemoryStore, Store, StoreErrorKind};

use crate::support::faulty::{Fault, Faulty, Verb, soon};

pub const LEASE: Duration = Duration::from_secs(30);
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
pub const FAILURES: usize = 3;
/// Longer than any cool-down of the breakers here.
pub const COOL_DOWN: Duration = Duration::from_secs(5);
const VERBS: [Verb; 4] = [Verb::Claim, Verb::Renew, Verb::Complete, Verb::Release];

/// Time is tokio's, paused. Clones share everything.
#[derive(Clone)]
pub struct Fixture {
    pub store: Faulty,
    pub breaker: BreakerStore,
    pub conflicts: Arc<Mutex<Vec<Conflict>>>,
}

impl Fixture {
    /// Without a fallback.
    pub fn new() -> Self {
        Self::around(Faulty::new(MemoryStore::new()), |builder| builder)
    }

    pub fn with_fallback() -> Self {
        Self::around(Faulty::new(MemoryStore::new()), |builder| builder.fallback_may_double(1_000))
    }

    pub fn around(store: Faulty, configure: impl FnOnce(BreakerStoreBuilder) -> BreakerStoreBuilder) -> Self {
        let conflicts = Arc::<Mutex<Vec<_>>>::default();
        let found = conflicts.clone();
        let builder = BreakerStore::builder(store.clone())
            .failures(FAILURES as u32)
            .cool_down(Duration::from_secs(1), COOL_DOWN)
            .on_conflict(move |conflict| found.lock().expect("no panic under the lock").push(conflict.clone()));
        Self { store, breaker: configure(builder).build(), conflicts }
    }

    pub fn breaks_all(&self, fault: Fault) {
        VERBS.into_iter().for_each(|verb| self.store.breaks(verb, fault));
    }

    pub fn heal_all(&self) {
        VERBS.into_iter().for_each(|verb| self.store.heal(verb));
    }

    /// The store goes away, and the circuit opens.
    pub async fn outage(&self) {
        self.breaks_all(Fault::Fail);
        for number in 0..FAILURES {
            let other = Event::new(&format!("before the outage {number}"));
            let _ = self.breaker.claim(&other.request()).await;
        }
        assert_eq!(self.circuit(), CircuitState::Open);
    }

    /// The store is back, and a claim has found out.
    pub async fn recovery(&self) {
        self.heal_all();
        tokio::time::sleep(COOL_DOWN).await;
        let other = Event::new("after the outage");
        self.breaker.claim(&other.request()).await.expect("the store is back");
        assert_eq!(self.breaker.release(&other.key, other.token).await.expect("it is"), Hold::Held);
        assert_eq!(self.circuit(), CircuitState::Closed);
    }

    pub fn circuit(&self) -> CircuitState {
        self.breaker.stats().circuit
    }

    pub async fn reconciled(&self) {
        soon(self.breaker.reconciled()).await;
    }

    pub fn conflicts(&self) -> Vec<Conflict> {
        self.conflicts.lock().expect("no panic under the lock").clone()
    }

    pub async fn claims(&self, event: &Event, expected: Claim) {
        assert_eq!(claim(&self.breaker, event).await, Ok(expected), "claim of {:?}", event.key);
    }

    pub async fn fails(&self, event: &Event, expected: StoreErrorKind) {
        assert_eq!(claim(&self.breaker, event).await, Err(expected), "claim of {:?}", event.key);
    }

    pub async fn completes(&self, event: &Event, expected: Hold) {
        let completion = Completion::succeeded("200 OK", RETENTION);
        assert_eq!(self.breaker.complete(&event.request(), &completion).await.expect("an answer"), expected);
    }

    /// What the store itself says of an event to a stranger.
    pub async fn inside(&self, event: &Event) -> Claim {
        let stranger = event.again();
        let found = claim(&self.store.inner, &stranger).await.expect("memory does not fail");
        let _ = self.store.inner.release(&stranger.key, stranger.token).await;
        found
    }
}

pub const FRESH: Claim = Claim::Fresh { attempt: None };
pub const IN_FLIGHT: Claim = Claim::InFlight { same_body: true };
pub const COMPLETED: Claim = Claim::Completed { same_body: true };

/// The answer without the number of the attempt.
pub async fn claim(store: &impl Store, event: &Event) -> Result<Claim, StoreErrorKind> {
    match store.claim(&event.request()).await {
        Ok(Claim::Fresh { .. }) => Ok(FRESH),
        Ok(claim) => Ok(claim),
        Err(error) => Err(error.kind()),
    }
}

/// One delivery of one event.
#[derive(Clone)]
pub struct Event {
    pub key: EventKey,
    pub token: ClaimToken,
}

impl Event {
    pub fn new(id: &str) -> Self {
        Self { key: EventKey::new("/webhooks", None, id), token: ClaimToken::random() }
    }

    /// Another delivery of the same event.
    pub fn again(&self) -> Self {
        Self { key: self.key.clone(), token: ClaimToken::random() }
    }

    pub fn request(&self) -> ClaimRequest<'_> {
        ClaimRequest::new(&self.key, self.token, LEASE).event_type(Some("test.event"))
    }
}
