use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_redis::redis::aio::ConnectionLike;
use deadpool_redis::redis::{self, Cmd, ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::RedisPool;
use super::fault::{Fault, NoConnection, is_demoted};
use super::line::Line;
use crate::telemetry;

/// Between two attempts to connect where there is no connection: short, since deliveries are refused meanwhile.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Between two attempts to replace a connection that still answers.
const REPLACE_PAUSE: Duration = Duration::from_millis(500);

/// Nobody waits for an attempt this long, but one that takes its time is not begun anew for everybody who comes.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);

/// How long a reply is waited for by those who have to know what was done.
const LATEST_REPLY: Duration = Duration::from_secs(300);

/// The reply to a command, and to the one sent right behind it.
pub(super) type Replies = (Value, Option<Value>);

/// A connection that is shared, and replaced when it breaks.
///
/// What is sent along a lane is carried out in that order, except across a replacement or a redirection in a Cluster: what is
/// still on its way by the connection before may come after what goes by the next. A claim or a renewal that comes after its own
/// release is a ghost: nobody runs the event, and it is in flight until that lease ends, no longer.
pub(super) struct Lane {
    pool: RedisPool,
    timeout: Duration,
    link: watch::Sender<Link>,
    /// How many answers came, to tell a slow server from a connection that leads nowhere.
    answers: AtomicU64,
}

/// What is done where the connection breaks before the reply is there: the command may have been carried out or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OnBreak {
    /// Asks again on another connection, for what may be carried out twice.
    Repeat,
    /// It is an error, for what must not come after anything that is asked later, or is answered otherwise when it is carried out twice.
    Fail,
}

/// A connection of a lane's.
struct Connected {
    line: Line,
    number: u64,
    begun: Instant,
}

#[derive(Default)]
struct Link {
    line: Option<Line>,
    /// Grows with every connection, so that only the one that broke is given up.
    number: u64,
    /// When the attempt began that made the connection.
    begun: Option<Instant>,
    connecting: bool,
    tried: Option<Instant>,
    failure: Option<NoConnection>,
}

impl Lane {
    /// A lane that connects when it is first used.
    pub(super) fn new(pool: RedisPool, timeout: Duration) -> Arc<Self> {
        Arc::new(Self { pool, timeout, link: watch::Sender::default(), answers: AtomicU64::new(0) })
    }

    /// Sends `command`, and `then` right behind it, and returns both replies.
    pub(super) async fn ask(
        self: &Arc<Self>,
        command: &Cmd,
        then: Option<&Cmd>,
        on_break: OnBreak,
    ) -> Result<Replies, Fault> {
        let answers = self.answers.load(Ordering::Relaxed);
        let asking = async {
            match on_break {
                OnBreak::Repeat => self.ask_again(command, then).await,
                OnBreak::Fail => self.ask_by(self.connected().await?, command, then).await,
            }
        };
        match timeout(self.timeout, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(self.timed_out(answers)),
        }
    }

    /// Sends `command` once, and waits for its reply until nobody can hope for one any more. If nothing comes for the usual time, the
    /// connection is replaced as ever, and the reply still comes by it.
    pub(super) async fn ask_patiently(self: &Arc<Self>, command: &Cmd) -> Result<Value, Fault> {
        let answers = self.answers.load(Ordering::Relaxed);
        let mut asking = pin!(async { self.ask_by(self.connected().await?, command, None).await });
        if let Ok(answer) = timeout(self.timeout, &mut asking).await {
            return Ok(answer?.0);
        }
        let fault = self.timed_out(answers);
        match timeout(LATEST_REPLY, asking).await {
            Ok(answer) => Ok(answer?.0),
            Err(_) => Err(fault),
        }
    }

    /// A connection to ask something else.
    pub(super) async fn line(self: &Arc<Self>) -> Result<Line, Fault> {
        match timeout(self.timeout, self.connected()).await {
            Ok(connected) => Ok(connected?.line),
            Err(_) => Err(NoConnection::NotYet(self.timeout).into()),
        }
    }

    /// Asks again where the connection broke: one that turns out to be closed, as idle ones are by servers and networks, costs no
    /// delivery. Whatever broke it may have broken others that were begun before; one that was begun later is asked once.
    async fn ask_again(self: &Arc<Self>, command: &Cmd, then: Option<&Cmd>) -> Result<Replies, Fault> {
        let mut broke_at = None;
        loop {
            let connected = self.connected().await?;
            let begun = connected.begun;
            match self.ask_by(connected, command, then).await {
                Err(Fault::Broken(_)) if broke_at.is_none_or(|broke_at| begun <= broke_at) => {
                    broke_at.get_or_insert_with(Instant::now);
                }
                answer => return answer,
            }
        }
    }

    async fn ask_by(
        self: &Arc<Self>,
        connected: Connected,
        command: &Cmd,
        then: Option<&Cmd>,
    ) -> Result<Replies, Fault> {
        let Connected { mut line, number, .. } = connected;
        let replies = send(&mut line, command, then).await;
        if !replies.as_ref().is_err_and(RedisError::is_io_error) {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
        replies.map_err(|error| self.judge(&line, number, error))
    }

    /// What an error says about the connection it came by.
    fn judge(self: &Arc<Self>, line: &Line, number: u64, error: RedisError) -> Fault {
        let is_broken = error.is_unrecoverable_error();
        match line {
            Line::Node(_) if is_broken => {
                self.give_up(number, &error);
                return Fault::Broken(error);
            }
            // It finds its way back by itself, unless it has lost every node it knew.
            Line::Cluster(_) if is_broken => self.replace(number),
            _ if is_demoted(&error) => self.replace(number),
            _ => {}
        }
        error.into()
    }

    /// Nothing came in time. If nothing at all came on this connection, it may lead nowhere: another is taken, and this one
    /// is used until that is there. A server that only stands still then finds the commands in their order.
    fn timed_out(self: &Arc<Self>, answers_before: u64) -> Fault {
        let (has_line, is_cluster, number) = {
            let link = self.link.borrow();
            (link.line.is_some(), matches!(link.line, Some(Line::Cluster(_))), link.number)
        };
        if !has_line {
            return NoConnection::NotYet(self.timeout).into();
        }
        // A Cluster's other nodes may well have answered.
        if is_cluster || self.answers.load(Ordering::Relaxed) == answers_before {
            self.replace(number);
        }
        Fault::TimedOut
    }

    /// The connection, as soon as there is one. An attempt that was begun before this was asked, and fails, says nothing about the
    /// server of now; one that took too long says nothing at all, while there is time left here. Another one is waited for.
    async fn connected(self: &Arc<Self>) -> Result<Connected, NoConnection> {
        let asked = Instant::now();
        loop {
            if let Some(connected) = self.link.borrow().connected() {
                return Ok(connected);
            }
            self.reconnect();
            let mut link = self.link.subscribe();
            let link = link.wait_for(|link| !link.connecting).await.map_err(|_| NoConnection::Abandoned)?;
            let is_of_now = link.line.is_none() && link.tried.is_some_and(|tried| tried >= asked);
            let failure = link.failure.clone().unwrap_or(NoConnection::Abandoned);
            if is_of_now && (!failure.is_timeout() || asked.elapsed() >= self.timeout) {
                return Err(failure);
            }
        }
    }

    /// Takes a connection where there is none, after a pause if the last attempt was only just now.
    fn reconnect(self: &Arc<Self>) {
        self.attempt(|link, now| {
            let next = link.tried.map_or(now, |tried| tried + RECONNECT_PAUSE);
            link.line.is_none().then_some(next.max(now))
        });
    }

    /// Takes another connection in the place of one that still answers, unless that was tried only just now.
    fn replace(self: &Arc<Self>, number: u64) {
        self.attempt(|link, now| {
            let is_due = link.tried.is_none_or(|tried| now - tried >= REPLACE_PAUSE);
            (link.number == number && is_due).then_some(now)
        });
    }

    /// Begins an attempt at the time that `when` says, unless there is one. It is a task of its own: those who wait for it may
    /// give up.
    fn attempt(self: &Arc<Self>, when: impl FnOnce(&Link, Instant) -> Option<Instant>) {
        let mut begin = None;
        self.link.send_if_modified(|link| {
            begin = if link.connecting { None } else { when(link, Instant::now()) };
            link.connecting |= begin.is_some();
            link.tried = begin.or(link.tried);
            begin.is_some()
        });
        if let Some(begin) = begin {
            tokio::spawn(Attempt { lane: self.clone(), begin, taken: None }.run());
        }
    }

    fn give_up(&self, number: u64, error: &RedisError) {
        let given_up = self.link.send_if_modified(|link| {
            let is_current = link.number == number && link.line.is_some();
            if is_current {
                link.line = None;
                link.failure = Some(NoConnection::Lost(error.clone()));
            }
            is_current
        });
        if given_up {
            telemetry::redis_connection_lost(error);
        }
    }
}

impl Link {
    fn connected(&self) -> Option<Connected> {
        let line = self.line.clone()?;
        Some(Connected { line, number: self.number, begun: self.begun? })
    }
}

/// Tells the lane how it ended, even if its runtime ends first.
struct Attempt {
    lane: Arc<Lane>,
    begin: Instant,
    taken: Option<Result<Line, NoConnection>>,
}

impl Attempt {
    async fn run(mut self) {
        sleep_until(self.begin).await;
        let Lane { pool, timeout: usual, link, .. } = &*self.lane;
        if link.borrow().number > 0 {
            pool.drop_idle();
        }
        let longest = LONGEST_ATTEMPT.max(*usual);
        self.taken = Some(match timeout(longest, pool.take()).await {
            Ok(Ok(line)) => Ok(patient(line, *usual)),
            Ok(Err(error)) => Err(NoConnection::Refused(Arc::new(error))),
            Err(_) => Err(NoConnection::NotYet(longest)),
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let taken = self.taken.take().unwrap_or(Err(NoConnection::Abandoned));
        self.lane.link.send_modify(|link| {
            link.connecting = false;
            match taken {
                Ok(line) => {
                    (link.line, link.number, link.failure) = (Some(line), link.number + 1, None);
                    link.begun = Some(self.begin);
                }
                Err(why) => link.failure = Some(why),
            }
        });
    }
}

/// Half a second is what the client waits for a reply unless told otherwise; here it is the lane's timeout that decides.
fn patient(mut line: Line, usual: Duration) -> Line {
    if let Line::Node(node) = &mut line {
        node.set_response_timeout(usual.saturating_add(LATEST_REPLY));
    }
    line
}

async fn send(line: &mut Line, command: &Cmd, then: Option<&Cmd>) -> RedisResult<Replies> {
    let Some(then) = then else {
        return Ok((command.query_async(line).await?, None));
    };
    let mut pipeline = redis::pipe();
    pipeline.add_command(command.clone()).add_command(then.clone());
    let replies: [Value; 2] = line
        .req_packed_commands(&pipeline, 0, 2)
        .await?
        .try_into()
        .map_err(|_| (ErrorKind::UnexpectedReturnType, "two commands were not answered with two replies"))?;
    let [reply, then] = replies;
    Ok((reply.extract_error()?, Some(then.extract_error()?)))
}
