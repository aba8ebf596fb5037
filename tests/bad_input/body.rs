//! Rows 62 to 70, 79 to 83, and 85: the body as bytes and as JSON.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use axum::http::{HeaderValue, StatusCode};
use futures_util::stream;
use tower_webhook::rejection::RejectionKind::{
    BodyIncomplete, BodyTooLarge, BodyTooSlow, MalformedBody, SignatureMismatch, UnsupportedEncoding,
};

use crate::bad_input::case::{BODY, accepted, endless_body, header_by, refused, refused_by, request, signed};
use crate::support::{Receiver, SECRET};

#[tokio::test]
async fn any_change_of_the_body_breaks_the_signature() {
    let header = header_by(SECRET, BODY);
    for bit in 0..BODY.len() * 8 {
        let mut body = BODY.as_bytes().to_vec();
        body[bit / 8] ^= 1 << (bit % 8);
        refused(request(&header, body), 401, SignatureMismatch, "62: any bit flipped").await;
    }
    for length in 0..BODY.len() {
        refused(request(&header, &BODY[..length]), 401, SignatureMismatch, "63: truncated").await;
    }
    for (what, body) in [
        ("64: byte appended, a line break", format!("{BODY}\n")),
        ("64: byte appended, NUL", format!("{BODY}\0")),
        ("64: byte in front", format!(" {BODY}")),
        ("64: doubled", format!("{BODY}{BODY}")),
    ] {
        refused(request(&header, body), 401, SignatureMismatch, what).await;
    }
}

#[tokio::test]
async fn line_breaks_are_signed() {
    let (lf, crlf) = ("{\n\"id\": \"evt_1\"\n}", "{\r\n\"id\": \"evt_1\"\r\n}");
    let crlf_for_lf = request(header_by(SECRET, lf), crlf);
    refused(crlf_for_lf, 401, SignatureMismatch, "65: CRLF where LF was signed").await;
    let lf_for_crlf = request(header_by(SECRET, crlf), lf);
    refused(lf_for_crlf, 401, SignatureMismatch, "65: LF where CRLF was signed").await;
    accepted(signed(crlf), "65: CRLF as it was signed").await;
}

#[tokio::test]
async fn signed_body_must_be_json() {
    let deep = |depth: usize| format!(r#"{{"id":"evt_1","x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    for (what, body) in [
        ("66: empty", Vec::new()),
        ("66: only white space", b" \r\n\t".to_vec()),
        ("67: BOM", format!("\u{feff}{BODY}").into()),
        ("67: BOM, UTF-16", [&b"\xff\xfe"[..], BODY.as_bytes()].concat()),
        ("70: invalid UTF-8 in the id", b"{\"id\":\"evt_\xff\"}".to_vec()),
        ("70: invalid UTF-8 in a field nobody reads", b"{\"id\":\"evt_1\",\"x\":\"\xc3\x28\"}".to_vec()),
        ("70: a surrogate as UTF-8", b"{\"id\":\"evt_\xed\xa0\x80\"}".to_vec()),
        ("70: an overlong slash", b"{\"id\":\"evt_\xc0\xaf\"}".to_vec()),
        ("79: trailing junk", format!("{BODY}x").into()),
        ("79: a second document", format!("{BODY}{BODY}").into()),
        ("79: a second document on the next line", format!("{BODY}\n{BODY}").into()),
        ("79: NUL at the end", format!("{BODY}\0").into()),
        ("79: a comment", format!("{BODY}//").into()),
        ("79: the end is missing", BODY[..BODY.len() - 1].into()),
        ("80: nesting 200 deep", deep(200).into()),
        ("80: nesting 100,000 deep", deep(100_000).into()),
        ("80: nesting 100,000 deep, never closed", "[".repeat(100_000).into()),
        ("80: nesting 100,000 deep, of objects", r#"{"id":"#.repeat(100_000).into()),
        ("81: lone surrogate in the id", br#"{"id":"evt_\ud800"}"#.to_vec()),
        ("81: lone low surrogate in the id", br#"{"id":"evt_\udc00"}"#.to_vec()),
        ("81: two high surrogates in the id", br#"{"id":"\ud800\ud800"}"#.to_vec()),
        ("81: high surrogate, then a letter", br#"{"id":"\ud800\u0041"}"#.to_vec()),
        ("81: lone surrogate in the type", br#"{"id":"evt_1","type":"\udfff"}"#.to_vec()),
        ("81: lone surrogate in a key", br#"{"id":"evt_1","\ud800":1}"#.to_vec()),
    ] {
        refused(signed(body), 400, MalformedBody, what).await;
    }
    accepted(signed(deep(126)), "80: nesting 127 deep").await;
    accepted(signed(r#"{"id":"\ud83e\udd80"}"#), "81: a surrogate pair").await;
}

#[tokio::test]
async fn lone_surrogates_are_refused_in_unread_fields_too() {
    for (what, body) in [
        ("81: lone surrogate in a field nobody reads", r#"{"id":"evt_1","x":"\ud800"}"#),
        ("81: lone surrogate in an array", r#"{"id":"evt_1","x":["\udc00\ud800"]}"#),
        ("81: lone surrogate in an inner key", r#"{"id":"evt_1","x":{"\ud800":1}}"#),
    ] {
        refused(signed(body), 400, MalformedBody, what).await;
    }
}

#[tokio::test]
async fn numbers_out_of_range_do_no_harm() {
    for number in ["1e400", "-1e400", "1e-400", "1e99999999999999999999", &"9".repeat(10_000)] {
        let what = "82: 1e400 in a field nobody reads";
        let receiver = Receiver::new();
        let answer = receiver.send(signed(format!(r#"{{"id":"evt_1","amount":{number}}}"#))).await;
        match answer.status {
            StatusCode::OK => assert_eq!((receiver.runs(), receiver.store.len()), (1, 1), "{what}"),
            StatusCode::BAD_REQUEST => crate::bad_input::case::untouched(&receiver, what),
            other => panic!("{what}: {other}"),
        }
    }
}

#[tokio::test]
async fn body_has_no_content_encoding() {
    // Not one byte of these is read: what is signed is not what would be handled.
    for (what, encodings) in [
        ("68: Content-Encoding: gzip", &["gzip"][..]),
        ("68: Content-Encoding: GZIP", &["GZIP"]),
        ("68: Content-Encoding: br", &["br"]),
        ("68: Content-Encoding of two", &["identity, gzip"]),
        ("68: Content-Encoding twice", &["identity", "gzip"]),
        ("68: Content-Encoding twice, the other way", &["gzip", "identity"]),
        ("68: Content-Encoding that nobody knows", &["x-unknown"]),
    ] {
        let (body, polled) = endless_body(b" ");
        let mut request = request(header_by(SECRET, BODY), body);
        for encoding in encodings {
            request.headers_mut().append(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        refused(request, 415, UnsupportedEncoding, what).await;
        assert_eq!(polled.load(Ordering::SeqCst), 0, "{what}");
    }
    for encoding in ["identity", "Identity"] {
        let mut request = signed(BODY);
        request.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        accepted(request, "69: Content-Encoding: identity").await;
    }
}

fn capped() -> Receiver {
    Receiver::configured(|layer| layer.body_limit(100).expect("a limit"))
}

/// A body of this length, JSON at that.
fn sized(length: usize) -> String {
    let start = r#"{"id":"evt_1","x":""#;
    format!("{start}{}\"}}", "x".repeat(length - start.len() - 2))
}

#[tokio::test]
async fn body_is_capped() {
    for frames in [1, 7, 100] {
        for (what, length) in [("83: body at the cap", 100), ("83: cap + 1", 101)] {
            let body = sized(length);
            let pieces: Vec<_> = body.as_bytes().chunks(length.div_ceil(frames)).map(Bytes::copy_from_slice).collect();
            let unannounced = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>)));
            let request = request(header_by(SECRET, &body), unannounced);
            if length == 100 {
                crate::bad_input::case::accepted_by(&capped(), request, what).await;
            } else {
                refused_by(&capped(), request, 413, BodyTooLarge, what).await;
            }
        }
    }
    crate::bad_input::case::accepted_by(&capped(), signed(sized(100)), "83: body at the cap, announced").await;
    refused_by(&capped(), signed(sized(101)), 413, BodyTooLarge, "83: cap + 1, announced").await;
    accepted(signed(sized(1024 * 1024)), "83: body at the default cap").await;
    refused(signed(sized(1024 * 1024 + 1)), 413, BodyTooLarge, "83: default cap + 1").await;
}

#[tokio::test]
async fn body_is_read_no_further_than_the_cap() {
    let (body, polled) = endless_body(b"ten bytes.");
    let unannounced = request(header_by(SECRET, BODY), body);
    refused_by(&capped(), unannounced, 413, BodyTooLarge, "83: over the cap as soon as it is crossed").await;
    assert_eq!(polled.load(Ordering::SeqCst), 11, "ten frames fit, and the eleventh does not");

    for length in ["101", "18446744073709551615"] {
        let (body, polled) = endless_body(b" ");
        let mut announced = request(header_by(SECRET, BODY), body);
        announced.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static(length));
        refused_by(&capped(), announced, 413, BodyTooLarge, "83: over the cap, announced").await;
        assert_eq!(polled.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn body_that_breaks_off_is_incomplete() {
    let broken = stream::iter([Ok(Bytes::from_static(BODY.as_bytes())), Err(std::io::Error::other("reset"))]);
    let request = request(header_by(SECRET, BODY), Body::from_stream(broken));
    refused(request, 400, BodyIncomplete, "84: all that was signed is there, but not the end").await;
}

/// The bytes in pieces, one a second.
fn slow(bytes: &str, piece: usize) -> Body {
    let pieces: Vec<_> = bytes.as_bytes().chunks(piece).map(Bytes::copy_from_slice).collect();
    Body::from_stream(stream::unfold(pieces.into_iter(), |mut pieces| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        pieces.next().map(|piece| (Ok::<_, std::io::Error>(piece), pieces))
    }))
}

#[tokio::test(start_paused = true)]
async fn body_that_trickles_runs_into_its_deadline() {
    let header = header_by(SECRET, BODY);
    refused(request(&header, slow(BODY, 1)), 408, BodyTooSlow, "85: one byte a second").await;
    let never = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    refused(request(&header, never), 408, BodyTooSlow, "85: not even one byte").await;
    accepted(request(&header, slow(BODY, 8)), "85: slow, but in time").await;
}
