use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::circuit::Policy;
use super::fallback::Fallback;
use super::journal::{Conflict, OnConflict};
use super::shared_circuit::SharedCircuit;
use super::store::{BreakerStore, Shared};
use crate::clock::{Clock, LONGEST, SystemClock};
use crate::store::{IntoStore, Store};

/// Configures a [`BreakerStore`].
///
/// ```
/// use std::time::Duration;
/// use tower_webhook::store::{BreakerStore, MemoryStore};
///
/// # let shared_store = MemoryStore::new();
/// let store = BreakerStore::builder(shared_store)
///     .failures(3)
///     .cool_down(Duration::from_millis(500), Duration::from_secs(10))
///     .fallback_may_double(50_000)
///     .on_conflict(|conflict| eprintln!("{} ran twice", conflict.key.id()))
///     .build();
/// ```
#[must_use = "a builder does nothing until it is built"]
pub struct BreakerStoreBuilder {
    inner: Arc<dyn Store>,
    policy: Policy,
    hung_after: Duration,
    fallback: Option<usize>,
    on_conflict: Option<OnConflict>,
    clock: Arc<dyn Clock>,
}

impl BreakerStore {
    /// Refuses claims at once while `store` is away. No fallback.
    #[must_use]
    pub fn new(store: impl IntoStore) -> Self {
        Self::builder(store).build()
    }

    /// Configures other limits, or a fallback.
    pub fn builder(store: impl IntoStore) -> BreakerStoreBuilder {
        let (first_cool_down, longest_cool_down) = (Duration::from_secs(1), Duration::from_secs(5));
        BreakerStoreBuilder {
            inner: store.into_store(),
            policy: Policy { failures: 5, first_cool_down, longest_cool_down },
            hung_after: Duration::from_millis(500),
            fallback: None,
            on_conflict: None,
            clock: Arc::new(SystemClock),
        }
    }
}

impl BreakerStoreBuilder {
    /// How many calls have to fail, with no claim answered in between, for the circuit to open; 5 by default. Zero is
    /// taken for one.
    pub fn failures(mut self, failures: u32) -> Self {
        self.policy.failures = failures.max(1);
        self
    }

    /// How long the store is left alone before one claim tries it again: `first`, and twice as long after every failed
    /// try, up to `longest`; each is cut by up to a half at random. 1 and 5 seconds by default.
    pub fn cool_down(mut self, first: Duration, longest: Duration) -> Self {
        self.policy.first_cool_down = first.min(LONGEST);
        self.policy.longest_cool_down = longest.max(first).min(LONGEST);
        self
    }

    /// How long a call has to be without an answer to count as failed when its caller gives up; half a second by
    /// default. Calls that are given up sooner say nothing about the store.
    ///
    /// Keep it below the layer's [claim deadline](crate::WebhookLayer::claim_deadline): a store that hangs gives no
    /// other sign. It is also how long the fallback lets a claim try the store.
    pub fn hung_after(mut self, hung_after: Duration) -> Self {
        self.hung_after = hung_after;
        self
    }

    /// Decides claims in this process's memory while the circuit is open, instead of refusing them. **Instances do not
    /// see each other's claims meanwhile: an event that is delivered to two of them runs twice**, and so does one that
    /// was completed elsewhere before the outage; see the [module](super).
    ///
    /// `capacity` is how many events are remembered, at a few hundred bytes each: those that wait for the store to come
    /// back, and, where there is room, those that this instance has completed lately. Size it for an outage and for the
    /// events that senders may repeat in it, and above the number of handlers that run at once. Zero is taken for one.
    /// When it is full of completions that the store does not have, further events are refused with
    /// [`StoreErrorKind::Full`](crate::store::StoreErrorKind::Full).
    pub fn fallback_may_double(mut self, capacity: usize) -> Self {
        self.fallback = Some(capacity.max(1));
        self
    }

    /// Calls `callback` for every event that was completed on the fallback and under another claim, too. Keep it short:
    /// the rest of the journal waits for it.
    pub fn on_conflict(mut self, callback: impl Fn(&Conflict) + Send + Sync + 'static) -> Self {
        self.on_conflict = Some(Arc::new(callback));
        self
    }

    /// The clock for cool-downs and for the fallback's decisions. Only [`Clock::monotonic`] is used.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the store, with its circuit closed.
    #[must_use]
    pub fn build(self) -> BreakerStore {
        let Self { inner, policy, hung_after, fallback, on_conflict, clock } = self;
        let shared = Shared {
            inner,
            circuit: SharedCircuit::new(policy, hung_after, clock.clone()),
            fallback: fallback.map(|capacity| Fallback::new(capacity, on_conflict)),
            clock,
            hung_after,
        };
        BreakerStore { shared: Arc::new(shared) }
    }
}

impl fmt::Debug for BreakerStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerStoreBuilder")
            .field("policy", &self.policy)
            .field("hung_after", &self.hung_after)
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}
