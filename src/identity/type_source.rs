use std::fmt;
use std::sync::Arc;

use super::envelope::JsonPath;
use super::place::{Place, chain};
use crate::error::ConfigError;
use crate::head::Head;

/// Where an event's type comes from: a place, or several to be tried in turn. The default is the top-level `type` of a JSON
/// body. An event may lack a type.
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

    /// A header, such as `X-GitHub-Event`.
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::place(Place::header(name)?))
    }

    /// Whatever `name` makes of the delivery.
    pub fn by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::place(Place::Closure(Arc::new(name)))
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

impl fmt::Display for TypeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.places[..] {
            [] => f.write_str("none"),
            places => chain(f, places),
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
            (header(), "header x-github-event"),
            (TypeSource::by(|_, _| None), "closure"),
            (TypeSource::none(), "none"),
            (TypeSource::none().or(header()).or(TypeSource::none()), "header x-github-event"),
            (TypeSource::key("event").or(header()), "json event or header x-github-event"),
        ] {
            assert_eq!(source.to_string(), words);
            assert_eq!(format!("{source:?}"), format!("TypeSource({words})"));
        }
    }
}
