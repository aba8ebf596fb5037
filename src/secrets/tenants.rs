use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::Secret;
use super::set::{Lookup, Prepare, SecretSet, Snapshot};
use super::tenant_cache::{CachedKeys, TenantCache, TenantKeys};
use crate::clock::LONGEST;
use crate::head::Head;
use crate::key::is_name;
use crate::lock::lock;
use crate::rejection::{Rejection, RejectionKind};
use crate::telemetry;
use crate::throttle::Throttle;

type LookupError = Box<dyn Error + Send + Sync>;
type FindResult = Result<Option<Arc<SecretSet>>, LookupError>;
type TenantOf = dyn Fn(&Head<'_>) -> Option<String> + Send + Sync;
type LookupFuture = Pin<Box<dyn Future<Output = Result<Option<Vec<Secret>>, LookupError>> + Send>>;

/// The most lookups that run at once, unless the builder sets another limit.
const DEFAULT_MAX_LOOKUPS: usize = 32;

/// Secrets that are looked up per request, for routes that serve many tenants.
///
/// The first function names the tenant from the head of the request. The second finds that tenant's secrets, or returns
/// `None` if there is no such tenant. It is called after everything that the headers alone can refuse, and before the
/// body is read. Results are cached, those of unknown tenants apart from those of known ones, so that made-up names
/// cannot evict real tenants. Of concurrent requests for one tenant only one calls the lookup, and the number of all
/// concurrent lookups is limited ([`max_lookups`](Self::max_lookups)). An unknown tenant gets the same 401 as a wrong
/// signature; a lookup that fails, or exceeds its deadline, gets a 503. The tenant becomes part of the event's key.
///
/// Clones share the cache and the slots, and may be given to several schemes. The cache holds the secrets as the lookup
/// returned them, and every scheme makes its own keys from them.
///
/// The name becomes part of the key as `tenant_of` returns it, and no signature covers it. If the lookup accepts
/// several spellings of one tenant, `tenant_of` must normalise them; otherwise a captured delivery could be replayed
/// under another spelling.
///
/// The 401 of an unknown tenant comes before the body is read, so an attacker who measures the time can tell which
/// tenants exist. Choose names that are not secret, or that cannot be guessed.
///
/// ```
/// use tower_webhook::scheme;
/// use tower_webhook::secrets::{Secret, TenantSecrets};
///
/// let secrets = TenantSecrets::new(
///     |head| head.uri().path().strip_prefix("/webhooks/").map(str::to_owned),
///     |tenant| async move {
///         // a database, a vault …
///         Ok((tenant == "acme").then(|| Secret::new("whsec_acme").map(|secret| vec![secret])).transpose()?)
///     },
/// );
/// let scheme = scheme::stripe(secrets)?;
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct TenantSecrets {
    tenant_of: Arc<TenantOf>,
    lookup: Arc<dyn Fn(String) -> LookupFuture + Send + Sync>,
    deadline: Duration,
    in_key: bool,
    cache: Arc<TenantCache>,
    slots: Arc<LookupSlots>,
    failures: Arc<Mutex<Throttle>>,
}

impl TenantSecrets {
    /// Names the tenant with `tenant_of` and finds its secrets with `lookup`.
    pub fn new<T, L, F>(tenant_of: T, lookup: L) -> Self
    where
        T: Fn(&Head<'_>) -> Option<String> + Send + Sync + 'static,
        L: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Option<Vec<Secret>>, LookupError>> + Send + 'static,
    {
        Self {
            tenant_of: Arc::new(tenant_of),
            lookup: Arc::new(move |tenant| Box::pin(lookup(tenant))),
            deadline: Duration::from_secs(2),
            in_key: true,
            cache: Arc::new(TenantCache::new(10_000, Duration::from_secs(60))),
            slots: Arc::new(LookupSlots::new(DEFAULT_MAX_LOOKUPS)),
            failures: Arc::default(),
        }
    }

    /// Names the tenant by a parameter of the route, as axum matched it, and finds its secrets with `lookup`.
    ///
    /// The route may be in a nested router, and the parameter in the prefix of an outer one. A request that no route of
    /// axum with such a parameter was matched to has no tenant, and is refused: the layer has to be on a `Router`, and
    /// not around one. Escapes in the path are undone (`acme%20inc` is `acme inc`), as axum's `Path` undoes them.
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use tower_webhook::secrets::{Secret, TenantSecrets};
    /// use tower_webhook::store::MemoryStore;
    /// use tower_webhook::{WebhookEvent, WebhookLayer, scheme};
    ///
    /// # async fn secret_of(tenant: &str) -> Result<Option<String>, std::io::Error> { Ok(None) }
    /// async fn on_event(event: WebhookEvent) {
    ///     println!("{} of {:?}", event.id(), event.tenant());
    /// }
    ///
    /// let secrets = TenantSecrets::by_path("tenant", |tenant| async move {
    ///     Ok(secret_of(&tenant).await?.map(Secret::new).transpose()?.map(|secret| vec![secret]))
    /// });
    /// let webhooks = Router::new()
    ///     .route("/{tenant}/stripe", post(on_event))
    ///     .layer(WebhookLayer::new(scheme::stripe(secrets)?, MemoryStore::new()));
    /// let app: Router = Router::new().nest("/webhooks", webhooks);
    /// # Ok::<(), tower_webhook::ConfigError>(())
    /// ```
    #[cfg(feature = "axum")]
    pub fn by_path<L, F>(parameter: impl Into<String>, lookup: L) -> Self
    where
        L: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Option<Vec<Secret>>, LookupError>> + Send + 'static,
    {
        let parameter = parameter.into();
        Self::new(move |head| crate::route::parameter(head.parts(), &parameter), lookup)
    }

    /// Sets how many tenants are cached, and for how long (default 10,000 for 60 s). A rotated or revoked secret takes
    /// effect after that time at the latest, or at once with [`TenantSecrets::forget`].
    #[must_use]
    pub fn cache(mut self, tenants: usize, time: Duration) -> Self {
        self.cache = Arc::new(TenantCache::new(tenants, time));
        self
    }

    /// The name is that of a signing key, and not of a tenant. It does not become part of the event's key, since a
    /// retry that is signed with the next key would run again.
    #[must_use]
    pub fn by_key_id(mut self) -> Self {
        self.in_key = false;
        self
    }

    /// Sets how many lookups may run at once (default 32, at least 1). Anyone can cause lookups by making up names.
    ///
    /// Deliveries that find no free slot wait for one, within the [`deadline`](Self::deadline). Those of cached tenants
    /// need no slot and never wait. A quarter of the slots is reserved for tenants that the lookup found before and
    /// whose cached result has expired, so that made-up names alone cannot keep them out. Give the lookup at least as
    /// many connections as it has slots.
    #[must_use]
    pub fn max_lookups(mut self, lookups: usize) -> Self {
        self.slots = Arc::new(LookupSlots::new(lookups));
        self
    }

    /// Sets how long a delivery waits for its lookup, including the wait for a slot (default 2 s), before it gets a
    /// 503. A lookup that has begun continues without its delivery for at most the same time, and its result is cached.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Forgets the cached result for `tenant`: its next delivery calls the lookup again.
    pub fn forget(&self, tenant: &str) {
        self.cache.forget(tenant);
    }

    pub(super) fn begin(&self, head: &Head<'_>, prepare: &Arc<Prepare>) -> Result<Lookup, Rejection> {
        // The name comes from an unverified request and may be anything.
        let tenant = (self.tenant_of)(head).filter(|tenant| is_name(tenant));
        let tenant: Arc<str> = tenant.ok_or(RejectionKind::UnknownTenant)?.into();
        let (this, prepare) = (self.clone(), prepare.clone());
        Ok(Box::pin(async move { this.snapshot(tenant, &prepare).await }))
    }

    async fn snapshot(&self, tenant: Arc<str>, prepare: &Arc<Prepare>) -> Result<Snapshot, Rejection> {
        match self.find(&tenant, prepare).await {
            Ok(Some(set)) => Ok(Snapshot { set, tenant: Some(tenant).filter(|_| self.in_key) }),
            Ok(None) => Err(Rejection::unknown_tenant(&tenant)),
            Err(error) => {
                let failures = lock(&self.failures).count(Instant::now().into_std());
                if let Some(count) = failures {
                    telemetry::lookup_failed(&tenant, &*error, count);
                }
                Err(RejectionKind::SecretsUnavailable.into())
            }
        }
    }

    /// Finds the tenant's keys, in the cache or with the lookup.
    async fn find(&self, tenant: &Arc<str>, prepare: &Arc<Prepare>) -> FindResult {
        // Checked before any wait: cached tenants are served whatever else is being looked up.
        if let Some(known) = self.cache.get(tenant) {
            return prepared(known, prepare);
        }
        let deadline = Instant::now() + self.deadline.min(LONGEST);
        let flight = self.cache.flight(tenant);
        let waiting = async {
            let guard = flight.lock().await;
            // The delivery that held the lock before may have cached the result.
            match self.cache.get(tenant) {
                Some(known) => Err(known),
                None => Ok((guard, self.slots.acquire(self.cache.found_before(tenant)).await)),
            }
        };
        let (guard, slot) = match timeout_at(deadline, waiting).await {
            Ok(Err(known)) => return prepared(known, prepare),
            // A slot that comes too late is released at once: its delivery has timed out.
            Ok(Ok(guard_and_slot)) if Instant::now() < deadline => guard_and_slot,
            Ok(Ok(_)) | Err(_) => return Err("timed out waiting for other lookups: see max_lookups".into()),
        };
        let (this, tenant, prepare) = (self.clone(), tenant.clone(), prepare.clone());
        let lookup = SpawnOnDrop::new(async move {
            let _held = (flight, guard, slot);
            tokio::time::timeout(this.deadline, this.run_lookup(&tenant, &prepare)).await?
        });
        timeout_at(deadline, lookup).await?
    }

    /// Calls the lookup, and caches the result if keys can be made from it.
    async fn run_lookup(&self, tenant: &Arc<str>, prepare: &Arc<Prepare>) -> FindResult {
        let generation = self.cache.generation();
        let secrets = (self.lookup)(tenant.to_string()).await?;
        let known = secrets.map(|secrets| Arc::new(TenantKeys::new(secrets)));
        let set = prepared(known.clone(), prepare)?;
        self.cache.put(tenant, known, generation);
        Ok(set)
    }
}

/// A lookup that continues in a task of its own when its delivery is dropped or exceeds its deadline.
///
/// The database behind it continues to work either way. If a sender could free its slot by disconnecting, any number of
/// senders could have any number of lookups running.
struct SpawnOnDrop(Option<Pin<Box<dyn Future<Output = FindResult> + Send>>>);

impl SpawnOnDrop {
    fn new(lookup: impl Future<Output = FindResult> + Send + 'static) -> Self {
        Self(Some(Box::pin(lookup)))
    }
}

impl Future for SpawnOnDrop {
    type Output = FindResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FindResult> {
        // Taken out of the option, since a lookup that panics must not be polled again.
        let Some(mut lookup) = self.0.take() else { return Poll::Pending };
        let answer = lookup.as_mut().poll(cx);
        if answer.is_pending() {
            self.0 = Some(lookup);
        }
        answer
    }
}

impl Drop for SpawnOnDrop {
    fn drop(&mut self) {
        if let (Some(lookup), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(lookup);
        }
    }
}

/// Returns the keys that a scheme makes from a cached result.
fn prepared(known: CachedKeys, prepare: &Arc<Prepare>) -> FindResult {
    Ok(known.map(|keys| keys.keys_for(prepare)).transpose()?)
}

impl fmt::Debug for TenantSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantSecrets").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Limits how many lookups run at once, and reserves some of them for tenants that were found before.
///
/// Anyone can make up names of tenants. A quarter of the slots is therefore reserved for tenants that the lookup has
/// found before: while made-up names fill the others, an expired tenant can still be looked up again.
pub(super) struct LookupSlots {
    all: Arc<Semaphore>,
    for_new_tenants: Arc<Semaphore>,
}

/// A permit to run one lookup. Dropping it releases the slot.
pub(super) struct Slot {
    _new_tenant: Option<OwnedSemaphorePermit>,
    _slot: Option<OwnedSemaphorePermit>,
}

impl LookupSlots {
    /// The limit is at least one, and at most what a semaphore can count.
    pub(super) fn new(lookups: usize) -> Self {
        let lookups = lookups.clamp(1, Semaphore::MAX_PERMITS);
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { all: semaphore(lookups), for_new_tenants: semaphore(lookups - lookups / 4) }
    }

    /// Waits for a slot, in order of arrival.
    pub(super) async fn acquire(&self, found_before: bool) -> Slot {
        // Neither semaphore is ever closed, so both permits are there.
        let new_tenant = if found_before { None } else { self.for_new_tenants.clone().acquire_owned().await.ok() };
        Slot { _new_tenant: new_tenant, _slot: self.all.clone().acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn strangers_leave_a_quarter_to_tenants_found_before() {
        let slots = LookupSlots::new(4);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(slots.acquire(false).await);
        }
        assert!(slots.for_new_tenants.try_acquire().is_err());
        held.push(slots.acquire(true).await);
        assert!(slots.all.try_acquire().is_err());
        held.clear();
        assert_eq!((slots.all.available_permits(), slots.for_new_tenants.available_permits()), (4, 3));
    }

    #[test]
    fn any_number_makes_at_least_one_slot() {
        for (lookups, all, for_new_tenants) in [(0, 1, 1), (1, 1, 1), (2, 2, 2), (32, 32, 24)] {
            let slots = LookupSlots::new(lookups);
            assert_eq!(
                (slots.all.available_permits(), slots.for_new_tenants.available_permits()),
                (all, for_new_tenants)
            );
        }
        LookupSlots::new(usize::MAX);
    }
}
