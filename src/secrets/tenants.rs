use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::set::{Lookup, Prepare, SecretSet};
use super::tenant_cache::{Known, TenantCache};
use super::{Secret, Snapshot};
use crate::head::Head;
use crate::key::is_name;
use crate::rejection::{Rejection, RejectionKind};
use crate::telemetry;

type LookupError = Box<dyn Error + Send + Sync>;
type TenantOf = dyn Fn(&Head<'_>) -> Option<String> + Send + Sync;
type LookupAnswer = Pin<Box<dyn Future<Output = Result<Option<Vec<Secret>>, LookupError>> + Send>>;

/// Secrets looked up per request, for routes that serve many tenants.
///
/// The first function names the tenant from the head of the request; the second finds that tenant's secrets, or `None`
/// if there is no such tenant. It is asked after everything that the headers alone can refuse, and before the body is
/// read. Answers are cached, unknown tenants too and apart from known ones, so that made-up names cannot push real
/// ones out; of concurrent requests for one tenant only one asks. An unknown tenant gets the same 401 as a wrong
/// signature; a lookup that fails, or exceeds its deadline, a 503. The tenant becomes part of the event's key.
///
/// The name becomes part of the key as `tenant_of` writes it, and nothing signs it. If the lookup takes several spellings for one
/// tenant, `tenant_of` must make them one: otherwise a captured delivery could be replayed under another spelling.
///
/// The 401 of an unknown tenant comes before the body is read, so whoever times it can tell which tenants exist: name them
/// by something that is no secret, or cannot be guessed.
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
    lookup: Arc<dyn Fn(String) -> LookupAnswer + Send + Sync>,
    deadline: Duration,
    in_key: bool,
    cache: Arc<TenantCache>,
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
        }
    }

    /// How many tenants are remembered, and for how long (default 10,000 for 60 s). A rotated or revoked secret takes
    /// effect after that time at the latest, or at once with [`TenantSecrets::forget`].
    #[must_use]
    pub fn cache(mut self, tenants: usize, time: Duration) -> Self {
        self.cache = Arc::new(TenantCache::new(tenants, time));
        self
    }

    /// What is named is a key that the sender signed with, and not a tenant: it does not become part of the event's key, or a
    /// retry that is signed with the next one would run again.
    #[must_use]
    pub fn by_key_id(mut self) -> Self {
        self.in_key = false;
        self
    }

    /// How long a lookup may take (default 2 s).
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Forgets what is cached of `tenant`: its next delivery asks again.
    pub fn forget(&self, tenant: &str) {
        self.cache.forget(tenant);
    }

    pub(super) fn begin(&self, head: &Head<'_>, prepare: &Arc<Prepare>) -> Result<Lookup, Rejection> {
        // Anybody can send anything here.
        let tenant = (self.tenant_of)(head).filter(|tenant| is_name(tenant));
        let tenant: Arc<str> = tenant.ok_or(RejectionKind::UnknownTenant)?.into();
        let (this, prepare) = (self.clone(), prepare.clone());
        Ok(Box::pin(async move { this.snapshot(tenant, &*prepare).await }))
    }

    async fn snapshot(&self, tenant: Arc<str>, prepare: &Prepare) -> Result<Snapshot, Rejection> {
        match self.find(&tenant, prepare).await {
            Ok(Some(set)) => Ok(Snapshot { set, tenant: Some(tenant).filter(|_| self.in_key) }),
            Ok(None) => Err(RejectionKind::UnknownTenant.into()),
            Err(error) => {
                telemetry::lookup_failed(&tenant, &*error);
                Err(RejectionKind::SecretsUnavailable.into())
            }
        }
    }

    async fn find(&self, tenant: &Arc<str>, prepare: &Prepare) -> Result<Known, LookupError> {
        if let Some(known) = self.cache.get(tenant) {
            return Ok(known);
        }
        let flight = self.cache.flight(tenant);
        let asking = async {
            let _turn = flight.turn().await;
            // Whoever had the turn before may have found it.
            if let Some(known) = self.cache.get(tenant) {
                return Ok(known);
            }
            let asked = self.cache.forgotten();
            let secrets = (self.lookup)(tenant.to_string()).await?;
            let known = secrets.map(|secrets| SecretSet::new(&secrets, prepare).map(Arc::new)).transpose()?;
            self.cache.put(tenant, known.clone(), asked);
            Ok(known)
        };
        tokio::time::timeout(self.deadline, asking).await.unwrap_or_else(|late| Err(late.into()))
    }
}

impl fmt::Debug for TenantSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantSecrets").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
