use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use deadpool_redis::redis::aio::ConnectionLike;
use deadpool_redis::redis::{self, Cmd, ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::RedisPool;
use super::error::{CommandError, NoConnection, Result, is_demoted};
use super::pool::Connection;
use crate::telemetry;

/// Between two attempts to connect where there is no connection: short, since deliveries are refused meanwhile.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Between two attempts to replace a connection that still answers.
const REPLACE_PAUSE: Duration = Duration::from_millis(500);

/// The longest attempt to connect, where the timeout is shorter. A slow attempt is not begun anew for every caller.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);

/// How long a connection may be silent before it is checked.
const SILENCE: Duration = Duration::from_millis(100);

/// How long a late reply is waited for.
const LATEST_REPLY: Duration = Duration::from_secs(300);

/// The reply to a command, and to the one sent right behind it.
pub(super) type Replies = (Value, Option<Value>);

/// A connection that all callers share, and that is replaced when it breaks.
///
/// The server runs the commands of a connection in their order, except across a replacement or a redirection in a
/// Cluster: a command of the old connection may arrive after one of the new connection. A claim or a renewal that
/// arrives after its own release keeps the event in flight without running it, but only until that lease ends.
pub(super) struct SharedConnection {
    pool: RedisPool,
    timeout: Duration,
    state: watch::Sender<State>,
    /// How many replies came, to tell a slow server from a connection that leads nowhere.
    replies: AtomicU64,
}

/// How a command is sent. If the connection breaks before the reply, the server may have run the command or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// Again on another connection if the connection breaks, for commands that may run twice.
    Repeatable,
    /// Once, for commands that must not overtake a later one, or whose second reply differs.
    Once,
    /// Once, and the reply is waited for long after the timeout, for callers that have to know what was done.
    AwaitLateReply,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// How many connections were made.
    made: u64,
    connecting: bool,
    /// When the last attempt began, or is to begin.
    tried: Option<Instant>,
    failure: Option<NoConnection>,
}

#[derive(Clone)]
struct Current {
    connection: Connection,
    /// Another one for every connection, so that only the one that broke is dropped.
    number: u64,
    /// When the attempt began that made the connection.
    begun: Instant,
}

impl SharedConnection {
    /// A connection that is made when it is first used.
    pub(super) fn new(pool: RedisPool, timeout: Duration) -> Arc<Self> {
        Arc::new(Self { pool, timeout, state: watch::Sender::default(), replies: AtomicU64::new(0) })
    }

    /// Sends `command`, and `then` right behind it, and returns both replies. If nothing comes within the timeout, the
    /// connection is replaced, and a late reply still comes by the old one.
    pub(super) async fn ask(self: &Arc<Self>, command: &Cmd, then: Option<&Cmd>, sending: Sending) -> Result<Replies> {
        let replies = self.replies.load(Ordering::Relaxed);
        let mut asking = pin!(async {
            match sending {
                Sending::Repeatable => self.ask_again(command, then).await,
                Sending::Once | Sending::AwaitLateReply => self.ask_by(self.current().await?, command, then).await,
            }
        });
        if let Ok(answer) = timeout(self.timeout, &mut asking).await {
            return answer;
        }
        let error = self.timed_out(replies);
        if sending != Sending::AwaitLateReply {
            return Err(error);
        }
        timeout(LATEST_REPLY, asking).await.unwrap_or(Err(error))
    }

    /// Returns the connection, for commands that the caller sends itself.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Connection> {
        match timeout(self.timeout, self.current()).await {
            Ok(current) => Ok(current?.connection),
            Err(_) => Err(NoConnection::NotYet(self.timeout).into()),
        }
    }

    /// Asks again where the connection broke: servers and networks close idle connections, and that must cost no
    /// delivery. The same cause may have broken others that were begun before; one that was begun later is asked once.
    async fn ask_again(self: &Arc<Self>, command: &Cmd, then: Option<&Cmd>) -> Result<Replies> {
        let mut broke_at = None;
        loop {
            let current = self.current().await?;
            let begun = current.begun;
            match self.ask_by(current, command, then).await {
                Err(CommandError::Broken(_)) if broke_at.is_none_or(|broke_at| begun <= broke_at) => {
                    broke_at.get_or_insert_with(Instant::now);
                }
                answer => return answer,
            }
        }
    }

    async fn ask_by(self: &Arc<Self>, current: Current, command: &Cmd, then: Option<&Cmd>) -> Result<Replies> {
        let Current { mut connection, number, .. } = current;
        let other = connection.clone();
        let replies = unless_closed(other, send(&mut connection, command, then)).await;
        if !replies.as_ref().is_err_and(RedisError::is_io_error) {
            self.replies.fetch_add(1, Ordering::Relaxed);
        }
        replies.map_err(|error| self.on_error(&connection, number, error))
    }

    /// Drops or replaces the connection if the error says that it cannot be used.
    fn on_error(self: &Arc<Self>, connection: &Connection, number: u64, error: RedisError) -> CommandError {
        let is_broken = error.is_unrecoverable_error();
        match connection {
            Connection::Node(_) if is_broken => {
                self.drop_broken(number, &error);
                return CommandError::Broken(error);
            }
            // It reconnects by itself, unless it has lost every node that it knew.
            Connection::Cluster(_) if is_broken => self.replace(number),
            _ if is_demoted(&error) => self.replace(number),
            _ => {}
        }
        error.into()
    }

    /// If no reply at all came on this connection, it may lead nowhere: another one is made, and this one is used until
    /// then. A server that was only paused then gets the commands in their order.
    fn timed_out(self: &Arc<Self>, replies_before: u64) -> CommandError {
        let Some(Current { connection, number, .. }) = self.state.borrow().current.clone() else {
            return NoConnection::NotYet(self.timeout).into();
        };
        // On a Cluster, the replies may be those of other nodes.
        let is_cluster = matches!(connection, Connection::Cluster(_));
        if is_cluster || self.replies.load(Ordering::Relaxed) == replies_before {
            self.replace(number);
        }
        CommandError::TimedOut
    }

    /// Waits for the connection. The failure of an attempt that began before this call says nothing about the server
    /// now, and a slow attempt says nothing at all while there is time left: in both cases, the next attempt counts.
    async fn current(self: &Arc<Self>) -> Result<Current, NoConnection> {
        let asked = Instant::now();
        loop {
            if let Some(current) = &self.state.borrow().current {
                return Ok(current.clone());
            }
            self.reconnect();
            let mut state = self.state.subscribe();
            let state = state.wait_for(|state| !state.connecting).await.map_err(|_| NoConnection::Abandoned)?;
            let is_of_now = state.current.is_none() && state.tried.is_some_and(|tried| tried >= asked);
            let failure = state.failure.clone().unwrap_or(NoConnection::Abandoned);
            if is_of_now && (!failure.is_timeout() || asked.elapsed() >= self.timeout) {
                return Err(failure);
            }
        }
    }

    /// Connects where there is no connection, after a pause if the last attempt was only just now.
    fn reconnect(self: &Arc<Self>) {
        self.attempt(|state, now| {
            let next = state.tried.map_or(now, |tried| tried + RECONNECT_PAUSE);
            state.current.is_none().then_some(next.max(now))
        });
    }

    /// Makes a connection that replaces one that still answers, unless the last attempt was only just now.
    fn replace(self: &Arc<Self>, number: u64) {
        self.attempt(|state, now| {
            let is_due = state.tried.is_none_or(|tried| now - tried >= REPLACE_PAUSE);
            (state.made == number && is_due).then_some(now)
        });
    }

    /// Begins an attempt at the time that `when` returns, unless there is one. It is a task of its own: the callers
    /// that wait for it may leave.
    fn attempt(self: &Arc<Self>, when: impl FnOnce(&State, Instant) -> Option<Instant>) {
        let mut begin = None;
        self.state.send_if_modified(|state| {
            begin = if state.connecting { None } else { when(state, Instant::now()) };
            state.connecting |= begin.is_some();
            state.tried = begin.or(state.tried);
            begin.is_some()
        });
        if let Some(begin) = begin {
            tokio::spawn(Attempt { shared: self.clone(), begin, outcome: None }.run());
        }
    }

    fn drop_broken(&self, number: u64, error: &RedisError) {
        let is_dropped = self.state.send_if_modified(|state| {
            let is_current = state.current.as_ref().is_some_and(|current| current.number == number);
            if is_current {
                state.current = None;
                state.failure = Some(NoConnection::Lost(error.clone()));
            }
            is_current
        });
        if is_dropped {
            telemetry::redis_connection_lost(error);
        }
    }
}

/// An attempt to connect. Its outcome is stored when it is dropped, even if its runtime ends first.
struct Attempt {
    shared: Arc<SharedConnection>,
    begin: Instant,
    outcome: Option<Result<Connection, NoConnection>>,
}

impl Attempt {
    async fn run(mut self) {
        sleep_until(self.begin).await;
        let SharedConnection { pool, timeout: usual, state, .. } = &*self.shared;
        if state.borrow().made > 0 {
            pool.drop_idle();
        }
        let longest = LONGEST_ATTEMPT.max(*usual);
        self.outcome = Some(match timeout(longest, pool.take()).await {
            Ok(Ok(mut connection)) => {
                // The client waits for half a second by default. Here the timeout of the shared connection decides.
                if let Connection::Node(node) = &mut connection {
                    node.set_response_timeout(usual.saturating_add(LATEST_REPLY));
                }
                Ok(connection)
            }
            Ok(Err(error)) => Err(NoConnection::Refused(Arc::new(error))),
            Err(_) => Err(NoConnection::NotYet(longest)),
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or(Err(NoConnection::Abandoned));
        self.shared.state.send_modify(|state| {
            state.connecting = false;
            match outcome {
                Ok(connection) => {
                    (state.made, state.failure) = (state.made + 1, None);
                    state.current = Some(Current { connection, number: state.made, begun: self.begin });
                }
                Err(why) => state.failure = Some(why),
            }
        });
    }
}

/// Waits for replies, or until the connection is closed.
///
/// A command that is handed to the client at the very moment at which its connection breaks is neither sent nor
/// refused: it stays in the channel of the task that drove the connection. So a connection that is silent is checked
/// again and again.
async fn unless_closed(
    mut connection: Connection,
    replies: impl Future<Output = RedisResult<Replies>>,
) -> RedisResult<Replies> {
    let mut replies = pin!(replies);
    loop {
        if let Ok(replies) = timeout(SILENCE, &mut replies).await {
            return replies;
        }
        if let Some(error) = closed(&mut connection).await {
            return Err(error);
        }
    }
}

/// The error of a closed connection. The command that finds out is not sent: the client drops commands that nobody
/// waits for.
async fn closed(connection: &mut Connection) -> Option<RedisError> {
    let Connection::Node(node) = connection else { return None };
    let ping = redis::cmd("PING");
    let mut asking = pin!(ping.query_async::<()>(node));
    match poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await {
        Poll::Ready(Err(error)) if error.is_connection_dropped() => Some(error),
        _ => None,
    }
}

async fn send(connection: &mut Connection, command: &Cmd, then: Option<&Cmd>) -> RedisResult<Replies> {
    let Some(then) = then else {
        return Ok((command.query_async(connection).await?, None));
    };
    let mut pipeline = redis::pipe();
    pipeline.add_command(command.clone()).add_command(then.clone());
    let replies: [Value; 2] = connection
        .req_packed_commands(&pipeline, 0, 2)
        .await?
        .try_into()
        .map_err(|_| (ErrorKind::UnexpectedReturnType, "two commands were not answered with two replies"))?;
    let [reply, then] = replies;
    Ok((reply.extract_error()?, Some(then.extract_error()?)))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A connection to a server that agrees to everything, and that server's end of it.
    async fn connected() -> (Connection, tokio::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let (mut heard, mut agreed) = (String::new(), 0);
            // The client names its library and the version of that.
            while agreed < 2 {
                let mut bytes = [0; 1024];
                let length = stream.read(&mut bytes).await.expect("a request");
                heard.push_str(&String::from_utf8_lossy(&bytes[..length]));
                while agreed < heard.matches("SETINFO").count() {
                    stream.write_all(b"+OK\r\n").await.expect("a reply");
                    agreed += 1;
                }
            }
            stream
        });
        let client = redis::Client::open(format!("redis://{address}/")).expect("a URL");
        let node = client.get_multiplexed_async_connection().await.expect("a connection");
        (Connection::Node(node), serving.await.expect("no panic"))
    }

    #[tokio::test]
    async fn command_that_is_never_answered_ends_with_its_connection() {
        let (mut connection, server) = connected().await;
        assert!(closed(&mut connection).await.is_none(), "a server that is silent is not away");
        let waiting = tokio::spawn(unless_closed(connection, pending()));
        drop(server);
        let error = waiting.await.expect("no panic").expect_err("there is nobody to answer");
        assert!(error.is_connection_dropped(), "{error}");
    }
}
