//! The name of the endpoint, by which its events are told from those of others.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use http::request::Parts;

use super::config::Config;
use crate::telemetry;

impl Config {
    /// The name that the layer was given, or the route's template, or else the scheme's name.
    pub(super) fn endpoint_name<'a>(&'a self, parts: &'a Parts) -> &'a str {
        self.name_or_route(parts).unwrap_or(self.scheme.name())
    }

    /// The endpoint's name, for the key of an event. The tenant in the key tells endpoints apart, too.
    pub(super) fn endpoint_of_event<'a>(&'a self, parts: &'a Parts, has_tenant: bool) -> &'a str {
        self.name_or_route(parts).unwrap_or_else(|| {
            let name = self.scheme.name();
            if !has_tenant {
                self.fallback_name.used(name, || prefix_of_route(parts));
            }
            name
        })
    }

    fn name_or_route<'a>(&'a self, parts: &'a Parts) -> Option<&'a str> {
        self.endpoint.as_deref().or_else(|| matched_route(parts))
    }
}

/// Whether an endpoint has its name from the scheme. Warns of a second endpoint with that name: if the stores are the
/// same, an id that both endpoints receive is taken for one event.
#[derive(Default)]
pub(super) struct FallbackName {
    /// The prefix under which a router nests the first endpoint with this layer.
    prefix: OnceLock<String>,
    warned: OnceLock<()>,
}

/// The names of schemes that an endpoint has, in this process.
static USED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

impl FallbackName {
    fn used(&self, name: &str, prefix: impl FnOnce() -> String) {
        let prefix = prefix();
        let mut is_shared = false;
        let first = self.prefix.get_or_init(|| {
            let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
            is_shared = !used.get_or_insert_default().insert(name.to_owned());
            prefix.clone()
        });
        if is_shared || *first != prefix {
            self.warned.get_or_init(|| telemetry::endpoint_name_shared(name));
        }
    }
}

/// The template of the route that axum matched the request to.
#[cfg(feature = "axum")]
fn matched_route(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

/// The path that the sender requested, with the prefix of every outer router.
#[cfg(feature = "axum")]
pub(super) fn requested_path(parts: &Parts) -> &str {
    parts.extensions.get::<axum::extract::OriginalUri>().map_or(parts.uri.path(), |uri| uri.0.path())
}

/// The part of the path that a router has stripped.
fn prefix_of_route(parts: &Parts) -> String {
    requested_path(parts).strip_suffix(parts.uri.path()).unwrap_or_default().to_owned()
}

#[cfg(not(feature = "axum"))]
fn matched_route(_: &Parts) -> Option<&str> {
    None
}

#[cfg(not(feature = "axum"))]
pub(super) fn requested_path(parts: &Parts) -> &str {
    parts.uri.path()
}
