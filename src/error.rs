//! Errors in a configuration.

use std::error::Error;
use std::fmt;

use crate::rejection::Rejection;

/// A configuration of a receiver, a scheme or a secret that cannot work. It is found when the value is built.
///
/// The message says what is wrong and what to do. It never contains a secret. `Debug` shows the message, too, so that a
/// `main` that returns the error prints a sentence.
///
/// ```
/// use tower_webhook::{ConfigErrorKind, scheme};
///
/// let error = scheme::stripe("sk_live_51…").expect_err("that is an API key");
/// assert_eq!(error.kind(), ConfigErrorKind::Secret);
/// println!("{error}"); // says what belongs there, and where it is found
/// ```
pub struct ConfigError {
    kind: ConfigErrorKind,
    message: Box<str>,
}

/// The part of a configuration that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// A secret is empty, blank, begins or ends with white space, or is not in its scheme's encoding.
    Secret,
    /// There are too many secrets, none at all, or two with one label.
    Secrets,
    /// A duration is zero, or too long to count.
    Duration,
    /// A limit would refuse everything.
    Limit,
    /// A text is not the name of a header, a field or an endpoint.
    Name,
    /// The description of a scheme is invalid or incomplete.
    Scheme,
    /// A feature of this crate is not enabled.
    Feature,
}

impl ConfigError {
    /// Creates an error for a custom scheme or store. `message` must not contain a secret.
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
        Self::scheme(format!("this cannot be signed, since it would be refused: {rejection}"))
    }

    /// Prefixes the message with the name of a scheme.
    pub(crate) fn in_scheme(self, scheme: &str) -> Self {
        Self { message: format!("{scheme}: {}", self.message).into(), ..self }
    }

    /// The part that is wrong.
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

/// Shows the message: it is what `unwrap`, and a `main` that returns the error, print.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ConfigError {}

/// The messages of an error and of its causes.
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

/// Validates a number from a configuration: it must not be zero.
pub(crate) fn positive(number: usize, what: &str) -> Result<(), ConfigError> {
    match number {
        0 => Err(ConfigError::new(
            ConfigErrorKind::Limit,
            format!("{what} must not be zero: it would refuse everything"),
        )),
        _ => Ok(()),
    }
}
