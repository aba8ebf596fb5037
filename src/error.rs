//! What is wrong with a configuration.

use std::error::Error;
use std::fmt;

use crate::rejection::Rejection;

/// A receiver, a scheme or a secret that cannot work as configured, found when it is built.
///
/// It says what was wrong and what to do; it never contains a secret.
#[derive(Debug)]
pub struct ConfigError {
    kind: ConfigErrorKind,
    message: Box<str>,
}

/// Which part of a configuration is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// A secret is empty, blank, edged with white space, or not in its scheme's encoding.
    Secret,
    /// Too many secrets, none at all, or two under one label.
    Secrets,
    /// A duration that cannot work: zero, or too long to count.
    Duration,
    /// A limit that would refuse everything.
    Limit,
    /// Not the name of a header, a field or an endpoint.
    Name,
    /// A scheme's description that cannot be read, or that lacks something.
    Scheme,
    /// A feature of this crate that is not enabled.
    Feature,
}

impl ConfigError {
    /// An error for a scheme or a store of one's own; `message` must not contain a secret.
    pub fn new(kind: ConfigErrorKind, message: impl Into<Box<str>>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn secret(message: impl Into<Box<str>>) -> Self {
        Self::new(ConfigErrorKind::Secret, message)
    }

    pub(crate) fn scheme(message: impl Into<Box<str>>) -> Self {
        Self::new(ConfigErrorKind::Scheme, message)
    }

    #[cfg_attr(all(feature = "sha1", feature = "ed25519", feature = "p256"), expect(dead_code))]
    pub(crate) fn feature(name: &str) -> Self {
        Self::new(ConfigErrorKind::Feature, format!("this needs the feature {name:?} of tower-webhook: enable it"))
    }

    pub(crate) fn unsignable(rejection: &Rejection) -> Self {
        Self::scheme(format!("this cannot be signed, it would be refused: {rejection}"))
    }

    /// The same error, of the scheme with this name.
    pub(crate) fn in_scheme(self, scheme: &str) -> Self {
        Self { message: format!("{scheme}: {}", self.message).into(), ..self }
    }

    /// Which part is wrong.
    #[must_use]
    pub const fn kind(&self) -> ConfigErrorKind {
        self.kind
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ConfigError {}

/// What an error says, and what its causes say.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// A number of which there must be some, as a configuration gives it.
pub(crate) fn positive(number: usize, what: &str) -> Result<(), ConfigError> {
    match number {
        0 => Err(ConfigError::new(
            ConfigErrorKind::Limit,
            format!("{what} must not be zero: it would refuse everything"),
        )),
        _ => Ok(()),
    }
}
