use std::borrow::Cow;
use std::fmt;

use http::Uri;

use super::Head;
use super::encoding::decode_hex;
use crate::error::ConfigError;
use crate::rejection::Rejection;

/// The URL of an endpoint as its provider knows it, for schemes that sign it. It is configured, since a server behind a
/// proxy cannot know it.
///
/// A URL without a path, `https://example.com`, takes the path and the query from each request. A URL with a path takes
/// only the query. A URL with a query is used as it is.
#[derive(Clone)]
pub(super) struct PublicUrl {
    text: Box<str>,
    configured: Configured,
    /// Characters that the sender does not escape in the signed text, though they are escaped in the URL.
    unescaped: &'static str,
}

#[derive(Clone, Copy)]
enum Configured {
    Origin,
    Path,
    Everything,
}

impl PublicUrl {
    pub(super) fn new(text: &str) -> Result<Self, ConfigError> {
        let refused =
            || ConfigError::scheme("the public url must read https://example.com/path, as configured at the provider");
        if text.contains('#') {
            return Err(ConfigError::scheme(
                "a url's #fragment is never sent: write the public url without the #fragment",
            ));
        }
        let uri: Uri = text.parse().map_err(|_| refused())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(refused());
        }
        let after_scheme = text.split_once("://").map_or("", |(_, rest)| rest);
        let configured = match (after_scheme.contains('/'), uri.query()) {
            (_, Some(_)) => Configured::Everything,
            (true, None) => Configured::Path,
            (false, None) => Configured::Origin,
        };
        Ok(Self { text: text.into(), configured, unescaped: "" })
    }

    /// The URL that every request was sent to, whatever the request itself says.
    pub(super) fn exactly(text: &str) -> Result<Self, ConfigError> {
        Ok(Self { configured: Configured::Everything, ..Self::new(text)? })
    }

    /// The same characters that the sender does not escape, for another URL.
    pub(super) fn at(&self, text: &str) -> Option<Self> {
        Some(Self::exactly(text).ok()?.with_unescaped(self.unescaped))
    }

    /// Sets the characters that the sender does not escape in the signed text.
    pub(super) fn with_unescaped(mut self, characters: &'static str) -> Self {
        self.unescaped = characters;
        self
    }

    /// The URL that this request was sent to, as the sender signs it.
    ///
    /// The parts taken from the request must be a valid URL. The server lets more characters through, and if the signed
    /// text has no separator there, the beginning of a JSON body could become the end of the query.
    pub(super) fn for_request(&self, head: &Head<'_>) -> Result<Cow<'_, str>, Rejection> {
        let url = self.request_url(head);
        if matches!(url, Cow::Owned(_)) && !head.uri().path_and_query().is_none_or(|rest| is_strict(rest.as_str())) {
            return Err(NOT_A_URL);
        }
        Ok(match self.unescaped {
            "" => url,
            characters => Cow::Owned(unescape(&url, characters)),
        })
    }

    fn request_url(&self, head: &Head<'_>) -> Cow<'_, str> {
        let uri = head.uri();
        match (self.configured, uri.query()) {
            (Configured::Everything, _) | (Configured::Path, None) => Cow::Borrowed(&self.text),
            (Configured::Path, Some(query)) => Cow::Owned(format!("{}?{query}", self.text)),
            (Configured::Origin, _) => {
                let rest = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
                Cow::Owned(format!("{}{rest}", self.text))
            }
        }
    }
}

const NOT_A_URL: Rejection = Rejection::malformed(
    "the request's url has characters that must be escaped: if the sender uses them, configure the url with its query",
);

/// Whether the text contains only characters that RFC 3986 allows in a path and a query.
fn is_strict(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte))
}

/// Decodes the escapes of these characters, and leaves all others.
fn unescape(text: &str, characters: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        plain.push_str(before);
        let byte = after.get(..2).and_then(|digits| decode_hex(digits.as_bytes()));
        match byte.map(|[byte]| char::from(byte)).filter(|character| characters.contains(*character)) {
            Some(character) => {
                plain.push(character);
                rest = &after[2..];
            }
            None => {
                plain.push('%');
                rest = after;
            }
        }
    }
    plain + rest
}

impl fmt::Debug for PublicUrl {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicUrl")
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_is_not_given_comes_from_the_request() {
        for (given, request, expected) in [
            ("https://a.example", "/hook?x=1", "https://a.example/hook?x=1"),
            ("https://a.example/", "/hook?x=1", "https://a.example/?x=1"),
            ("https://a.example/hook", "/rewritten?x=1", "https://a.example/hook?x=1"),
            ("https://a.example/hook", "/hook", "https://a.example/hook"),
            ("https://a.example/hook?x=1", "/hook?x=2", "https://a.example/hook?x=1"),
            ("http://u:p@a.example:8080/hook", "/hook?y", "http://u:p@a.example:8080/hook?y"),
        ] {
            let (parts, ()) = http::Request::builder().uri(request).body(()).expect("a request").into_parts();
            let head = Head::new(&parts, SystemTime::UNIX_EPOCH);
            assert_eq!(PublicUrl::new(given).expect("a url").for_request(&head).expect("a url"), expected);
        }
    }

    #[test]
    fn body_cannot_begin_in_the_query() {
        for query in ["x=1{", "x=1[", "x=1[{\"id\":"] {
            let Ok(request) = http::Request::builder().uri(format!("/hook?{query}")).body(()) else { continue };
            let (parts, ()) = request.into_parts();
            let head = Head::new(&parts, SystemTime::UNIX_EPOCH);
            for given in ["https://a.example", "https://a.example/hook"] {
                assert!(PublicUrl::new(given).expect("a url").for_request(&head).is_err(), "{query}");
            }
            assert!(PublicUrl::new("https://a.example/hook?x=1").expect("a url").for_request(&head).is_ok());
        }
    }

    #[test]
    fn only_the_named_characters_are_unescaped() {
        assert_eq!(unescape("a%3a%2Fb%20%3A%2", ":/"), "a:/b%20:%2");
        assert_eq!(unescape("%25%zz%é%", ":"), "%25%zz%é%");
        assert_eq!(unescape("%+a%0a", "\n"), "%+a\n", "a sign is no digit");
    }

    #[test]
    fn paths_and_prose_are_no_public_url() {
        for text in ["", "/hook", "a.example", "https://", "not a url", "ftp://a.example/"] {
            let error = PublicUrl::new(text).expect_err(text);
            assert!(error.to_string().contains("must read https://example.com/path"), "{text:?}: {error}");
        }
    }

    #[test]
    fn fragment_is_named_as_what_is_wrong() {
        for text in ["https://a.example/hook#here", "https://a.example/#", "https://a.example/hook?x=1#y"] {
            let error = PublicUrl::new(text).expect_err(text);
            assert!(error.to_string().contains("without the #fragment"), "{text:?}: {error}");
        }
    }
}
