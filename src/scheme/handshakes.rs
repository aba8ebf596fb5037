//! What providers send to see whether somebody is there, and what they want to hear.
//!
//! None of it reaches a store or a handler. Whoever knows the URL can have the unsigned ones answered, so what they echo is
//! short, plain, and never taken for anything but text; the one that is answered with a MAC is signed itself, and only a
//! plain word is ever signed for it, which can be no signed text of a delivery.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};

use super::Head;
use crate::identity::envelope::{self, JsonPath};

/// The longest word that is echoed.
const LONGEST_WORD: usize = 256;

pub(super) fn query_of_get<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    head.uri().query().filter(|_| head.method() == Method::GET).map(str::as_bytes)
}

/// The strings at these paths, if all of them are there.
pub(super) fn texts<const N: usize>(body: &[u8], paths: [&str; N]) -> Option<[String; N]> {
    let paths: Vec<JsonPath> = paths.iter().filter_map(|path| JsonPath::parse(path)).collect();
    let paths: [&JsonPath; N] = paths.iter().collect::<Vec<_>>().try_into().ok()?;
    let fields = envelope::read(body, paths).ok()?;
    let texts: Vec<String> = fields.into_iter().filter_map(|field| Some(field.text()?.into_owned())).collect();
    texts.try_into().ok()
}

/// Whether it is one short word: nothing that a browser or a shell would make anything of.
pub(super) fn is_word(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'+' | b'/' | b'=');
    (1..=LONGEST_WORD).contains(&text.len()) && text.bytes().all(is_plain)
}

pub(super) fn plain(text: String) -> Response<Bytes> {
    with_type(text, "text/plain")
}

pub(super) fn json(text: String) -> Response<Bytes> {
    with_type(text, "application/json")
}

fn with_type(text: String, content_type: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) fn empty(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}
