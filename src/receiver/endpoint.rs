//! The route that a request was matched to, where the router says.

use http::Extensions;

#[cfg(feature = "axum")]
pub(super) fn matched_route(extensions: &Extensions) -> Option<&str> {
    extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
pub(super) fn matched_route(_: &Extensions) -> Option<&str> {
    None
}
