//! Caches the results of tenant lookups. The cache is bounded, keeps unknown tenants apart from known ones, and runs
//! one lookup per tenant at a time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::Secret;
use super::set::{Prepare, SecretSet};
use crate::clock::LONGEST;
use crate::error::ConfigError;
use crate::lock::lock;

/// A cached tenant's secrets; `None` if the lookup does not know the tenant.
pub(super) type CachedKeys = Option<Arc<TenantKeys>>;

pub(super) struct TenantCache {
    time: Duration,
    inner: Mutex<Inner>,
}

struct Inner {
    known: BoundedMap<Arc<TenantKeys>>,
    unknown: BoundedMap<()>,
    flights: HashMap<Arc<str>, FlightState>,
    /// Incremented by every `forget`. A lookup that began in an earlier generation is not cached.
    generation: u64,
}

/// The mutex that concurrent lookups of one tenant share, and the number of its users.
#[derive(Default)]
struct FlightState {
    lock: Arc<tokio::sync::Mutex<()>>,
    users: usize,
}

impl TenantCache {
    pub(super) fn new(capacity: usize, time: Duration) -> Self {
        let inner = Inner {
            known: BoundedMap::new(capacity),
            unknown: BoundedMap::new(capacity),
            flights: HashMap::new(),
            generation: 0,
        };
        Self { time: time.min(LONGEST), inner: Mutex::new(inner) }
    }

    pub(super) fn get(&self, tenant: &str) -> Option<CachedKeys> {
        let now = Instant::now();
        let inner = lock(&self.inner);
        let known = inner.known.get(tenant, now).cloned().map(Some);
        known.or_else(|| inner.unknown.get(tenant, now).map(|()| None))
    }

    /// Whether the last lookup found this tenant, even if its entry has expired or was forgotten since.
    pub(super) fn found_before(&self, tenant: &str) -> bool {
        lock(&self.inner).known.entries.contains_key(tenant)
    }

    pub(super) fn generation(&self) -> u64 {
        lock(&self.inner).generation
    }

    /// Caches a result, unless the generation has changed since its lookup began in `generation`.
    pub(super) fn put(&self, tenant: &Arc<str>, known: CachedKeys, generation: u64) {
        let until = Instant::now() + self.time;
        let mut inner = lock(&self.inner);
        if inner.generation != generation {
            return;
        }
        inner.known.remove(tenant);
        inner.unknown.remove(tenant);
        match known {
            Some(keys) => inner.known.insert(tenant.clone(), keys, until),
            None => inner.unknown.insert(tenant.clone(), (), until),
        }
    }

    pub(super) fn forget(&self, tenant: &str) {
        let mut inner = lock(&self.inner);
        inner.generation += 1;
        inner.known.clear(tenant);
        inner.unknown.remove(tenant);
    }

    /// Joins the single flight that all concurrent lookups of `tenant` share.
    pub(super) fn flight(self: &Arc<Self>, tenant: &Arc<str>) -> SingleFlight {
        let mut inner = lock(&self.inner);
        let state = inner.flights.entry(tenant.clone()).or_default();
        state.users += 1;
        SingleFlight { cache: self.clone(), tenant: tenant.clone(), lock: state.lock.clone() }
    }
}

pub(super) struct SingleFlight {
    cache: Arc<TenantCache>,
    tenant: Arc<str>,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl SingleFlight {
    pub(super) async fn lock(&self) -> OwnedMutexGuard<()> {
        self.lock.clone().lock_owned().await
    }
}

impl Drop for SingleFlight {
    fn drop(&mut self) {
        let mut inner = lock(&self.cache.inner);
        let Some(state) = inner.flights.get_mut(&self.tenant) else { return };
        state.users -= 1;
        if state.users == 0 {
            inner.flights.remove(&self.tenant);
        }
    }
}

/// A map that evicts its oldest entry when it is full.
struct BoundedMap<T> {
    capacity: usize,
    entries: HashMap<Arc<str>, Entry<T>>,
    order: VecDeque<(Arc<str>, u64)>,
    inserted: u64,
}

struct Entry<T> {
    /// `None` once the value was forgotten; the name stays.
    value: Option<T>,
    until: Instant,
    /// The entry's position in `order`. It tells this entry from an earlier one of the same name.
    sequence: u64,
}

impl<T> BoundedMap<T> {
    fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), entries: HashMap::new(), order: VecDeque::new(), inserted: 0 }
    }

    fn get(&self, tenant: &str, now: Instant) -> Option<&T> {
        self.entries.get(tenant).filter(|entry| now < entry.until)?.value.as_ref()
    }

    fn insert(&mut self, tenant: Arc<str>, value: T, until: Instant) {
        while self.order.len() >= self.capacity {
            let Some((oldest, sequence)) = self.order.pop_front() else { break };
            // A tenant that was inserted again since has a later position in the order.
            if self.entries.get(&oldest).is_some_and(|entry| entry.sequence == sequence) {
                self.entries.remove(&oldest);
            }
        }
        self.inserted += 1;
        self.order.push_back((tenant.clone(), self.inserted));
        self.entries.insert(tenant, Entry { value: Some(value), until, sequence: self.inserted });
    }

    fn clear(&mut self, tenant: &str) {
        if let Some(entry) = self.entries.get_mut(tenant) {
            entry.value = None;
        }
    }

    fn remove(&mut self, tenant: &str) {
        self.entries.remove(tenant);
    }
}

/// The secrets of one tenant as the lookup returned them, and the keys that each scheme made from them.
///
/// Two schemes may share one lookup and decode the same text differently, so one scheme's keys are of no use to the
/// other.
pub(super) struct TenantKeys {
    secrets: Vec<Secret>,
    prepared: Mutex<Vec<SchemeKeys>>,
}

/// One scheme's keys. The weak reference keeps the closure's address from being reused while the keys are cached.
struct SchemeKeys {
    scheme: Weak<Prepare>,
    set: Arc<SecretSet>,
}

impl TenantKeys {
    pub(super) fn new(secrets: Vec<Secret>) -> Self {
        Self { secrets, prepared: Mutex::default() }
    }

    /// Returns the keys that the scheme with this closure makes from the secrets. They are made once per scheme.
    pub(super) fn keys_for(&self, prepare: &Arc<Prepare>) -> Result<Arc<SecretSet>, ConfigError> {
        let scheme = Arc::downgrade(prepare);
        let mut prepared = lock(&self.prepared);
        if let Some(found) = prepared.iter().find(|keys| keys.scheme.ptr_eq(&scheme)) {
            return Ok(found.set.clone());
        }
        let set = Arc::new(SecretSet::new(&self.secrets, &**prepare)?);
        prepared.retain(|keys| keys.scheme.strong_count() > 0);
        prepared.push(SchemeKeys { scheme, set: set.clone() });
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use crate::secrets::{Algorithm, Key};

    use super::*;

    fn cache(capacity: usize) -> Arc<TenantCache> {
        Arc::new(TenantCache::new(capacity, Duration::from_secs(60)))
    }

    fn keys() -> Arc<TenantKeys> {
        Arc::new(TenantKeys::new(vec![Secret::new("s").expect("valid")]))
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_tenants_never_push_out_known_ones() {
        let cache = cache(2);
        cache.put(&"real".into(), Some(keys()), 0);
        for n in 0..1_000 {
            cache.put(&format!("made-up-{n}").into(), None, 0);
        }
        assert!(matches!(cache.get("real"), Some(Some(_))));
        assert!(matches!(cache.get("made-up-999"), Some(None)));
        assert!(cache.get("made-up-0").is_none());
        assert_eq!(lock(&cache.inner).unknown.entries.len(), 2);
        assert!(lock(&cache.inner).unknown.order.len() <= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_forgotten_after_its_time() {
        let cache = cache(2);
        cache.put(&"t".into(), None, 0);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(cache.get("t").is_some());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cache.get("t").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn tenant_that_was_found_is_remembered_by_name_until_it_is_not() {
        let cache = cache(2);
        let tenant: Arc<str> = "t".into();
        assert!(!cache.found_before("t"));
        cache.put(&tenant, Some(keys()), 0);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(cache.get("t").is_none() && cache.found_before("t"), "expired");
        cache.put(&tenant, Some(keys()), 0);
        cache.forget("t");
        assert!(cache.get("t").is_none() && cache.found_before("t"), "forgotten");
        cache.put(&tenant, None, 1);
        assert!(!cache.found_before("t"), "gone");
    }

    #[tokio::test(start_paused = true)]
    async fn finished_flights_leave_nothing_behind() {
        let cache = cache(2);
        let tenant: Arc<str> = "t".into();
        let (first, second) = (cache.flight(&tenant), cache.flight(&tenant));
        drop(first);
        assert_eq!(lock(&cache.inner).flights.len(), 1);
        drop(second);
        assert!(lock(&cache.inner).flights.is_empty());
    }

    fn scheme(algorithm: Algorithm) -> Arc<Prepare> {
        Arc::new(move |text: &str| Key::new(algorithm, text.as_bytes()))
    }

    #[test]
    fn each_scheme_makes_its_own_keys_once() {
        let keys = TenantKeys::new(vec![Secret::new("s").expect("valid")]);
        let (one, other) = (scheme(Algorithm::HmacSha256), scheme(Algorithm::Token));
        let first = keys.keys_for(&one).expect("a key");
        assert!(Arc::ptr_eq(&first, &keys.keys_for(&one).expect("a key")));
        let now = std::time::SystemTime::now();
        let of_other = keys.keys_for(&other).expect("a key");
        assert_eq!(of_other.first_active(now).expect("active").algorithm(), Algorithm::Token);
    }

    #[test]
    fn keys_of_dropped_schemes_do_not_pile_up() {
        let keys = TenantKeys::new(vec![Secret::new("s").expect("valid")]);
        for _ in 0..100 {
            keys.keys_for(&scheme(Algorithm::HmacSha256)).expect("a key");
        }
        assert_eq!(keys.prepared.lock().expect("no panic under the lock").len(), 1);
    }
}
