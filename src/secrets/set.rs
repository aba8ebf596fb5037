use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::{ArcSwap, Guard};

use super::input::{self, IntoSecrets, SecretsInput};
use super::tenants::TenantSecrets;
use super::{MacKey, Secret};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::head::Head;
use crate::rejection::Rejection;

/// The most secrets that may be active at once: every one of them costs a MAC per delivery.
const MOST_SECRETS: usize = 8;

/// How a scheme turns the text of a secret into key material.
pub(super) type Prepare = fn(&str) -> Result<MacKey, ConfigError>;

/// The secrets of one scheme: a set that rotates, or a lookup per tenant. Clones share it.
#[derive(Clone)]
pub struct Secrets {
    prepare: Prepare,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Set(Arc<ArcSwap<SecretSet>>),
    Tenants(TenantSecrets),
}

impl Secrets {
    /// The secrets of a scheme that makes key material of their text with `prepare`.
    ///
    /// # Errors
    /// When there is no secret, more than eight, two under one label, or one that `prepare` refuses.
    pub fn new(input: impl IntoSecrets, prepare: fn(&str) -> Result<MacKey, ConfigError>) -> Result<Self, ConfigError> {
        let source = match input.into_secrets()? {
            SecretsInput::Set(secrets) => {
                Source::Set(Arc::new(ArcSwap::from_pointee(SecretSet::new(&secrets, prepare)?)))
            }
            SecretsInput::Tenants(tenants) => Source::Tenants(tenants),
        };
        Ok(Self { prepare, source })
    }

    /// Replaces the whole set. A delivery that is under way goes on with the set that it began with.
    ///
    /// # Errors
    /// As [`Secrets::new`]; the set in use is then left alone. Also when the secrets come from a lookup.
    pub fn replace<T>(&self, secrets: impl IntoIterator<Item = T>) -> Result<(), ConfigError>
    where
        T: TryInto<Secret>,
        ConfigError: From<T::Error>,
    {
        let Source::Set(current) = &self.source else {
            return Err(refused("these secrets come from a lookup: change what it answers, and call forget"));
        };
        let secrets = input::collect(secrets)?;
        current.store(Arc::new(SecretSet::new(&secrets, self.prepare)?));
        Ok(())
    }

    /// The set in use now; `None` when the secrets come from a lookup.
    #[must_use]
    pub fn current(&self) -> Option<Arc<SecretSet>> {
        match &self.source {
            Source::Set(current) => Some(current.load_full()),
            Source::Tenants(_) => None,
        }
    }

    /// The secrets for the delivery with this head, or the question to the lookup.
    pub(crate) fn begin(&self, head: &Head<'_>) -> Result<Found, Rejection> {
        match &self.source {
            Source::Set(current) => Ok(Found::Now(current.load())),
            Source::Tenants(tenants) => tenants.begin(head, self.prepare).map(Found::Later),
        }
    }
}

/// Secrets at hand, or still to be looked up.
pub(crate) enum Found {
    Now(Guard<Arc<SecretSet>>),
    Later(Lookup),
}

/// A question to a tenants' lookup.
pub(crate) type Lookup = Pin<Box<dyn Future<Output = Result<Snapshot, Rejection>> + Send>>;

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Set(current) => f.debug_tuple("Secrets").field(&*current.load()).finish(),
            Source::Tenants(tenants) => f.debug_tuple("Secrets").field(tenants).finish(),
        }
    }
}

/// The secrets that were looked up for one delivery, and whose they are.
pub(crate) struct Snapshot {
    pub(crate) set: Arc<SecretSet>,
    pub(crate) tenant: Arc<str>,
}

/// An immutable set of prepared secrets.
pub struct SecretSet(Box<[Prepared]>);

struct Prepared {
    label: Arc<str>,
    expires_at: Option<SystemTime>,
    key: MacKey,
}

impl SecretSet {
    pub(super) fn new(secrets: &[Secret], prepare: Prepare) -> Result<Self, ConfigError> {
        if secrets.is_empty() {
            return Err(refused("no secret was given: deliveries cannot be verified without one"));
        }
        if secrets.len() > MOST_SECRETS {
            return Err(refused("more than 8 secrets were given: remove those that no sender uses any more"));
        }
        let prepared = secrets.iter().enumerate().map(|(index, secret)| Prepared::new(index, secret, prepare));
        let prepared: Box<[Prepared]> = prepared.collect::<Result<_, _>>()?;
        let labels: std::collections::HashSet<_> = prepared.iter().map(|secret| &secret.label).collect();
        if labels.len() != prepared.len() {
            return Err(refused("two secrets have one label: telemetry could not tell them apart"));
        }
        Ok(Self(prepared))
    }

    /// The label and the key of every secret that counts at `now`.
    pub fn active(&self, now: SystemTime) -> impl Iterator<Item = (&Arc<str>, &MacKey)> {
        self.0
            .iter()
            .filter(move |secret| secret.expires_at.is_none_or(|expiry| now < expiry))
            .map(|secret| (&secret.label, &secret.key))
    }
}

impl Prepared {
    fn new(index: usize, secret: &Secret, prepare: Prepare) -> Result<Self, ConfigError> {
        let label = secret.given_label().cloned().unwrap_or_else(|| (index + 1).to_string().into());
        Ok(Self { label, expires_at: secret.expiry(), key: prepare(secret.text())? })
    }
}

impl fmt::Debug for SecretSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|secret| (&secret.label, secret.expires_at))).finish()
    }
}

fn refused(message: &str) -> ConfigError {
    ConfigError::new(ConfigErrorKind::Secrets, message)
}
