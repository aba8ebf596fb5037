use std::fmt;
use std::sync::Arc;

use super::json_body::JsonPath;
use super::value_source::{Coverage, Place, chain};
use crate::error::ConfigError;
use crate::head::Head;

/// Where an event's type comes from: a place, or several to be tried in turn. The default is the top-level `type` of a JSON
/// body. An event may lack a type.
///
/// No scheme here signs a header with a type: whoever captured a delivery can give it another one. What the body itself says is
/// worth more, and [`event_type_is_authenticated`](crate::WebhookEvent::event_type_is_authenticated) tells which it was.
///
/// Its `Display` says it in words.
#[derive(Clone)]
pub struct TypeSource {
    pub(super) places: Vec<Place>,
}

impl TypeSource {
    /// A string in the JSON body, by the keys that lead to it.
    ///
    /// # Errors
    /// When the path is empty, has an empty key or more than eight.
    pub fn json(path: &str) -> Result<Self, ConfigError> {
        Ok(Self::place(Place::json(path)?))
    }

    /// A header, such as `X-GitHub-Event`. Not signed.
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::place(Place::header(name)?))
    }

    /// Whatever `name` makes of the delivery. It sees headers, so it counts as not signed.
    pub fn by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::place(Place::Closure(Arc::new(name)))
    }

    /// Whatever `name` makes of the body. Signed, if the body is.
    pub fn by_body(name: impl Fn(&[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::place(Place::BodyClosure(Arc::new(name)))
    }

    /// Tries `other` where this finds no type that can be used: one of 1 to 255 bytes, without control characters.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.places.extend(other.places);
        self
    }

    /// A key at the top of the JSON body.
    pub(crate) fn key(name: &str) -> Self {
        Self::place(Place::Json(JsonPath::key(name)))
    }

    /// Events have no type.
    #[must_use]
    pub const fn none() -> Self {
        Self { places: Vec::new() }
    }

    /// Whether a type from here is signed, of a delivery of which this much is: in a chain, one from any of its places.
    pub(crate) fn is_authenticated_by(&self, coverage: Coverage) -> bool {
        self.places.iter().all(|place| !is_unsigned(place) && place.is_within(coverage))
    }

    /// Whether one of its places is this header.
    pub(crate) fn reads(&self, name: &http::HeaderName) -> bool {
        self.places.iter().any(|place| place.header_name() == Some(name))
    }

    /// The header that a sender puts the type into.
    #[cfg(feature = "testing")]
    pub(crate) fn sent_header(&self) -> Option<&http::HeaderName> {
        self.places.iter().find_map(Place::header_name)
    }

    fn place(place: Place) -> Self {
        Self { places: vec![place] }
    }
}

impl Default for TypeSource {
    fn default() -> Self {
        Self::key("type")
    }
}

/// Whether it is one that no signature covers.
fn is_unsigned(place: &Place) -> bool {
    matches!(place, Place::Header(_) | Place::Closure(_))
}

impl fmt::Display for TypeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |place: &Place| format!("{place}{}", if is_unsigned(place) { " (unsigned)" } else { "" });
        match &self.places[..] {
            [] => f.write_str("none"),
            places => chain(f, &places.iter().map(words).collect::<Vec<_>>()),
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
