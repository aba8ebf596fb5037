use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use super::{Key, Secret};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::rejection::Rejection;

/// The most secrets that may be active at once. Each of them costs a MAC per delivery.
const MAX_SECRETS: usize = 8;

/// Turns the text of a secret into key material, as the scheme defines it.
pub(super) type Prepare = dyn Fn(&str) -> Result<Key, ConfigError> + Send + Sync;

/// An immutable set of prepared secrets.
pub struct SecretSet(Box<[Arc<Prepared>]>);

/// One secret with its key, ready to verify with.
pub(crate) struct Prepared {
    pub(crate) label: Box<str>,
    pub(crate) key: Key,
    expires_at: Option<SystemTime>,
}

impl SecretSet {
    pub(super) fn new(secrets: &[Secret], prepare: &Prepare) -> Result<Self, ConfigError> {
        if secrets.is_empty() {
            return Err(invalid("no secret was given: deliveries cannot be verified without one"));
        }
        if secrets.len() > MAX_SECRETS {
            return Err(invalid("more than 8 secrets were given: remove those that no sender uses any more"));
        }
        let prepared =
            secrets.iter().enumerate().map(|(index, secret)| Prepared::new(index, secret, prepare).map(Arc::new));
        let prepared: Box<[Arc<Prepared>]> = prepared.collect::<Result<_, _>>()?;
        let labels: std::collections::HashSet<_> = prepared.iter().map(|secret| &secret.label).collect();
        if labels.len() != prepared.len() {
            return Err(invalid("two secrets have one label: telemetry could not tell them apart"));
        }
        Ok(Self(prepared))
    }

    /// The label and the key of every secret that is active at `now`.
    pub fn active(&self, now: SystemTime) -> impl Iterator<Item = (&str, &Key)> {
        self.prepared(now).map(|secret| (&*secret.label, &secret.key))
    }

    /// The key of the first secret that is active at `now`. A sender with room for one signature signs with it.
    ///
    /// # Errors
    /// If every secret has expired.
    pub fn first_active(&self, now: SystemTime) -> Result<&Key, ConfigError> {
        let mut active = self.active(now);
        active.next().map(|(_, key)| key).ok_or_else(|| invalid("every secret has expired: there is none to sign with"))
    }

    /// A set of any number of keys that never expire, to try them on one delivery.
    pub(crate) fn of(keys: impl IntoIterator<Item = Arc<Prepared>>) -> Arc<Self> {
        Arc::new(Self(keys.into_iter().collect()))
    }

    /// The label and the key of every secret that has expired at `now`.
    pub(crate) fn expired(&self, now: SystemTime) -> impl Iterator<Item = (&str, &Key)> {
        let expired = self.0.iter().filter(move |secret| secret.expires_at.is_some_and(|expiry| now >= expiry));
        expired.map(|secret| (&*secret.label, &secret.key))
    }

    pub(crate) fn prepared(&self, now: SystemTime) -> impl Iterator<Item = &Arc<Prepared>> {
        self.0.iter().filter(move |secret| secret.expires_at.is_none_or(|expiry| now < expiry))
    }
}

impl Prepared {
    /// A key that never expires.
    pub(crate) fn unlabelled(key: Key) -> Arc<Self> {
        Arc::new(Self { label: Box::default(), key, expires_at: None })
    }

    fn new(index: usize, secret: &Secret, prepare: &Prepare) -> Result<Self, ConfigError> {
        let label = secret.given_label().map_or_else(|| (index + 1).to_string().into(), |label| Box::from(&**label));
        Ok(Self { label, expires_at: secret.expiry(), key: prepare(secret.text())? })
    }
}

impl fmt::Debug for SecretSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|secret| (&secret.label, secret.expires_at))).finish()
    }
}

/// The secrets that were looked up for one delivery, and the tenant that goes into the event's key, if any.
pub(crate) struct Snapshot {
    pub(crate) set: Arc<SecretSet>,
    pub(crate) tenant: Option<Arc<str>>,
}

/// A pending lookup of a tenant's secrets.
pub(crate) type Lookup = Pin<Box<dyn Future<Output = Result<Snapshot, Rejection>> + Send>>;

pub(super) fn invalid(message: &str) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Secrets, message)
}
