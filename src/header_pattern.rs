//! Names of headers, and beginnings of names.

use std::fmt;

use http::HeaderName;

use crate::error::ConfigError;
use crate::head::header_name;

/// One header by its name, `x-event-key`, or all that begin alike, `x-acme-*`. Upper and lower case are the same.
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
pub struct HeaderPattern(Matching);

#[derive(Clone, PartialEq, Eq)]
enum Matching {
    Name(HeaderName),
    /// What the names begin with, in lower case.
    Beginning(Box<str>),
}

impl HeaderPattern {
    /// The pattern that this text is: a name, or the beginning of names and a `*`.
    ///
    /// # Errors
    /// If no header can have such a name.
    pub fn new(text: &str) -> Result<Self, ConfigError> {
        Ok(Self(match text.strip_suffix('*') {
            Some("") => Matching::Beginning("".into()),
            Some(beginning) => Matching::Beginning(header_name(beginning)?.as_str().into()),
            None => Matching::Name(header_name(text)?),
        }))
    }

    pub(crate) fn name(name: HeaderName) -> Self {
        Self(Matching::Name(name))
    }

    /// Whether it is a header of this name.
    #[must_use]
    pub fn matches(&self, name: &HeaderName) -> bool {
        match &self.0 {
            Matching::Name(exact) => exact == name,
            Matching::Beginning(beginning) => name.as_str().starts_with(&**beginning),
        }
    }

    /// Whether it names one header, and not any that begin alike.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.0, Matching::Name(_))
    }
}

impl fmt::Display for HeaderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Matching::Name(name) => f.write_str(name.as_str()),
            Matching::Beginning(beginning) => write!(f, "{beginning}*"),
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
