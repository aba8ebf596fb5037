//! The route and the URI of a request, as axum's routers tell them.

use http::request::Parts;
use http::{Extensions, Uri};

#[cfg(feature = "axum")]
use crate::head::percent_decoded;

/// The template of the route that axum matched the request to, with the prefixes of all nested routers.
#[cfg(feature = "axum")]
pub(crate) fn matched(extensions: &Extensions) -> Option<&str> {
    extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

/// The value of a parameter of the route that axum matched the request to. `None` if the route has no such parameter,
/// or no route was matched.
#[cfg(feature = "axum")]
pub(crate) fn parameter(parts: &Parts, name: &str) -> Option<String> {
    let template = matched(&parts.extensions)?;
    // A nested router sees the path without its prefix, but the route with it.
    let path = requested_uri(parts).path();
    let (mut path, mut found) = (path.split('/'), None);
    for segment in template.split('/') {
        let value = path.next()?;
        match segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) {
            Some(parameter) if parameter.starts_with('*') => return found,
            Some(parameter) if parameter == name => {
                found = Some(String::from_utf8(percent_decoded(value).into_owned()).ok()?);
            }
            Some(_) => {}
            // Something other than axum has changed the path, and the route is not this path's.
            None if segment != value => return None,
            None => {}
        }
    }
    found.filter(|_| path.next().is_none())
}

/// The URI that the sender requested. The URI of a nested router's request lacks the prefix.
#[cfg(feature = "axum")]
pub(crate) fn requested_uri(parts: &Parts) -> &Uri {
    parts.extensions.get::<axum::extract::OriginalUri>().map_or(&parts.uri, |axum::extract::OriginalUri(uri)| uri)
}

/// Tells axum which URI the sender requested.
#[cfg(feature = "axum")]
pub(crate) fn set_requested_uri(parts: &mut Parts, uri: Uri) {
    parts.extensions.insert(axum::extract::OriginalUri(uri));
}

#[cfg(not(feature = "axum"))]
pub(crate) fn matched(_: &Extensions) -> Option<&str> {
    None
}

#[cfg(not(feature = "axum"))]
pub(crate) fn requested_uri(parts: &Parts) -> &Uri {
    &parts.uri
}

#[cfg(not(feature = "axum"))]
pub(crate) fn set_requested_uri(_: &mut Parts, _: Uri) {}
