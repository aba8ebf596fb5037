//! Which headers and which values of the query an inbox keeps.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, SET_COOKIE};
use http::{HeaderName, Uri};

use super::credentials::is_credential;
use crate::head::{HeaderPattern, percent_decoded};
use crate::scheme::Profile;

/// Headers that are kept with every scheme: those that describe the body, the sender and the trace.
const ORDINARY: [&str; 17] = [
    "host",
    "content-type",
    "content-length",
    "user-agent",
    // W3C, Zipkin, Jaeger, AWS, Google Cloud, Datadog, Sentry. Not `baggage`, which may carry anything.
    "traceparent",
    "tracestate",
    "b3",
    "uber-trace-id",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-datadog-trace-id",
    "x-datadog-parent-id",
    "sentry-trace",
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "correlation-id",
];

const TRACING_PREFIX: &str = "x-b3-";

/// The headers and query values that an inbox keeps: the sender's own headers, and those chosen by name.
#[derive(Clone, Default)]
pub(super) struct Kept {
    own: Vec<HeaderPattern>,
    proof: Vec<HeaderName>,
    chosen: Vec<HeaderPattern>,
    query: Vec<String>,
}

impl Kept {
    /// Keeps the sender's own headers, and drops those that carry its signatures.
    pub(super) fn choose_sender(&mut self, profile: &Profile) {
        (self.own, self.proof) = (profile.own_headers.clone(), profile.proof_headers.clone());
    }

    pub(super) fn choose_headers(&mut self, headers: impl IntoIterator<Item = HeaderPattern>) {
        self.chosen.extend(headers);
    }

    pub(super) fn choose_query(&mut self, names: impl IntoIterator<Item = String>) {
        self.query.extend(names);
    }

    /// Whether to keep the header. `identifies` says that the event's id or type is read from it.
    pub(super) fn keeps(&self, name: &HeaderName, identifies: bool) -> bool {
        let matched = |patterns: &[HeaderPattern], exactly: bool| {
            patterns.iter().any(|pattern| pattern.is_exact() == exactly && pattern.matches(name))
        };
        if matched(&self.chosen, true) {
            return true;
        }
        if self.proof.contains(name) || [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, SET_COOKIE].contains(name) {
            return false;
        }
        if identifies || ORDINARY.contains(&name.as_str()) || matched(&self.own, true) {
            return true;
        }
        let begins = matched(&self.own, false) || matched(&self.chosen, false);
        (begins || name.as_str().starts_with(TRACING_PREFIX)) && !is_credential(name.as_str()) && !is_hop_by_hop(name)
    }

    /// The URI as it is stored: the values of parameters whose names are a credential's are left out, and a user's name
    /// and password before the host.
    pub(super) fn uri(&self, uri: &Uri) -> String {
        let mut text = uri.scheme_str().map_or_else(String::new, |scheme| format!("{scheme}://"));
        if let Some(authority) = uri.authority() {
            text.push_str(authority.as_str().rsplit('@').next().unwrap_or_default());
        }
        text.push_str(uri.path());
        if let Some(query) = uri.query() {
            let pairs: Vec<&str> = query.split('&').map(|pair| self.pair(pair)).collect();
            text.push('?');
            text.push_str(&pairs.join("&"));
        }
        text
    }

    /// `name=value`, or `name=` if the value is not kept.
    fn pair<'a>(&self, pair: &'a str) -> &'a str {
        let Some(equals) = pair.find('=') else { return pair };
        let name = unescaped(&pair[..equals]);
        let is_kept = self.query.iter().any(|kept| *kept == *name) || !is_credential(&name);
        if is_kept { pair } else { &pair[..=equals] }
    }
}

/// Headers that concern one connection: the worker has none.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    const HOP_BY_HOP: [&str; 8] =
        ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"];
    HOP_BY_HOP.contains(&name.as_str())
}

/// The name of a parameter as the handler reads it: an escape hides no credential.
fn unescaped(name: &str) -> Cow<'_, str> {
    match percent_decoded(name) {
        Cow::Borrowed(_) => Cow::Borrowed(name),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HeaderPattern {
        HeaderPattern::new(text).expect("a pattern")
    }

    fn kept() -> Kept {
        let profile = Profile::default()
            .own_headers(["x-acme-*", "x-event-key"].map(pattern))
            .proof_headers([HeaderName::from_static("x-acme-sum")]);
        let mut kept = Kept::default();
        kept.choose_sender(&profile);
        kept
    }

    fn keeps(kept: &Kept, name: &'static str) -> bool {
        kept.keeps(&HeaderName::from_static(name), false)
    }

    #[test]
    fn headers_that_are_not_on_the_list_are_not_kept() {
        for name in [
            "x-auth",
            "x-basic-auth",
            "cf-access-jwt-assertion",
            "x-goog-iap-jwt-assertion",
            "x-amzn-oidc-data",
            "x-amzn-oidc-identity",
            "x-ms-client-principal",
            "x-forwarded-client-cert",
            "x-session-id",
            "x-bearer",
            "x-sig",
            "x-access",
            "www-sid",
            "digest",
            "baggage",
            "authorization",
            "cookie",
            "connection",
            "x-fine",
        ] {
            assert!(!keeps(&kept(), name), "{name}");
        }
        for name in ["host", "content-type", "user-agent", "traceparent", "x-b3-traceid", "x-request-id"] {
            assert!(keeps(&kept(), name), "{name}");
        }
    }

    #[test]
    fn own_headers_are_kept_but_for_proofs_and_credentials() {
        for (name, is_kept) in [
            ("x-acme-topic", true),
            ("x-event-key", true),
            ("x-acme-sum", false),
            ("x-acme-token", false),
            ("x-acme-signature", false),
            ("x-acme-auth", false),
            ("x-acmecorp", false),
        ] {
            assert_eq!(keeps(&kept(), name), is_kept, "{name}");
        }
    }

    #[test]
    fn chosen_names_are_kept_and_chosen_beginnings_without_credentials() {
        let mut chosen = kept();
        chosen.choose_headers(["x-acme-sum", "authorization", "x-forwarded-*", "*"].map(pattern));
        for (name, is_kept) in [
            ("x-acme-sum", true),
            ("authorization", true),
            ("x-forwarded-for", true),
            ("x-fine", true),
            ("x-auth", false),
            ("cookie", false),
            ("transfer-encoding", false),
        ] {
            assert_eq!(keeps(&chosen, name), is_kept, "{name}");
        }
    }

    #[test]
    fn header_of_the_id_is_kept_unless_it_is_the_proof() {
        let names = ["idempotency-key", "x-delivery", "x-acme-sum", "authorization"].map(HeaderName::from_static);
        assert_eq!(names.map(|name| kept().keeps(&name, true)), [true, true, false, false]);
    }

    #[test]
    fn values_of_credentials_are_left_out_of_the_query() {
        for (uri, stored) in [
            ("/hooks", "/hooks"),
            ("/hooks?", "/hooks?"),
            ("/hooks?a=b%26c&a=d", "/hooks?a=b%26c&a=d"),
            ("/hooks?auth_token=hush&a=1", "/hooks?auth_token=&a=1"),
            ("/hooks?a=1&%61pi%5Fkey=hush", "/hooks?a=1&%61pi%5Fkey="),
            ("/hooks?sig=hush=&sig=hush", "/hooks?sig=&sig="),
            ("/hooks?token", "/hooks?token"),
            ("/hooks?%zz=1&%=2&=3", "/hooks?%zz=1&%=2&=3"),
            ("https://user:hush@a.example/hooks?key=hush", "https://a.example/hooks?key="),
            ("https://a.example:8443/", "https://a.example:8443/"),
            ("a.example:8443", "a.example:8443"),
            ("*", "*"),
        ] {
            assert_eq!(kept().uri(&uri.parse().expect("a uri")), stored);
        }
        let mut chosen = kept();
        chosen.choose_query(["key".to_owned()]);
        assert_eq!(chosen.uri(&"/?key=1&keys=2&api_key=3".parse().expect("a uri")), "/?key=1&keys=2&api_key=");
    }
}
