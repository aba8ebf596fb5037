//! The URLs that a delivery may have been sent to, before a proxy passed it on.

use std::collections::HashSet;

use http::request::Parts;

use super::finding::UrlPart;
use crate::route;

/// No more URLs than these are tried.
const MOST: usize = 200;

/// A URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UrlParts<'a> {
    scheme: &'a str,
    /// `user:password@`, or nothing.
    user: &'a str,
    host: &'a str,
    port: Option<&'a str>,
    path: String,
    query: Option<&'a str>,
}

impl<'a> UrlParts<'a> {
    pub(super) fn of(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (user, authority) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (host, port) = split_port(authority);
        let (path, query) = split_query(rest);
        Some(Self { scheme, user, host, port, path: path.to_owned(), query })
    }

    pub(super) fn text(&self) -> String {
        let query = self.query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}://{}{}{}{query}", self.scheme, self.user, self.authority(), self.path)
    }

    /// The URL without a password and without its query.
    pub(super) fn shown(&self) -> Box<str> {
        format!("{}://{}{}", self.scheme, self.authority(), self.path).into()
    }

    fn authority(&self) -> String {
        self.port.map_or_else(|| self.host.to_owned(), |port| format!("{}:{port}", self.host))
    }

    /// The parts in which this URL differs from `other`.
    pub(super) fn differs_from(&self, other: &Self) -> Vec<UrlPart> {
        let differing = [
            (self.scheme != other.scheme, UrlPart::Scheme),
            (self.host != other.host, UrlPart::Host),
            (self.port != other.port, UrlPart::Port),
            (self.path != other.path, UrlPart::Path),
            (self.query != other.query, UrlPart::Query),
        ];
        differing.into_iter().filter_map(|(differs, part)| differs.then_some(part)).collect()
    }

    /// The URLs that proxies make this one of, or of which they make it; those first that differ the least.
    pub(super) fn others(&self, parts: &'a Parts) -> Vec<Self> {
        let mut hosts =
            vec![(self.host, self.port), (self.host, None), (self.host, Some("443")), (self.host, Some("80"))];
        let named = ["x-forwarded-host", "x-original-host", "host"].into_iter().filter_map(|name| text(parts, name));
        let named = named.chain(parts.uri.authority().map(http::uri::Authority::as_str));
        for (host, port) in named.map(split_port) {
            hosts.extend([(host, port), (host, None), (host, text(parts, "x-forwarded-port"))]);
        }
        hosts.extend(text(parts, "x-forwarded-port").map(|port| (self.host, Some(port))));
        let mut queries = vec![self.query, None, parts.uri.query()];
        queries.extend(forwarded_uri(parts).map(|uri| split_query(uri).1));
        let mut urls = Vec::new();
        for scheme in [self.scheme, "https", "http"] {
            for (host, port) in &hosts {
                for path in other_paths(&self.path, parts) {
                    for query in &queries {
                        let path = path.clone();
                        urls.push(Self { scheme, user: self.user, host, port: *port, path, query: *query });
                    }
                }
            }
        }
        let mut seen = HashSet::from([self.clone()]);
        urls.retain(|url| seen.insert(url.clone()));
        urls.sort_by_key(|url| url.differs_from(self).len());
        urls.truncate(MOST);
        urls
    }
}

/// The paths that may have been requested instead of `path`, and `path` itself.
pub(super) fn other_paths(path: &str, parts: &Parts) -> Vec<String> {
    let mut paths = vec![path.to_owned(), route::requested_uri(parts).path().to_owned(), parts.uri.path().to_owned()];
    paths.extend(forwarded_uri(parts).map(|uri| split_query(uri).0.to_owned()));
    if let Some(prefix) = text(parts, "x-forwarded-prefix") {
        let prefix = prefix.trim_end_matches('/');
        paths.extend([format!("{prefix}{}", parts.uri.path()), format!("{prefix}{path}")]);
    }
    let slashes: Vec<String> = paths.iter().map(|path| with_other_slash(path)).collect();
    paths.extend(slashes);
    let mut seen = HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
}

/// The path with a slash at its end, or without it.
fn with_other_slash(path: &str) -> String {
    path.strip_suffix('/').map_or_else(|| format!("{path}/"), str::to_owned)
}

/// The path and the query that a proxy says were requested.
fn forwarded_uri(parts: &Parts) -> Option<&str> {
    let names = ["x-forwarded-uri", "x-original-uri", "x-original-url", "x-rewrite-url", "x-replaced-path"];
    names.into_iter().find_map(|name| text(parts, name)).filter(|uri| uri.starts_with('/'))
}

/// The first value of a header that may be a list.
fn text<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let value = parts.headers.get(name)?.to_str().ok()?;
    value.split(',').next().map(str::trim).filter(|value| !value.is_empty())
}

/// The colons of an IPv6 address are inside its brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn split_query(path: &str) -> (&str, Option<&str>) {
    path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let request = headers
            .iter()
            .fold(http::Request::builder().uri(uri), |request, (name, value)| request.header(*name, *value));
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn parts_make_up_the_url() {
        for url in ["https://u:p@a.example:8443/x/y?z=1", "http://a.example", "http://[::1]:80/", "https://a.example?q"]
        {
            assert_eq!(UrlParts::of(url).expect("a url").text(), url);
        }
        let url = UrlParts::of("https://u:p@a.example:8443/x?token=1").expect("a url");
        assert_eq!(&*url.shown(), "https://a.example:8443/x");
    }

    #[test]
    fn what_proxies_change_is_tried() {
        let head = parts(
            "/hook?x=1",
            &[("host", "inner:8080"), ("x-forwarded-host", "a.example, b"), ("x-forwarded-prefix", "/api")],
        );
        let configured = UrlParts::of("http://inner:8080/hook?x=1").expect("a url");
        let others: Vec<String> = configured.others(&head).iter().map(UrlParts::text).collect();
        for url in [
            "https://inner:8080/hook?x=1",
            "http://inner/hook?x=1",
            "http://a.example/hook?x=1",
            "https://a.example/hook?x=1",
            "https://a.example/api/hook?x=1",
            "http://inner:8080/hook/?x=1",
            "http://inner:8080/hook",
        ] {
            assert!(others.iter().any(|other| other == url), "{url} in {others:#?}");
        }
        assert!(!others.contains(&configured.text()));
        assert!(others.len() <= MOST);
    }
}
