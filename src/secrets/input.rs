use std::convert::Infallible;

use super::{Secret, TenantSecrets};
use crate::error::ConfigError;

/// What a scheme can be built with: one secret, several that rotate, or a lookup per tenant.
pub trait IntoSecrets {
    /// Checks the secrets and hands them over.
    ///
    /// # Errors
    /// When one of them cannot be a secret.
    fn into_secrets(self) -> Result<SecretsInput, ConfigError>;
}

/// What [`IntoSecrets`] hands to a scheme.
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

pub(super) fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<Secret>, ConfigError>
where
    T: TryInto<Secret>,
    ConfigError: From<T::Error>,
{
    items.into_iter().map(|item| item.try_into().map_err(ConfigError::from)).collect()
}
