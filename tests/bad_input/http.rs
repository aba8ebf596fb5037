//! Rows 51, 52 and 83 to 91 over HTTP/1.1, written by hand to a real socket. Row 90 is in `http2`.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request};
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::io::AsyncWriteExt;
use tower_webhook::rejection::RejectionKind::{MethodNotAllowed, MissingSignature};

use crate::bad_input::case::{BODY, accepted_by, good, header_by, refused, signed, unsigned, untouched};
use crate::bad_input::watch::watched;
use crate::support::socket::{RawClient, raw, serve};
use crate::support::{HEADER, NOW, Receiver, SECRET};

/// A request with these lines in its head, signed as [`BODY`] must be, and whatever follows the head.
fn post(lines: &str, rest: &str) -> String {
    format!("POST /webhooks HTTP/1.1\r\nhost: x\r\n{HEADER}: {}\r\n{lines}\r\n{rest}", header_by(SECRET, BODY))
}

/// A request whose head is all written by the caller.
fn head(lines: &str) -> String {
    format!("POST /webhooks HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n{lines}\r\n", BODY.len())
}

fn chunked(body: &str) -> String {
    let (first, second) = body.split_at(body.len() / 2);
    format!("{:x}\r\n{first}\r\n{:x};x=y\r\n{second}\r\n0\r\n\r\n", first.len(), second.len())
}

/// All that a fresh server answers to these bytes.
async fn exchange(receiver: &Receiver, bytes: impl AsRef<[u8]>) -> String {
    let mut client = RawClient::connect(serve(receiver.app.clone()).await).await;
    client.write(bytes).await;
    client.read_to_end().await
}

async fn refused_with(status: &str, bytes: impl AsRef<[u8]>, what: &str) {
    let receiver = Receiver::new();
    let answer = exchange(&receiver, bytes).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{what}: {answer}");
    untouched(&receiver, what);
}

async fn accepted_over_socket(bytes: impl AsRef<[u8]>, what: &str) {
    let receiver = Receiver::new();
    let answer = exchange(&receiver, bytes).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{what}: {answer}");
    assert_eq!((receiver.runs(), receiver.store.len()), (1, 1), "{what}");
}

#[tokio::test]
async fn hyper_refuses_invalid_headers() {
    let good = good();
    for (what, value) in [
        ("51: obs-fold", format!("t={NOW},\r\n v1={good}")),
        ("51: obs-fold, with a tab", format!("t={NOW},\r\n\tv1={good}")),
        ("51: obs-fold, of nothing", format!("t={NOW},v1={good}\r\n ")),
        ("52: NUL", format!("t={NOW},v1={good}\0")),
        ("52: NUL in front", format!("\0t={NOW},v1={good}")),
        ("52: NUL between", format!("t={NOW}\0,v1={good}")),
        ("52: bare CR", format!("t={NOW},v1={good}\r,v1=x")),
    ] {
        refused_with("400", head(&format!("{HEADER}: {value}\r\n")) + BODY, what).await;
    }
}

#[tokio::test]
async fn refusals_look_the_same_on_the_wire() {
    let good = good();
    let lines = [
        String::new(),
        format!("{HEADER}:\r\n"),
        format!("{HEADER}: t={NOW},v1=zz\r\n"),
        format!("{HEADER}: t={NOW},v0={good}\r\n"),
        format!("{HEADER}: t=1,v1={good}\r\n"),
        format!("{HEADER}: t={NOW}0,v1={good}\r\n"),
        format!("{HEADER}: t={},v1={good}\r\n", NOW + 1),
        format!("{HEADER}: t={NOW},v1={good}\r\n{HEADER}: t={NOW},v1={good}\r\n"),
    ];
    let mut answers = Vec::new();
    for lines in lines {
        let receiver = Receiver::new();
        let answer = exchange(&receiver, head(&lines) + BODY).await;
        untouched(&receiver, &lines);
        let undated: Vec<_> = answer.lines().filter(|line| !line.starts_with("date: ")).map(str::to_owned).collect();
        answers.push(undated);
    }
    assert_eq!(answers[0][0], "HTTP/1.1 401 Unauthorized");
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
}

#[tokio::test]
async fn body_in_chunks_is_capped() {
    let close = "connection: close\r\ntransfer-encoding: chunked\r\n";
    accepted_over_socket(post(close, &chunked(BODY)), "83: chunked, under the cap").await;
    // The chunk never ends, and what the cap allows of it is all that is waited for.
    let endless = format!("200000\r\n{}", "x".repeat(1024 * 1024 + 1));
    refused_with("413", post(close, &endless), "83: chunked, over the cap").await;
    let announced = format!("connection: close\r\ncontent-length: {}\r\n", 1024 * 1024 + 1);
    refused_with("413", post(&announced, ""), "83: cap + 1, announced").await;
}

#[tokio::test]
async fn body_shorter_than_announced_is_400() {
    for (what, length) in
        [("84: Content-Length longer than the body", BODY.len() + 1), ("84: much longer", 1024 * 1024)]
    {
        let receiver = Receiver::new();
        let mut client = RawClient::connect(serve(receiver.app.clone()).await).await;
        client.write(post(&format!("content-length: {length}\r\n"), BODY)).await;
        client.0.shutdown().await.expect("half a connection");
        let answer = client.read_to_end().await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer:?}");
        untouched(&receiver, what);
    }
}

#[tokio::test]
async fn sender_that_hangs_up_mid_body_leaves_nothing() {
    let what = "84: Content-Length longer than the body, closed both ways";
    let receiver = Receiver::new();
    let (app, mut watch) = watched(&receiver);
    let mut client = RawClient::connect(serve(app).await).await;
    client.write(post(&format!("content-length: {}\r\n", BODY.len() + 1), BODY)).await;
    watch.frame().await;
    drop(client);
    watch.end().await;
    untouched(&receiver, what);
}

#[tokio::test]
async fn slow_body_is_408() {
    let deadline = Duration::from_millis(200);
    let receiver = Receiver::configured(|layer| layer.body_deadline(deadline).expect("a deadline"));
    let answer = exchange(&receiver, post("content-length: 34\r\n", &BODY[..1])).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "85: one byte, and no more: {answer}");
    untouched(&receiver, "85: one byte, and no more");
}

#[tokio::test]
async fn request_that_will_be_refused_gets_no_100_continue() {
    let over = format!("connection: close\r\nexpect: 100-continue\r\ncontent-length: {}\r\n", 1024 * 1024 + 1);
    refused_with("413", post(&over, ""), "86: Expect: 100-continue over the cap").await;
    refused_with("401", head("expect: 100-continue\r\n"), "86: Expect: 100-continue, unsigned").await;
    let stale = format!("expect: 100-continue\r\n{HEADER}: t=1,v1={}\r\n", good());
    refused_with("401", head(&stale), "86: Expect: 100-continue, stale").await;

    let receiver = Receiver::new();
    let mut client = RawClient::connect(serve(receiver.app.clone()).await).await;
    client.write(post("connection: close\r\nexpect: 100-continue\r\ncontent-length: 34\r\n", "")).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 100 "), "86: under the cap, the body is asked for");
    client.write(BODY).await;
    assert!(client.read_to_end().await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn hyper_refuses_invalid_content_lengths() {
    for (what, lines) in [
        ("87: duplicate Content-Length", "content-length: 34\r\ncontent-length: 33\r\n"),
        ("87: duplicate Content-Length, the other way", "content-length: 33\r\ncontent-length: 34\r\n"),
        ("87: equal Content-Length in a list", "content-length: 34, 34\r\n"),
        ("87: +2 Content-Length", "content-length: +2\r\n"),
        ("87: +34 Content-Length", "content-length: +34\r\n"),
        ("87: -1 Content-Length", "content-length: -1\r\n"),
        ("87: 0x22 Content-Length", "content-length: 0x22\r\n"),
        ("87: empty Content-Length", "content-length:\r\n"),
        ("87: Content-Length of 20 digits", "content-length: 99999999999999999999\r\n"),
    ] {
        refused_with("400", post(&format!("connection: close\r\n{lines}"), BODY), what).await;
    }
}

#[tokio::test]
async fn equal_content_lengths_count_as_one() {
    let twice = "connection: close\r\ncontent-length: 34\r\ncontent-length: 34\r\n";
    accepted_over_socket(post(twice, BODY), "87: equal Content-Length twice, which hyper takes for one").await;
    refused_with("401", post(twice, &BODY.replace("evt_1", "evt_2")), "87: equal Content-Length twice, forged").await;
}

#[tokio::test]
async fn signature_decides_between_two_lengths() {
    let framed = chunked(BODY);
    let (length, chunks) = (format!("content-length: {}\r\n", framed.len()), "transfer-encoding: chunked\r\n");
    for lines in [format!("{length}{chunks}"), format!("{chunks}{length}")] {
        let lines = format!("connection: close\r\n{lines}");
        accepted_over_socket(post(&lines, &framed), "88: Content-Length with Transfer-Encoding").await;
        let forged = chunked(&BODY.replace("evt_1", "evt_2"));
        refused_with("401", post(&lines, &forged), "88: Content-Length with Transfer-Encoding, forged").await;
        // Signed as whoever goes by Content-Length sees it.
        let raw = format!("{HEADER}: {}\r\n{lines}", header_by(SECRET, &framed));
        let smuggled = format!("POST /webhooks HTTP/1.1\r\nhost: x\r\n{raw}\r\n{framed}");
        refused_with("401", smuggled, "88: signed over the chunks' frames").await;
    }
    // What a proxy that goes by Content-Length passes on as part of the body is no second request here.
    let second = post("content-length: 34\r\n", BODY);
    let hidden = format!("0\r\n\r\n{second}");
    let lines = format!("content-length: {}\r\n{chunks}", hidden.len());
    refused_with("401", post(&lines, &hidden), "88: a second request behind the last chunk").await;
    let other = "connection: close\r\ntransfer-encoding: gzip, identity\r\n";
    refused_with("400", post(other, BODY), "88: a Transfer-Encoding that is not chunked").await;
}

#[tokio::test]
async fn other_methods_are_405() {
    for (what, method) in [
        ("89: GET", Method::GET),
        ("89: PUT", Method::PUT),
        ("89: PATCH", Method::PATCH),
        ("89: DELETE", Method::DELETE),
        ("89: OPTIONS", Method::OPTIONS),
        ("89: HEAD", Method::HEAD),
        ("89: post, which is no POST", Method::from_bytes(b"post").expect("a method")),
    ] {
        let mut request = signed(BODY);
        *request.method_mut() = method.clone();
        refused(request, 405, MethodNotAllowed, what).await;

        let receiver = Receiver::new();
        let (head, body) = raw(receiver.event("evt_1").method(method).request_as()).await;
        let head = format!("{head}connection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let answer = exchange(&receiver, [head.as_bytes(), &body].concat()).await;
        assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nallow: POST\r\n"), "{what}: {answer}");
        untouched(&receiver, what);
    }
    let asked_for = Receiver::configured(|layer| layer.methods([Method::PUT]).expect("methods"));
    let mut request = signed(BODY);
    *request.method_mut() = Method::PUT;
    accepted_by(&asked_for, request, "89: PUT, asked for").await;
}

#[tokio::test]
async fn trailers_prove_nothing() {
    let trailer = format!("{HEADER}: {}\r\n", header_by(SECRET, BODY));
    let framed = chunked(BODY);
    let with_trailer = format!("{}{trailer}\r\n", framed.strip_suffix("\r\n").expect("chunks"));
    let head = "POST /webhooks HTTP/1.1\r\nhost: x\r\nconnection: close\r\nte: trailers\r\n";
    let head = format!("{head}trailer: {HEADER}\r\ntransfer-encoding: chunked\r\n\r\n");
    refused_with("401", format!("{head}{with_trailer}"), "91: signature in a trailer").await;

    let mut trailers = Request::new(Body::empty()).headers().clone();
    trailers.insert(HEADER, header_by(SECRET, BODY).parse().expect("a header"));
    let frames = [Frame::data(Bytes::from_static(BODY.as_bytes())), Frame::trailers(trailers)];
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, std::io::Error>)));
    refused(unsigned(Body::new(body)), 401, MissingSignature, "91: signature in a trailer, in process").await;
}
