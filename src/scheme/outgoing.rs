use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};

use crate::error::{ConfigError, ConfigErrorKind};
use crate::random;

/// A message to be signed: the request as it is to be sent, but for what the scheme adds.
#[derive(Clone)]
#[non_exhaustive]
pub struct Outgoing {
    /// The method, the URI, the headers that are there already, and the exact bytes of the body.
    pub request: Request<Bytes>,
    /// When it is signed; decides which secrets are active.
    pub signed_at: SystemTime,
    /// The event's id, for schemes that sign one.
    pub id: String,
}

impl Outgoing {
    /// A `POST` of this body, signed now, under an id of its own.
    pub fn new(body: impl Into<Bytes>) -> Self {
        let mut request = Request::new(body.into());
        *request.method_mut() = http::Method::POST;
        Self { request, signed_at: SystemTime::now(), id: format!("msg_{:032x}", random::bits()) }
    }

    /// The same message, signed at another time.
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
    /// When the text does not fit a header.
    pub fn set_header(&mut self, name: &HeaderName, text: &str) -> Result<(), ConfigError> {
        let value = HeaderValue::try_from(text)
            .map_err(|_| ConfigError::new(ConfigErrorKind::Name, format!("{name}: this does not fit a header")))?;
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
            .map_err(|_| ConfigError::new(ConfigErrorKind::Duration, "this was signed before 1970"))
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
