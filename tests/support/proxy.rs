//! A TCP proxy in front of a server, which can cut its connections, hold replies back, or swallow one direction.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// What happens to the bytes that pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weather {
    #[default]
    Fair,
    /// Connections are closed, and new ones are closed as soon as they are accepted.
    Cut,
    /// What the client sends waits until the weather changes.
    HoldRequests,
    /// Requests arrive and take effect; their replies do not.
    SwallowReplies,
    /// Requests arrive and take effect; their replies wait until the weather changes.
    HoldReplies,
    /// From the first request with this text in it on, replies are swallowed.
    SwallowRepliesFrom(&'static str),
}

/// Stops when it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    sky: watch::Sender<Sky>,
    accepting: AbortHandle,
}

/// What all connections look at.
#[derive(Clone, Copy, Default)]
struct Sky {
    weather: Weather,
    /// How often the connections of the moment were cut. One that was made before the last time is over.
    cuts: usize,
    /// How often the connections of the moment were left behind. One that was made before the last time has weather of its own.
    age: usize,
    behind: Weather,
}

impl Sky {
    /// What happens to a connection that was made under `then`.
    fn over(&self, then: Sky) -> Weather {
        match self.cuts > then.cuts {
            true => Weather::Cut,
            false if self.age > then.age => self.behind,
            false => self.weather,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

impl Proxy {
    /// A proxy in front of the server at `upstream`.
    pub(crate) async fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let sky = watch::Sender::new(Sky::default());
        let sender = sky.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A server that is away looks like a connection that closes at once.
                tokio::spawn(connect(client, upstream, sender.clone()));
            }
        });
        Self { address, sky, accepting: accepting.abort_handle() }
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.sky.send_modify(|sky| sky.weather = weather);
    }

    /// Closes the connections that there are; nothing passes through them any more. New ones have fair weather.
    pub(crate) fn cut(&self) {
        self.sky.send_modify(|sky| *sky = Sky { weather: Weather::Fair, cuts: sky.cuts + 1, ..*sky });
    }

    /// From now on the connections that there are have this weather, and others have fair weather.
    pub(crate) fn leave_behind(&self, behind: Weather) {
        self.sky.send_modify(|sky| *sky = Sky { weather: Weather::Fair, age: sky.age + 1, behind, ..*sky });
    }

    /// Changes the weather of the connections that were left behind.
    pub(crate) fn set_behind(&self, behind: Weather) {
        self.sky.send_modify(|sky| sky.behind = behind);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.set(Weather::Cut);
    }
}

async fn connect(client: TcpStream, upstream: SocketAddr, sender: watch::Sender<Sky>) -> io::Result<()> {
    let mut sky = sender.subscribe();
    let then = *sky.borrow();
    if then.weather == Weather::Cut {
        return Ok(());
    }
    let server = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let requests = pass(from_client, to_server, Direction::Requests, then, sender.clone());
    let replies = pass(from_server, to_client, Direction::Replies, then, sender.clone());
    tokio::select! {
        ended = requests => ended,
        ended = replies => ended,
        _ = sky.wait_for(|sky| sky.over(then) == Weather::Cut) => Ok(()),
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    then: Sky,
    sender: watch::Sender<Sky>,
) -> io::Result<()> {
    let mut sky = sender.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    let mut seen = Vec::new();
    loop {
        let length = from.read(&mut buffer).await?;
        let weather = sky.borrow().over(then);
        // Cut is looked for here, too: what was read at that moment must not pass.
        if length == 0 || weather == Weather::Cut {
            return Ok(());
        }
        match (weather, direction) {
            (Weather::SwallowReplies, Direction::Replies) => continue,
            (Weather::HoldReplies, Direction::Replies) | (Weather::HoldRequests, Direction::Requests) => {
                // The proxy's end is a change of weather, too.
                let _ = sky.wait_for(|sky| sky.over(then) != weather).await;
            }
            (Weather::SwallowRepliesFrom(text), Direction::Requests) => {
                seen.extend_from_slice(&buffer[..length]);
                if seen.windows(text.len()).any(|window| window == text.as_bytes()) {
                    // Before the server has the request.
                    sender.send_modify(|sky| sky.weather = Weather::SwallowReplies);
                }
                // The text may end in what is read next.
                seen.drain(..seen.len().saturating_sub(text.len()));
            }
            _ => {}
        }
        to.write_all(&buffer[..length]).await?;
    }
}
