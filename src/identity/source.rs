use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use super::envelope::JsonPath;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::head::{Head, header_name};

/// Names the event that a delivery carries, from its head and its verified body.
type Namer = Arc<dyn Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync>;

/// Where an event's id comes from. The default is the top-level `id` of a JSON body.
#[derive(Clone)]
pub struct IdSource {
    pub(super) place: Place,
    authenticated: bool,
}

#[derive(Clone)]
pub(super) enum Place {
    Json(JsonPath),
    Header(HeaderName),
    BodyDigest,
    Closure(Namer),
}

impl IdSource {
    /// A string in the JSON body, by the keys that lead to it: `id`, `event.id`. Covered by the signature.
    ///
    /// # Errors
    /// When the path is empty, has an empty key or more than eight.
    pub fn json(path: &str) -> Result<Self, ConfigError> {
        Ok(Self { place: Place::Json(json_path(path)?), authenticated: true })
    }

    /// A header that the scheme signs, such as Standard Webhooks' `webhook-id`. Only for schemes that do: nothing here can check
    /// it, and an unsigned header lets a captured delivery be replayed under another id.
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn signed_header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self { place: Place::Header(header_name(name)?), authenticated: true })
    }

    /// A header that the scheme does not sign, such as `X-GitHub-Delivery`. Recognises the sender's own retries, but
    /// whoever captured a delivery can replay it under another id.
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn unsigned_header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self { place: Place::Header(header_name(name)?), authenticated: false })
    }

    /// The SHA-256 of the body, for senders that give no id and never send the same bytes for two events.
    #[must_use]
    pub fn body_digest() -> Self {
        Self { place: Place::BodyDigest, authenticated: true }
    }

    /// Whatever `name` makes of what the signature covers; `None` refuses the delivery with a 400.
    pub fn signed_by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { place: Place::Closure(Arc::new(name)), authenticated: true }
    }

    /// Whatever `name` makes of parts that the signature does not cover; `None` refuses the delivery with a 400.
    pub fn unsigned_by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { place: Place::Closure(Arc::new(name)), authenticated: false }
    }

    /// Whether the signature covers the id.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.authenticated
    }
}

impl Default for IdSource {
    fn default() -> Self {
        Self { place: Place::Json(JsonPath::key("id")), authenticated: true }
    }
}

impl fmt::Debug for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            Place::Json(path) => format!("json {}", path.as_str()),
            Place::Header(name) => format!("header {name}"),
            Place::BodyDigest => "digest of the body".to_owned(),
            Place::Closure(_) => "closure".to_owned(),
        };
        f.debug_struct("IdSource").field("place", &place).field("authenticated", &self.authenticated).finish()
    }
}

/// Where an event's type comes from. The default is the top-level `type` of a JSON body. An event may lack a type.
#[derive(Clone)]
pub struct TypeSource(pub(super) Option<Place>);

impl TypeSource {
    /// A string in the JSON body, by the keys that lead to it.
    ///
    /// # Errors
    /// When the path is empty, has an empty key or more than eight.
    pub fn json(path: &str) -> Result<Self, ConfigError> {
        Ok(Self(Some(Place::Json(json_path(path)?))))
    }

    /// A header, such as `X-GitHub-Event`.
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self(Some(Place::Header(header_name(name)?))))
    }

    /// Whatever `name` makes of the delivery.
    pub fn by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Place::Closure(Arc::new(name))))
    }

    /// A key at the top of the JSON body.
    pub(crate) fn key(name: &str) -> Self {
        Self(Some(Place::Json(JsonPath::key(name))))
    }

    /// Events have no type.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }
}

impl Default for TypeSource {
    fn default() -> Self {
        Self::key("type")
    }
}

impl fmt::Debug for TypeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TypeSource")
    }
}

fn json_path(path: &str) -> Result<JsonPath, ConfigError> {
    JsonPath::parse(path).ok_or_else(|| {
        let message = format!("{path:?} is not a path: write the keys that lead to the field, as in event.id");
        ConfigError::new(ConfigErrorKind::Name, message)
    })
}
