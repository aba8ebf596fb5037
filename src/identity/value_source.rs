use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use super::json_body::JsonPath;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::head::{Head, header_name};

/// How much of a delivery is signed. An id or a type is authenticated if it is part of the signed content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Coverage {
    /// Nothing: a token was sent along.
    Nothing,
    /// The content that the scheme extracted from the delivery, and not the whole body.
    Message,
    Body,
}

/// Reads an id or a type from a delivery's head and its verified body.
pub(super) type ReadDelivery = dyn Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync;

/// Reads a type from the body alone.
pub(super) type ReadBody = dyn Fn(&[u8]) -> Option<String> + Send + Sync;

/// One source of an id or a type.
#[derive(Clone)]
pub(super) enum ValueSource {
    Json(JsonPath),
    Header(HeaderName),
    Closure(Arc<ReadDelivery>),
    /// Types only: a closure that sees no header.
    BodyClosure(Arc<ReadBody>),
    /// Ids only: the digest of the body.
    BodyDigest,
    /// Ids only: the id that the scheme extracted from the signed content.
    SignedId,
    /// Ids only: the event has no id.
    NoId,
}

impl ValueSource {
    pub(super) fn json(path: &str) -> Result<Self, ConfigError> {
        json_path(path).map(Self::Json)
    }

    pub(super) fn header(name: &str) -> Result<Self, ConfigError> {
        header_name(name).map(Self::Header)
    }

    /// Whether a signature with this coverage can cover the value.
    pub(super) fn is_covered_by(&self, coverage: Coverage) -> bool {
        match self {
            Self::NoId => true,
            Self::SignedId => coverage >= Coverage::Message,
            Self::Json(_) | Self::Header(_) | Self::Closure(_) | Self::BodyClosure(_) | Self::BodyDigest => {
                coverage == Coverage::Body
            }
        }
    }

    /// Whether two deliveries of one body may have different values.
    pub(super) fn is_beside_the_body(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Closure(_) | Self::SignedId)
    }

    pub(super) fn header_name(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            _ => None,
        }
    }
}

/// Parses the path to a field from a configuration.
pub(crate) fn json_path(path: &str) -> Result<JsonPath, ConfigError> {
    let is_foreign = path.starts_with(['$', '/'])
        || ["[0", "[*", "['", "[\"", "[-", "..", ".*"].iter().any(|part| path.contains(part));
    if is_foreign {
        let message = format!(
            "{path:?} is JSONPath or a JSON pointer: write the keys that lead to the field, with dots between them, as \
             in event.id; an element of a list needs a closure"
        );
        return Err(ConfigError::new(ConfigErrorKind::Name, message));
    }
    JsonPath::parse(path).ok_or_else(|| {
        let message = format!("{path:?} is not a path: write the keys that lead to the field, as in event.id");
        ConfigError::new(ConfigErrorKind::Name, message)
    })
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(path) => write!(f, "json {}", path.as_str()),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Closure(_) | Self::BodyClosure(_) => f.write_str("closure"),
            Self::BodyDigest => f.write_str("digest of the body"),
            Self::SignedId => f.write_str("signed id of the scheme"),
            Self::NoId => f.write_str("none"),
        }
    }
}

/// Writes the sources of a chain in the order in which they are tried.
pub(super) fn write_chain(f: &mut fmt::Formatter<'_>, links: &[impl fmt::Display]) -> fmt::Result {
    for (index, link) in links.iter().enumerate() {
        let before = if index == 0 { "" } else { " or " };
        write!(f, "{before}{link}")?;
    }
    Ok(())
}
