//! The head of a delivery: everything that is known before its body is read.

use std::borrow::Cow;
use std::fmt;
use std::time::SystemTime;

use http::header::{AsHeaderName, HeaderMap, HeaderName};
use http::{Extensions, Method, Uri, request::Parts};

use crate::error::{ConfigError, ConfigErrorKind};
use crate::rejection::{Rejection, RejectionKind};

/// The longest signature header that is read.
pub(crate) const HEADER_CAP: usize = 4 * 1024;

/// The head of one delivery, and the `now` that all of its checks share.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    parts: &'a Parts,
    now: SystemTime,
}

impl<'a> Head<'a> {
    /// Creates the head of a request received at `now`.
    #[must_use]
    pub const fn new(parts: &'a Parts, now: SystemTime) -> Self {
        Self { parts, now }
    }

    pub(crate) const fn parts(&self) -> &'a Parts {
        self.parts
    }

    /// The time at which the delivery was received, on the wall clock.
    #[must_use]
    pub const fn now(&self) -> SystemTime {
        self.now
    }

    /// The request's method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        &self.parts.method
    }

    /// The request's URI as this server sees it, which is not always the one that the sender signed.
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        &self.parts.uri
    }

    /// The request's headers.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        &self.parts.headers
    }

    /// The extensions that outer layers have put into the request.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        &self.parts.extensions
    }

    /// The one value of a header that carries a proof. It is refused if it is absent, empty, repeated or too long.
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

    /// The text of a header that occurs once; `None` if it is absent, repeated or not visible ASCII.
    #[must_use]
    pub fn text_header(&self, name: impl AsHeaderName) -> Option<&'a str> {
        let mut values = self.parts.headers.get_all(name).into_iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }
}

impl fmt::Debug for Head<'_> {
    /// Shows the method and the path only: headers and the query may contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (method, path) = (self.method(), self.uri().path());
        f.debug_struct("Head").field("method", method).field("path", &path).finish_non_exhaustive()
    }
}

/// The bytes of a part of a URI, with its escapes undone. A `%` that begins no escape stays as it is.
pub(crate) fn percent_decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('%') {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = after.get(..2).filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let byte = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    Cow::Owned(bytes)
}

/// Parses the name of a header from a configuration.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    name.parse().map_err(|_| ConfigError::new(ConfigErrorKind::Name, format!("{name:?} is not the name of a header")))
}

/// One header by its name, `x-event-key`, or all headers with a prefix, `x-acme-*`. Upper and lower case are the same.
///
/// ```
/// use http::HeaderName;
/// use tower_webhook::scheme::HeaderPattern;
///
/// let own = HeaderPattern::new("X-Acme-*")?;
/// assert!(own.matches(&HeaderName::from_static("x-acme-topic")));
/// assert!(!own.matches(&HeaderName::from_static("x-acmecorp")));
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderPattern(Pattern);

#[derive(Clone, PartialEq, Eq)]
enum Pattern {
    Exact(HeaderName),
    /// The prefix of the names, in lower case.
    Prefix(Box<str>),
}

impl HeaderPattern {
    /// Parses a pattern: a name, or a prefix of names and a `*`.
    ///
    /// # Errors
    /// If no header can have such a name.
    pub fn new(text: &str) -> Result<Self, ConfigError> {
        Ok(Self(match text.strip_suffix('*') {
            Some("") => Pattern::Prefix("".into()),
            Some(prefix) => Pattern::Prefix(header_name(prefix)?.as_str().into()),
            None => Pattern::Exact(header_name(text)?),
        }))
    }

    pub(crate) fn name(name: HeaderName) -> Self {
        Self(Pattern::Exact(name))
    }

    /// Whether a header of this name matches.
    #[must_use]
    pub fn matches(&self, name: &HeaderName) -> bool {
        match &self.0 {
            Pattern::Exact(exact) => exact == name,
            Pattern::Prefix(prefix) => name.as_str().starts_with(&**prefix),
        }
    }

    /// Whether the pattern is one name, and not a prefix.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.0, Pattern::Exact(_))
    }
}

impl fmt::Display for HeaderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Pattern::Exact(name) => f.write_str(name.as_str()),
            Pattern::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl fmt::Debug for HeaderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeaderPattern({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_beginnings_match_in_any_case() {
        for (pattern, name, matches) in [
            ("X-Acme-Topic", "x-acme-topic", true),
            ("x-acme-topic", "x-acme-topics", false),
            ("X-ACME-*", "x-acme-topic", true),
            ("x-acme-*", "x-acme", false),
            ("*", "anything", true),
        ] {
            let pattern = HeaderPattern::new(pattern).expect("a pattern");
            assert_eq!(pattern.matches(&HeaderName::from_static(name)), matches, "{pattern} and {name}");
        }
    }

    #[test]
    fn text_that_names_no_header_is_refused() {
        for text in ["", "x acme", "x-äcme-*", "x acme-*", "x-(*", "x\n"] {
            assert!(HeaderPattern::new(text).is_err(), "{text:?}");
        }
        assert_eq!(HeaderPattern::new("X-Acme-*").expect("a pattern").to_string(), "x-acme-*");
    }
}
