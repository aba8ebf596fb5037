use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};

use crate::error::{ConfigError, ConfigErrorKind};
use crate::random;

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
