use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};

use super::{Head, Profile, Proof};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::random;
use crate::rejection::{Rejection, RejectionKind};
use crate::secrets::{Key, SecretSet, Secrets};

/// How a provider signs, and with which secrets.
///
/// A scheme only reads the proof, and says what is signed. The layer computes the MACs, compares them, enforces the
/// limits and orders the checks, so that no scheme can get them wrong.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a scheme",
    label = "expected a scheme: what verifies the sender's signature",
    note = "use a preset such as `scheme::stripe(secret)?`, describe one with `scheme::Template::builder`, or implement `scheme::Scheme`"
)]
pub trait Scheme: Send + Sync + 'static {
    /// A short, stable name, such as `stripe`. It is the endpoint's name unless another is known.
    fn name(&self) -> &str;

    /// The secrets that the scheme was built with.
    fn secrets(&self) -> &Secrets;

    /// Reads the proof from the head: signatures, the signed text around the body, and the time of signing. A proof
    /// that can be refused here is refused before the body is read. The function is pure: it takes the time from
    /// [`head.now()`](Head::now) only.
    ///
    /// # Errors
    /// A [`Rejection`] that says what is wrong with the proof.
    fn read(&self, head: &Head<'_>) -> Result<Proof, Rejection>;

    /// Reads the proofs from the body, for a scheme whose [`read`](Scheme::read) returned [`Proof::in_body`]. All of
    /// the proofs must hold. The body is not verified yet, and may contain anything.
    ///
    /// # Errors
    /// A [`Rejection`] that says what is wrong with the proof.
    fn read_body(&self, head: &Head<'_>, body: &[u8]) -> Result<Vec<Proof>, Rejection> {
        let _ = (head, body);
        Err(RejectionKind::MissingSignature.into())
    }

    /// Signs `message` so that [`read`](Scheme::read) accepts it: adds headers, or other carriers of the signature. It
    /// signs with every active secret if the scheme has room for several signatures, else with the first.
    ///
    /// # Errors
    /// If the message cannot be signed, for instance because no secret is active.
    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError>;

    /// Facts about the provider: where its ids are, how long it waits and retries.
    fn profile(&self) -> Profile {
        Profile::default()
    }

    /// Describes the signed content and the algorithm in words: `HMAC-SHA256 of {timestamp}.{body}`.
    fn signs(&self) -> String {
        "a scheme of its own".to_owned()
    }

    /// The URL that this delivery was sent to, as the scheme takes it to be signed; `None` if the scheme signs no URL.
    /// Only [`diagnose`](fn@super::diagnose) asks, after a delivery was refused.
    fn signed_url(&self, head: &Head<'_>) -> Option<String> {
        let _ = head;
        None
    }

    /// The same scheme for deliveries that were sent to exactly `url`, with which [`diagnose`](fn@super::diagnose) finds
    /// out whether a proxy has changed the URL. `None` if the scheme signs no URL, or if `url` is not one.
    fn at_url(&self, url: &str) -> Option<Arc<dyn Scheme>> {
        let _ = url;
        None
    }

    /// Answers an unsigned request that the provider sends to validate the endpoint, by another method than events
    /// have. `None` leaves the request to the layer's 405. Anyone can cause such a response, so be careful what it
    /// echoes. The layer must see the request: on an axum `Router` it does, on `post(handler)` itself it does not.
    fn probe(&self, head: &Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> {
        let _ = head;
        None
    }

    /// Answers a verified delivery that is not an event, but validates the endpoint. `key` is the key that verified it.
    /// A signed response must not sign arbitrary input, or it becomes a signing oracle.
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

    fn signed_url(&self, head: &Head<'_>) -> Option<String> {
        (**self).signed_url(head)
    }

    fn at_url(&self, url: &str) -> Option<Arc<dyn Scheme>> {
        (**self).at_url(url)
    }

    fn probe(&self, head: &Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> {
        (**self).probe(head)
    }

    fn handshake(&self, body: &[u8], key: &Key) -> Option<Response<Bytes>> {
        (**self).handshake(body, key)
    }
}

/// A message to be signed: the request as it will be sent, without what the scheme adds.
#[derive(Clone)]
#[non_exhaustive]
pub struct Outgoing {
    /// The method, the URI, the existing headers, and the exact bytes of the body.
    pub request: Request<Bytes>,
    /// The time of signing. It decides which secrets are active.
    pub signed_at: SystemTime,
    /// The event's id, for schemes that sign one.
    pub id: String,
}

impl Outgoing {
    /// Creates a `POST` of this body, signed now, with a generated id.
    pub fn new(body: impl Into<Bytes>) -> Self {
        let mut request = Request::new(body.into());
        *request.method_mut() = http::Method::POST;
        Self { request, signed_at: SystemTime::now(), id: format!("msg_{:032x}", random::bits()) }
    }

    /// Sets the time of signing.
    #[must_use]
    pub fn signed_at(mut self, time: SystemTime) -> Self {
        self.signed_at = time;
        self
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        self.request.body()
    }

    /// Adds a header, or replaces it.
    ///
    /// # Errors
    /// If the text is not a valid header value.
    pub fn set_header(&mut self, name: &HeaderName, text: &str) -> Result<(), ConfigError> {
        let value = HeaderValue::try_from(text).map_err(|_| {
            ConfigError::new(ConfigErrorKind::Name, format!("{name}: this is not a valid header value"))
        })?;
        self.request.headers_mut().insert(name, value);
        Ok(())
    }

    /// The head, as a receiver will see it.
    pub(super) fn parts(&self) -> Parts {
        let mut copy = Request::new(());
        *copy.method_mut() = self.request.method().clone();
        *copy.uri_mut() = self.request.uri().clone();
        *copy.headers_mut() = self.request.headers().clone();
        copy.into_parts().0
    }

    pub(super) fn unix_millis(&self) -> Result<u128, ConfigError> {
        let since = self.signed_at.duration_since(UNIX_EPOCH);
        since
            .map(|since| since.as_millis())
            .map_err(|_| ConfigError::new(ConfigErrorKind::Duration, "the time of signing is before 1970"))
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("id", &self.id)
            .field("signed_at", &self.signed_at)
            .field("body_length", &self.body().len())
            .finish_non_exhaustive()
    }
}
