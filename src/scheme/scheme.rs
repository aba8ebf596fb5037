use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::{Head, Outgoing, Profile, Proof};
use crate::error::ConfigError;
use crate::rejection::{Rejection, RejectionKind};
use crate::secrets::{Key, SecretSet, Secrets};

/// How a provider signs, and with which secrets.
///
/// A scheme only says what is claimed and what is signed. The MACs, the comparison, the caps and the order of checks are the
/// layer's, so that no scheme can get them wrong.
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

    /// Reads what the body claims, for a scheme whose [`read`](Scheme::read) gave [`Proof::in_body`]. Every one of the proofs
    /// must hold. The body is not verified yet: it can be anything.
    ///
    /// # Errors
    /// A [`Rejection`] that says what is wrong with the proof.
    fn read_body(&self, head: &Head<'_>, body: &[u8]) -> Result<Vec<Proof>, Rejection> {
        let _ = (head, body);
        Err(RejectionKind::MissingSignature.into())
    }

    /// Makes `message` one that [`read`](Scheme::read) accepts: adds headers, or whatever else carries the signature. Signed
    /// with every active secret where the scheme has room for several, else with the first.
    ///
    /// # Errors
    /// When the message cannot be signed, for instance because no secret is active.
    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError>;

    /// What is known of the provider: where its ids are, how long it waits and retries.
    fn profile(&self) -> Profile {
        Profile::default()
    }

    /// What is signed, and how, for people: `HMAC-SHA256 of {timestamp}.{body}`.
    fn signs(&self) -> String {
        "a scheme of its own".to_owned()
    }

    /// Answers a request of another method than events have, which the provider sends unsigned to validate the endpoint.
    /// `None` leaves it to the layer's 405. Whatever it echoes, anybody can have it echo. The layer must see the request: on an axum
    /// `Router` it does, on `post(handler)` itself it does not.
    fn probe(&self, head: &Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> {
        let _ = head;
        None
    }

    /// Answers a verified delivery that is no event, but validates the endpoint. `key` is the one that verified it. An answer
    /// that is signed must not sign whatever it is given, or it is an oracle.
    fn handshake(&self, body: &[u8], key: &Key) -> Option<Response<Bytes>> {
        let _ = (body, key);
        None
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

    fn read_body(&self, head: &Head<'_>, body: &[u8]) -> Result<Vec<Proof>, Rejection> {
        (**self).read_body(head, body)
    }

    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        (**self).sign(message, secrets)
    }

    fn profile(&self) -> Profile {
        (**self).profile()
    }

    fn signs(&self) -> String {
        (**self).signs()
    }

    fn probe(&self, head: &Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> {
        (**self).probe(head)
    }

    fn handshake(&self, body: &[u8], key: &Key) -> Option<Response<Bytes>> {
        (**self).handshake(body, key)
    }
}
