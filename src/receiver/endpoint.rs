//! The name of the endpoint, by which its events are told from those of others.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::request::Parts;

use crate::{route, telemetry};

/// The name of an endpoint: the one that the layer was given, or the route's template, or else the scheme's name.
#[derive(Clone, Default)]
pub(super) struct EndpointName {
    given: Option<Arc<str>>,
    fallback: Arc<Fallback>,
}

/// Warns of a second endpoint that has its name from the scheme: if the stores are the same, an id that both endpoints
/// receive is taken for one event.
#[derive(Default)]
struct Fallback {
    /// The prefix under which a router nests the first endpoint with this layer.
    prefix: OnceLock<String>,
    warned: OnceLock<()>,
}

impl EndpointName {
    pub(super) fn give(&mut self, name: Arc<str>) {
        self.given = Some(name);
    }

    pub(super) fn given(&self) -> Option<&str> {
        self.given.as_deref()
    }

    /// The name of the endpoint that gets this request.
    pub(super) fn of<'a>(&'a self, parts: &'a Parts, scheme: &'a str) -> &'a str {
        self.given().or_else(|| route::matched(&parts.extensions)).unwrap_or(scheme)
    }

    /// The same, for the key of an event. A tenant in the key tells endpoints apart, too.
    pub(super) fn of_event<'a>(&'a self, parts: &'a Parts, scheme: &'a str, has_tenant: bool) -> &'a str {
        if !has_tenant && self.given.is_none() && route::matched(&parts.extensions).is_none() {
            self.fallback.used(scheme, prefix_of_route(parts));
        }
        self.of(parts, scheme)
    }
}

/// The schemes whose names are those of endpoints in this process.
static USED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

impl Fallback {
    fn used(&self, name: &str, prefix: &str) {
        let mut is_shared = false;
        let first = self.prefix.get_or_init(|| {
            let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
            is_shared = !used.get_or_insert_default().insert(name.to_owned());
            prefix.to_owned()
        });
        if is_shared || first != prefix {
            self.warned.get_or_init(|| telemetry::endpoint_name_shared(name));
        }
    }
}

/// The part of the path that a router has stripped.
fn prefix_of_route(parts: &Parts) -> &str {
    route::requested_uri(parts).path().strip_suffix(parts.uri.path()).unwrap_or_default()
}
