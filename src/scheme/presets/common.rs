//! Shared by the presets: durations, and helpers for the providers' handshakes.
//!
//! A handshake is a request by which a provider validates an endpoint, and the response that it expects.
//!
//! No handshake reaches a store or a handler. Anyone who knows the URL can cause the unsigned responses, so their echo
//! is short, plain, and always sent as text. The handshake that is answered with a MAC is signed itself, and the MAC is
//! only ever computed over a plain word, which cannot be the signed text of a delivery.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};

use crate::head::Head;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The longest word that is echoed.
const MAX_WORD: usize = 256;

pub(super) fn query_of_get<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    head.uri().query().filter(|_| head.method() == Method::GET).map(str::as_bytes)
}

/// Whether the text is one short word without a special meaning to a browser or a shell.
pub(super) fn is_word(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'+' | b'/' | b'=');
    (1..=MAX_WORD).contains(&text.len()) && text.bytes().all(is_plain)
}

pub(super) fn text_response(text: String) -> Response<Bytes> {
    with_type(text, "text/plain")
}

pub(super) fn json_response(text: String) -> Response<Bytes> {
    with_type(text, "application/json")
}

fn with_type(text: String, content_type: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) fn empty_response(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}
