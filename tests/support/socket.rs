//! The receiver behind a real socket, and a client that writes raw bytes.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Nothing in these tests takes this long; it only turns a hang into a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Serves `app` until the test's runtime ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A connection on which HTTP/1.1 is written by hand.
pub(crate) struct RawClient(pub(crate) TcpStream);

impl RawClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.expect("a connection"))
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("a writable connection");
        self.0.flush().await.expect("a writable connection");
    }

    /// Everything that the server sends until it closes the connection.
    pub(crate) async fn read_to_end(&mut self) -> String {
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut answer)).await.expect("an end");
        // A reset after the answer is as good as an end: the server did not read what it refused.
        let _ = read;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The head of the next response.
    pub(crate) async fn read_head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = tokio::time::timeout(PATIENCE, self.0.read_u8()).await.expect("an answer");
            head.push(byte.expect("an answer before the end"));
        }
        String::from_utf8_lossy(&head).into_owned()
    }
}

/// The head of `request` as HTTP/1.1 text, without its last empty line, and its body.
pub(crate) async fn raw(request: Request<Body>) -> (String, Vec<u8>) {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes().to_vec();
    let mut head = format!("{} {} HTTP/1.1\r\nhost: localhost\r\n", parts.method, parts.uri);
    for (name, value) in &parts.headers {
        head += &format!("{name}: {}\r\n", value.to_str().expect("text"));
    }
    (head, body)
}
