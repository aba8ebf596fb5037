use std::fmt;
use std::sync::Arc;

use super::json_body::JsonPath;
use super::value_source::{Coverage, ValueSource, write_chain};
use crate::error::ConfigError;
use crate::head::Head;

/// Defines where an event's type is: one source, or several that are tried in order. The default is the top-level
/// `type` of a JSON body. An event may lack a type.
///
/// No scheme of this crate signs a header with a type, so an attacker can give a captured delivery another one. A type
/// in a signed body is more trustworthy, and
/// [`event_type_is_authenticated`](crate::WebhookEvent::event_type_is_authenticated) tells the two apart.
///
/// `Display` describes it in words.
///
/// ```
/// use tower_webhook::identity::TypeSource;
///
/// let event_type = TypeSource::json("event.type")?.or(TypeSource::header("x-acme-event")?);
/// assert_eq!(event_type.to_string(), "json event.type or header x-acme-event (unsigned)");
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct TypeSource {
    pub(super) sources: Vec<ValueSource>,
}

impl TypeSource {
    /// A string in the JSON body, by the path of keys to it.
    ///
    /// # Errors
    /// If the path is empty, has an empty key, or has more than eight keys.
    pub fn json(path: &str) -> Result<Self, ConfigError> {
        Ok(Self::from_source(ValueSource::json(path)?))
    }

    /// A header, such as `X-GitHub-Event`. It is not signed.
    ///
    /// # Errors
    /// If `name` is not a valid header name.
    pub fn header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::from_source(ValueSource::header(name)?))
    }

    /// The type that `name` returns for the delivery. The closure sees headers, so the type counts as not signed.
    pub fn by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::from_source(ValueSource::Closure(Arc::new(name)))
    }

    /// The type that `name` returns for the body. It is signed if the body is.
    pub fn by_body(name: impl Fn(&[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::from_source(ValueSource::BodyClosure(Arc::new(name)))
    }

    /// Tries `other` if this source finds no usable type. A usable type has 1 to 255 bytes and no control characters.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.sources.extend(other.sources);
        self
    }

    /// A top-level key of the JSON body.
    pub(crate) fn key(name: &str) -> Self {
        Self::from_source(ValueSource::Json(JsonPath::key(name)))
    }

    /// Events have no type.
    #[must_use]
    pub const fn none() -> Self {
        Self { sources: Vec::new() }
    }

    /// Whether a type from this source is signed, for a delivery with this coverage. In a chain, a type from any of its
    /// sources must be.
    pub(crate) fn is_authenticated_by(&self, coverage: Coverage) -> bool {
        self.sources.iter().all(|source| !is_unsigned(source) && source.is_covered_by(coverage))
    }

    /// Whether one of the sources is this header.
    pub(crate) fn reads(&self, name: &http::HeaderName) -> bool {
        self.sources.iter().any(|source| source.header_name() == Some(name))
    }

    /// The header that a sender puts the type into.
    #[cfg(feature = "testing")]
    pub(crate) fn sent_header(&self) -> Option<&http::HeaderName> {
        self.sources.iter().find_map(ValueSource::header_name)
    }

    fn from_source(source: ValueSource) -> Self {
        Self { sources: vec![source] }
    }
}

impl Default for TypeSource {
    fn default() -> Self {
        Self::key("type")
    }
}

/// Whether no signature covers this source.
fn is_unsigned(source: &ValueSource) -> bool {
    matches!(source, ValueSource::Header(_) | ValueSource::Closure(_))
}

impl fmt::Display for TypeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |source: &ValueSource| format!("{source}{}", if is_unsigned(source) { " (unsigned)" } else { "" });
        match &self.sources[..] {
            [] => f.write_str("none"),
            sources => write_chain(f, &sources.iter().map(words).collect::<Vec<_>>()),
        }
    }
}

impl fmt::Debug for TypeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypeSource({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_read_as_words() {
        let header = || TypeSource::header("X-GitHub-Event").expect("a name");
        for (source, words) in [
            (TypeSource::default(), "json type"),
            (header(), "header x-github-event (unsigned)"),
            (TypeSource::by(|_, _| None), "closure (unsigned)"),
            (TypeSource::by_body(|_| None), "closure"),
            (TypeSource::none(), "none"),
            (TypeSource::none().or(header()).or(TypeSource::none()), "header x-github-event (unsigned)"),
            (TypeSource::key("event").or(header()), "json event or header x-github-event (unsigned)"),
        ] {
            assert_eq!(source.to_string(), words);
            assert_eq!(format!("{source:?}"), format!("TypeSource({words})"));
        }
    }

    #[test]
    fn type_is_authenticated_if_every_place_is_in_a_signed_body() {
        let header = || TypeSource::header("X-GitHub-Event").expect("a name");
        for (source, authenticated) in [
            (TypeSource::default(), true),
            (TypeSource::key("a").or(TypeSource::by_body(|_| None)), true),
            (header(), false),
            (TypeSource::by(|_, _| None), false),
            (TypeSource::key("a").or(header()), false),
        ] {
            assert_eq!(source.is_authenticated_by(Coverage::Body), authenticated, "{source}");
            assert!(!source.is_authenticated_by(Coverage::Message), "{source}");
            assert!(!source.is_authenticated_by(Coverage::Nothing), "{source}");
        }
    }
}
