//! What is known of a delivery before its body is read.

use std::fmt;
use std::time::SystemTime;

use http::header::{AsHeaderName, HeaderMap, HeaderName};
use http::{Extensions, Method, Uri, request::Parts};

use crate::error::{ConfigError, ConfigErrorKind};
use crate::rejection::{Rejection, RejectionKind};

/// The longest signature header that is looked at.
pub(crate) const HEADER_CAP: usize = 4 * 1024;

/// The head of one delivery, and the one `now` that all of its checks share.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    parts: &'a Parts,
    now: SystemTime,
}

impl<'a> Head<'a> {
    /// The head of a request received at `now`.
    #[must_use]
    pub const fn new(parts: &'a Parts, now: SystemTime) -> Self {
        Self { parts, now }
    }

    /// When the delivery was received, on the wall clock.
    #[must_use]
    pub const fn now(&self) -> SystemTime {
        self.now
    }

    /// The request's method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        &self.parts.method
    }

    /// The request's URI as this server sees it, which is not always what the sender signed.
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        &self.parts.uri
    }

    /// The request's headers.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        &self.parts.headers
    }

    /// What outer layers have put into the request.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        &self.parts.extensions
    }

    /// The one value of a header that carries a proof: refused when it is absent, empty, repeated or too long.
    ///
    /// # Errors
    /// A [`Rejection`] that says which.
    pub fn proof_header(&self, name: impl AsHeaderName) -> Result<&'a [u8], Rejection> {
        let mut values = self.parts.headers.get_all(name).into_iter();
        let value = values.next().ok_or(RejectionKind::MissingSignature)?.as_bytes();
        if values.next().is_some() {
            return Err(RejectionKind::RepeatedSignature.into());
        }
        match value.len() {
            0 => Err(RejectionKind::MissingSignature.into()),
            1..=HEADER_CAP => Ok(value),
            _ => Err(Rejection::with_detail(RejectionKind::MalformedSignature, "it is longer than 4 KiB")),
        }
    }

    /// The text of a header that is there once; `None` when it is absent, repeated or not visible ASCII.
    #[must_use]
    pub fn text_header(&self, name: impl AsHeaderName) -> Option<&'a str> {
        let mut values = self.parts.headers.get_all(name).into_iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }
}

impl fmt::Debug for Head<'_> {
    /// The method and the path: headers may carry credentials, and a query may, too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, path) = (self.method(), self.uri().path());
        f.debug_struct("Head").field("method", method).field("path", &path).finish_non_exhaustive()
    }
}

/// The name of a header, as a configuration gives it.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    name.parse().map_err(|_| ConfigError::new(ConfigErrorKind::Name, format!("{name:?} is not the name of a header")))
}
