//! A server that refuses `SET` with both `NX` and `GET` and scripts with flags, and does not tell scripts its version, as Redis 6.2
//! does.
//!
//! There is none to be had, so it is a new one behind a proxy that misspells the `GET`, the mark before the flags, and the name that
//! scripts ask for, on their way there: the syntax errors are the server's own.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::support::servers::redis::RedisServer;

const TOGETHER: &[u8] = b"$2\r\nNX\r\n$3\r\nGET\r\n";
const AT: usize = b"$2\r\nNX\r\n$3\r\nG".len();
const FLAGS: &[u8] = b"#!lua flags=";
const VERSION: &[u8] = b"redis.REDIS_VERSION_NUM";

/// Stops when it is dropped.
pub(crate) struct OldServer {
    pub(crate) server: RedisServer,
    address: SocketAddr,
    accepting: AbortHandle,
}

impl OldServer {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (address, upstream) = (listener.local_addr().expect("an address"), server.address());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, upstream));
            }
        });
        Self { server, address, accepting: accepting.abort_handle() }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }
}

impl Drop for OldServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn connect(client: TcpStream, upstream: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let requests = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = from_client.read(&mut buffer).await?;
            if length == 0 {
                return io::Result::Ok(());
            }
            misspell(&mut buffer[..length]);
            to_server.write_all(&buffer[..length]).await?;
        }
    };
    tokio::select! {
        ended = requests => ended,
        ended = tokio::io::copy(&mut from_server, &mut to_client) => ended.map(drop),
    }
}

/// A command cut in two by the buffer's end goes through as it is, which does no harm: the server knows it, after all.
fn misspell(requests: &mut [u8]) {
    for (words, at) in [(TOGETHER, AT), (FLAGS, 1), (VERSION, VERSION.len() - 1)] {
        let mut from = 0;
        while let Some(found) = requests[from..].windows(words.len()).position(|window| window == words) {
            requests[from + found + at] = b'X';
            from += found + words.len();
        }
    }
}
