use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;

use super::{Head, Profile, Proof};
use crate::error::ConfigError;
use crate::rejection::Rejection;
use crate::secrets::{SecretSet, Secrets};

/// How a provider signs, and with which secrets.
///
/// A scheme only reads and writes headers. The MACs, the comparison, the caps and the order of checks are the layer's,
/// so that no scheme can get them wrong.
pub trait Scheme: Send + Sync + 'static {
    /// A short, stable name, such as `stripe`: the endpoint's name where nothing better is known.
    fn name(&self) -> &str;

    /// The secrets that it was built with.
    fn secrets(&self) -> &Secrets;

    /// Reads what the head claims: signatures, what is signed around the body, and when it was signed. Everything that
    /// can be refused here is refused before the body is read. Pure: all it knows of time is
    /// [`head.now()`](Head::now).
    ///
    /// # Errors
    /// A [`Rejection`] that says what is wrong with the proof.
    fn read(&self, head: &Head<'_>) -> Result<Proof, Rejection>;

    /// The headers that [`Scheme::read`] accepts for this message, signed with every active secret.
    ///
    /// # Errors
    /// When the message cannot be signed, for instance because no secret is active.
    fn sign(&self, message: &Outgoing<'_>, secrets: &SecretSet) -> Result<HeaderMap, ConfigError>;

    /// What is known of the provider: where its ids are, how long it waits and retries.
    fn profile(&self) -> Profile {
        Profile::default()
    }
}

impl<S: Scheme + ?Sized> Scheme for Arc<S> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn secrets(&self) -> &Secrets {
        (**self).secrets()
    }

    fn read(&self, head: &Head<'_>) -> Result<Proof, Rejection> {
        (**self).read(head)
    }

    fn sign(&self, message: &Outgoing<'_>, secrets: &SecretSet) -> Result<HeaderMap, ConfigError> {
        (**self).sign(message, secrets)
    }

    fn profile(&self) -> Profile {
        (**self).profile()
    }
}

/// A message to be signed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Outgoing<'a> {
    /// When it is signed; decides which secrets are active.
    pub timestamp: SystemTime,
    /// The exact bytes of the body.
    pub body: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// A message signed now.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Self { timestamp: SystemTime::now(), body }
    }

    /// The same message, signed at another time.
    #[must_use]
    pub fn signed_at(mut self, timestamp: SystemTime) -> Self {
        self.timestamp = timestamp;
        self
    }
}
