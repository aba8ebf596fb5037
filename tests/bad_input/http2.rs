//! Row 90: streams that end before their body does.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::{StreamExt, stream};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

use crate::bad_input::case::{BODY, header_by, signed, untouched};
use crate::bad_input::watch::watched;
use crate::support::{HEADER, Receiver, SECRET};

/// A client of a server that speaks HTTP/2 only.
async fn connect(app: Router) -> SendRequest<Body> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)).await
    });
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (client, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a handshake");
    tokio::spawn(connection);
    client
}

fn absolute(mut request: Request<Body>) -> Request<Body> {
    *request.uri_mut() = "http://localhost/webhooks".parse().expect("a URI");
    request
}

/// A signed delivery whose body stops after `sent` without an end, and then does what `then` does.
fn broken(sent: &'static str, then: impl Future<Output = std::io::Error> + Send + 'static) -> Request<Body> {
    let first = stream::iter([Ok(Bytes::from_static(sent.as_bytes()))]);
    let body = Body::from_stream(first.chain(stream::once(async { Err(then.await) })));
    let request = Request::post("http://localhost/webhooks").header(HEADER, header_by(SECRET, BODY));
    request.body(body).expect("a request")
}

#[tokio::test]
async fn stream_reset_mid_body_leaves_nothing() {
    for (what, sent) in
        [("90: h2 stream reset mid-body", &BODY[..BODY.len() / 2]), ("90: h2 stream reset where the end was due", BODY)]
    {
        let receiver = Receiver::new();
        let (app, mut watch) = watched(&receiver);
        let mut client = connect(app).await;

        let (fail, failing) = tokio::sync::oneshot::channel();
        let failing = async { failing.await.expect("a test that goes on") };
        let answer = tokio::spawn(client.send_request(broken(sent, failing)));
        watch.frame().await;
        fail.send(std::io::Error::other("the sender broke down")).expect("a body that is being sent");
        watch.end().await;
        assert!(!answer.await.expect("a client").is_ok_and(|answer| answer.status().is_success()), "{what}");
        untouched(&receiver, what);

        let answer = tokio::spawn(client.send_request(broken(sent, std::future::pending())));
        watch.frame().await;
        answer.abort();
        watch.end().await;
        untouched(&receiver, what);

        let whole = client.send_request(absolute(signed(BODY))).await.expect("an answer on the same connection");
        assert_eq!((whole.status().as_u16(), receiver.runs(), receiver.store.len()), (200, 1, 1), "{what}");
    }
}
