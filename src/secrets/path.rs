//! The tenant in a request's path.

use crate::head::{Head, percent_decoded};
use crate::route;

/// The value of a parameter of the route that axum matched the request to. `None` if the route has no such parameter,
/// or no route was matched.
pub(super) fn parameter(head: &Head<'_>, name: &str) -> Option<String> {
    let template = route::matched(head.extensions())?;
    // A nested router sees the path without its prefix, but the route with it.
    let path = route::requested_uri(head.parts()).path();
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
