//! The tenant in a request's path.

use axum::extract::{MatchedPath, OriginalUri};

use crate::head::{Head, percent_decoded};

/// The value of a parameter of the route that axum matched the request to. `None` if the route has no such parameter,
/// or no route was matched.
pub(super) fn parameter(head: &Head<'_>, name: &str) -> Option<String> {
    let route = head.extensions().get::<MatchedPath>()?.as_str();
    // A nested router sees the path without its prefix, but the route with it.
    let path = head.extensions().get::<OriginalUri>().map_or(head.uri().path(), |uri| uri.0.path());
    let mut path = path.split('/');
    for segment in route.split('/') {
        let value = path.next()?;
        let Some(parameter) = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) else { continue };
        if parameter.starts_with('*') {
            return None;
        }
        if parameter == name {
            return String::from_utf8(percent_decoded(value).into_owned()).ok();
        }
    }
    None
}
