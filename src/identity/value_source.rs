use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use super::json_body::JsonPath;
use crate::error::{ConfigError, ConfigErrorKind};
use crate::head::{Head, header_name};

/// How much of a delivery is signed: what an id or a type must be part of to be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Coverage {
    /// A token was sent along.
    Nothing,
    /// What the scheme took out of the delivery, and not the whole body.
    Message,
    Body,
}

/// Names the event that a delivery carries, from its head and its verified body.
pub(super) type ReadDelivery = dyn Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync;

/// The same, from the body alone.
pub(super) type ReadBody = dyn Fn(&[u8]) -> Option<String> + Send + Sync;

/// One place where an id or a type may be.
#[derive(Clone)]
pub(super) enum ValueSource {
    Json(JsonPath),
    Header(HeaderName),
    Closure(Arc<ReadDelivery>),
    /// Only of types: a closure that sees no header.
    BodyClosure(Arc<ReadBody>),
    /// Only of ids: the digest of the body.
    BodyDigest,
    /// Only of ids: what the scheme took out of what it verified.
    SignedId,
    /// Only of ids: there is to be none.
    NoId,
}

impl ValueSource {
    pub(super) fn json(path: &str) -> Result<Self, ConfigError> {
        json_path(path).map(Self::Json)
    }

    pub(super) fn header(name: &str) -> Result<Self, ConfigError> {
        header_name(name).map(Self::Header)
    }

    /// Whether what is signed can have what is found here in it.
    pub(super) fn is_covered_by(&self, coverage: Coverage) -> bool {
        match self {
            Self::NoId => true,
            Self::SignedId => coverage >= Coverage::Message,
            Self::Json(_) | Self::Header(_) | Self::Closure(_) | Self::BodyClosure(_) | Self::BodyDigest => {
                coverage == Coverage::Body
            }
        }
    }

    pub(super) fn header_name(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            _ => None,
        }
    }
}

/// The path to a field, as a configuration gives it.
pub(crate) fn json_path(path: &str) -> Result<JsonPath, ConfigError> {
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

/// The links of a chain in words, in the order in which they are tried.
pub(super) fn write_chain(f: &mut fmt::Formatter<'_>, links: &[impl fmt::Display]) -> fmt::Result {
    for (index, link) in links.iter().enumerate() {
        let before = if index == 0 { "" } else { " or " };
        write!(f, "{before}{link}")?;
    }
    Ok(())
}
