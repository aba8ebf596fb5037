//! The route and the URI of a request, as axum's routers tell them.

use http::request::Parts;
use http::{Extensions, Uri};

/// The template of the route that axum matched the request to, with the prefixes of all nested routers.
#[cfg(feature = "axum")]
pub(crate) fn matched(extensions: &Extensions) -> Option<&str> {
    extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
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
