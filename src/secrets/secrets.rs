use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::set::{Lookup, Prepare, SecretSet, invalid};
use super::tenants::TenantSecrets;
use super::{Key, Secret};
use crate::error::ConfigError;
use crate::head::Head;
use crate::rejection::Rejection;

/// The secrets of one scheme: a set that rotates, or a lookup per tenant. Clones share them.
#[derive(Clone)]
pub struct Secrets {
    prepare: Arc<Prepare>,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Set(Arc<ArcSwap<SecretSet>>),
    Tenants(TenantSecrets),
}

impl Secrets {
    /// Creates the secrets of a scheme, which turns their text into keys with `prepare`.
    ///
    /// # Errors
    /// If there is no secret, if there are more than eight, if two have one label, or if `prepare` refuses one.
    pub fn new(
        input: impl IntoSecrets,
        prepare: impl Fn(&str) -> Result<Key, ConfigError> + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        let prepare: Arc<Prepare> = Arc::new(prepare);
        let source = match input.into_secrets()? {
            SecretsInput::Set(secrets) => {
                Source::Set(Arc::new(ArcSwap::from_pointee(SecretSet::new(&secrets, &*prepare)?)))
            }
            SecretsInput::Tenants(tenants) => Source::Tenants(tenants),
        };
        Ok(Self { prepare, source })
    }

    /// Replaces the whole set. A delivery in progress keeps the set that it began with.
    ///
    /// # Errors
    /// As [`Secrets::new`]. The set in use is then left alone. Also if the secrets come from a lookup.
    pub fn replace<T>(&self, secrets: impl IntoIterator<Item = T>) -> Result<(), ConfigError>
    where
        T: TryInto<Secret>,
        ConfigError: From<T::Error>,
    {
        let Source::Set(current) = &self.source else {
            return Err(invalid("these secrets come from a lookup: change what it returns, and call forget"));
        };
        let secrets = collect(secrets)?;
        current.store(Arc::new(SecretSet::new(&secrets, &*self.prepare)?));
        Ok(())
    }

    /// The set in use now; `None` if the secrets come from a lookup.
    #[must_use]
    pub fn current(&self) -> Option<Arc<SecretSet>> {
        match &self.source {
            Source::Set(current) => Some(current.load_full()),
            Source::Tenants(_) => None,
        }
    }

    /// The key that the scheme makes from the text of a secret.
    pub(crate) fn key(&self, text: &str) -> Result<Key, ConfigError> {
        (self.prepare)(text)
    }

    /// Loads the set for a delivery with this head, or starts the lookup of its tenant's secrets.
    pub(crate) fn begin(&self, head: &Head<'_>) -> Result<Found, Rejection> {
        match &self.source {
            Source::Set(current) => Ok(Found::Now(current.load())),
            Source::Tenants(tenants) => tenants.begin(head, &self.prepare).map(Found::Later),
        }
    }
}

/// The set of secrets, or the lookup that will find it.
pub(crate) enum Found {
    Now(Guard<Arc<SecretSet>>),
    Later(Lookup),
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Set(current) => f.debug_tuple("Secrets").field(&*current.load()).finish(),
            Source::Tenants(tenants) => f.debug_tuple("Secrets").field(tenants).finish(),
        }
    }
}

/// The secrets that a scheme can be built with: one, several that rotate, or a lookup per tenant.
///
/// A text, a [`Secret`], an array or a `Vec` of them, and [`TenantSecrets`] are such. It cannot be implemented outside of
/// this crate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a secret",
    label = "expected one or more secrets",
    note = "pass a text, a `Secret`, an array or a `Vec` of them, or `TenantSecrets` for a lookup per tenant",
    note = "read an environment variable with `std::env::var(…)?`"
)]
pub trait IntoSecrets {
    /// Validates the secrets and returns them.
    ///
    /// # Errors
    /// If a secret is invalid.
    #[doc(hidden)]
    fn into_secrets(self) -> Result<SecretsInput, ConfigError>;
}

/// The validated secrets that [`IntoSecrets`] returns. Not exported, so that no other crate can implement the trait.
#[derive(Debug)]
pub enum SecretsInput {
    /// A set that can be replaced at run time.
    Set(Vec<Secret>),
    /// A lookup per tenant.
    Tenants(TenantSecrets),
}

impl IntoSecrets for TenantSecrets {
    fn into_secrets(self) -> Result<SecretsInput, ConfigError> {
        Ok(SecretsInput::Tenants(self))
    }
}

impl IntoSecrets for Secret {
    fn into_secrets(self) -> Result<SecretsInput, ConfigError> {
        [self].into_secrets()
    }
}

impl IntoSecrets for &str {
    fn into_secrets(self) -> Result<SecretsInput, ConfigError> {
        [self].into_secrets()
    }
}

impl IntoSecrets for String {
    fn into_secrets(self) -> Result<SecretsInput, ConfigError> {
        [self].into_secrets()
    }
}

impl<T> IntoSecrets for Vec<T>
where
    T: TryInto<Secret>,
    ConfigError: From<T::Error>,
{
    fn into_secrets(self) -> Result<SecretsInput, ConfigError> {
        collect(self).map(SecretsInput::Set)
    }
}

impl<T, const N: usize> IntoSecrets for [T; N]
where
    T: TryInto<Secret>,
    ConfigError: From<T::Error>,
{
    fn into_secrets(self) -> Result<SecretsInput, ConfigError> {
        collect(self).map(SecretsInput::Set)
    }
}

impl TryFrom<&str> for Secret {
    type Error = ConfigError;

    fn try_from(text: &str) -> Result<Self, ConfigError> {
        Self::new(text)
    }
}

impl TryFrom<String> for Secret {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        Self::new(text)
    }
}

impl From<Infallible> for ConfigError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<Secret>, ConfigError>
where
    T: TryInto<Secret>,
    ConfigError: From<T::Error>,
{
    items.into_iter().map(|item| item.try_into().map_err(ConfigError::from)).collect()
}
