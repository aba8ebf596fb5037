//! Leasing in a task of its own: leased events reach a worker with their requests, or are released.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::client::{Client, Mode};
use super::entry::{Entry, event_key, optional};
use super::error::{CommandError, NoConnection, Result};
use super::queue::{HeldEvent, RedisQueue, delays, lease_milliseconds};
use super::record::{self, Unreadable};
use super::scripts;
use crate::store::in_transit::{InTransit, Releaser};
use crate::store::queue::{KindLimits, LAPSED, LeaseRequest, Leased, UNREADABLE};
use crate::store::{ClaimToken, Ending};
use crate::telemetry;

/// How many events one script leases at most: the server does nothing else meanwhile.
const MOST: usize = 64;

/// How many scripts one lease runs that lease nothing, because they had to repair something.
const MOST_SCRIPTS: usize = 64;

/// How often a lease is sent if its connection breaks. An idle connection that turns out to be closed costs no lease,
/// nor does another one that was begun before.
const SENDS: usize = 3;

/// How many bytes of requests are read at a time, unless it is a single one.
const AT_ONCE: usize = 1024 * 1024;

/// The failure of an event whose request is gone.
const GONE: &str = "the stored request is gone: its key was deleted, or evicted";

/// The rows, the keys of events that were buried, the position up to which everything was read, whether there may be
/// more, and whether there are events to purge.
type Reply = (Vec<Row>, Vec<String>, Option<String>, bool, bool);

/// The attempt, whether the event is superseded, whether a handler was started before, the fingerprint, the entry, and
/// the request if it is small.
type Row = (u32, bool, bool, Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// An event that a script has leased under this token.
struct LeasedRow {
    row: Row,
    token: ClaimToken,
}

/// A leased event whose entry was read. Its request may still be missing.
struct OpenedRow {
    leased: Leased,
    entry: Entry,
    request: Option<Vec<u8>>,
}

/// Leases events in a task that outlives the caller: events that come too late for it are released.
pub(super) async fn lease(queue: &Arc<RedisQueue>, request: &LeaseRequest<'_>) -> Result<Vec<Leased>> {
    let stream = queue.client.stream()?;
    if request.limit == 0 {
        return Ok(Vec::new());
    }
    let limit = request.limit.min(MOST);
    let arguments = arguments(&queue.client.prefix, request, limit);
    let task = LeaseTask { queue: queue.clone(), stream, arguments, limit, lease: request.lease };
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(task.run(sender));
    // Without an answer, the runtime is shutting down.
    let leased = receiver.await.unwrap_or_else(|_| Err(NoConnection::Abandoned.into()));
    Ok(leased?.take())
}

struct LeaseTask {
    queue: Arc<RedisQueue>,
    stream: String,
    /// Without the tokens.
    arguments: Vec<String>,
    limit: usize,
    lease: Duration,
}

impl LeaseTask {
    /// Leases under tokens that no other lease has. If the reply is lost, these tokens are searched for.
    async fn run(self, sender: oneshot::Sender<Result<InTransit<Arc<RedisQueue>>>>) {
        let (queue, until) = (&self.queue, Instant::now() + self.queue.client.timeout);
        let mut sends = 1;
        let rows = loop {
            let tokens = record::leased_tokens(self.limit);
            let Some(lease) = tokens.first().map(|token| record::lease_of(*token)) else { break Ok(Vec::new()) };
            let mut asking = pin!(self.lease_under(tokens, until));
            let Ok(answer) = timeout_at(until, &mut asking).await else {
                drop(sender.send(Err(CommandError::TimedOut)));
                return self.release_late(asking, lease).await;
            };
            if answer.as_ref().is_err_and(CommandError::is_reply_lost) {
                queue.search_later(lease, self.lease);
            }
            match answer {
                Err(CommandError::Broken(_)) if sends < SENDS => sends += 1,
                answer => break answer,
            }
        };
        let leased = match rows {
            Ok(rows) => open(queue, rows).await.map(|leased| InTransit::new(leased, queue.clone())),
            Err(error) => Err(error),
        };
        // If the caller has left, the events are dropped here, and so released.
        drop(sender.send(leased));
    }

    /// Releases the events of a lease whose caller has left, and which the server may carry out now, later, or never.
    /// The reply may still come, or the connection may lead nowhere without an error: while the reply is waited for,
    /// the events are searched for by another connection.
    async fn release_late(&self, mut asking: Pin<&mut impl Future<Output = Result<Vec<LeasedRow>>>>, lease: String) {
        let Self { queue, .. } = self;
        for delay in delays() {
            match timeout(delay, &mut asking).await {
                Ok(Ok(late)) => {
                    let events = late.iter().filter_map(|row| row.held_event(&queue.client)).collect();
                    return queue.release_later(Mode::Repeatable, events);
                }
                Ok(Err(error)) if error.is_reply_lost() => {
                    return queue.search_later(lease, self.lease);
                }
                Ok(Err(_)) => return,
                Err(_) => {}
            }
            // A failure is tried again after the next delay.
            if queue.release_found(&lease).await.unwrap_or(false) {
                return;
            }
        }
    }

    async fn lease_under(&self, tokens: Vec<ClaimToken>, until: Instant) -> Result<Vec<LeasedRow>> {
        let RedisQueue { client, listener, housekeeper, .. } = &*self.queue;
        let texts: Vec<_> = tokens.iter().map(|token| record::token(*token)).collect();
        let arguments: Vec<_> = self.arguments.iter().chain(&texts).collect();
        for _ in 0..MOST_SCRIPTS {
            let reply = client.run(Mode::AwaitLateReply, &scripts::LEASE, &self.stream, &arguments).await?;
            let (rows, buried, position, has_more, has_expired): Reply = reply.read()?;
            buried.iter().for_each(|key| telemetry::redis_event_given_up(key, UNREADABLE));
            housekeeper.start(has_expired);
            if let Some(position) = position {
                listener.set_position(position);
            }
            // A script that leased nothing has repaired something, which is out of the way now. After `until`, no
            // caller waits for events.
            if !rows.is_empty() || !has_more || Instant::now() >= until {
                return Ok(rows.into_iter().zip(tokens).map(|(row, token)| LeasedRow { row, token }).collect());
            }
        }
        Ok(Vec::new())
    }
}

fn arguments(prefix: &str, request: &LeaseRequest<'_>, limit: usize) -> Vec<String> {
    let mut arguments = vec![
        prefix.to_owned(),
        limit.to_string(),
        lease_milliseconds(request.lease),
        LAPSED.to_owned(),
        UNREADABLE.to_owned(),
        request.endpoints.len().to_string(),
    ];
    arguments.extend(request.endpoints.iter().map(ToString::to_string));
    add_limits(&mut arguments, request.per_endpoint, str::to_owned);
    add_limits(&mut arguments, request.per_type, |kind| optional(Some(kind)));
    arguments
}

/// Adds how many events of each kind, empty for any number, and the kinds with another number.
fn add_limits(arguments: &mut Vec<String>, limits: Option<&KindLimits>, name: impl Fn(&str) -> String) {
    let Some(limits) = limits else {
        arguments.extend([String::new(), "0".to_owned()]);
        return;
    };
    arguments.extend([limits.each, limits.left.len()].map(|number| number.to_string()));
    arguments.extend(limits.left.iter().flat_map(|(kind, left)| [name(kind), left.to_string()]));
}

impl Releaser for Arc<RedisQueue> {
    fn release(&self, events: Vec<Leased>) {
        let events = events.into_iter().map(|event| self.held(&event.key, event.token)).collect();
        self.release_later(Mode::Repeatable, events);
    }
}

/// Reads the rows, and the requests that are still missing. An event that cannot be run is buried, and one whose
/// request does not come in time is released.
async fn open(queue: &Arc<RedisQueue>, rows: Vec<LeasedRow>) -> Result<Vec<Leased>> {
    let (mut opened, mut missing) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match row.open() {
            Ok(event) => opened.push(event),
            Err(Unreadable) => {
                // The script has read the key, and so there is one.
                if let Ok(key) = event_key(&row.row.4) {
                    bury(queue, &key, row.token, UNREADABLE).await;
                }
            }
        }
    }
    let fetched = fetch_requests(&queue.client, &mut opened).await;
    let mut all = Vec::with_capacity(opened.len());
    for OpenedRow { mut leased, entry, request } in opened {
        match (request.map(|value| entry.read_request(value)), &fetched) {
            (Some(Ok(request)), _) => {
                leased.request = request;
                all.push(leased);
            }
            (Some(Err(Unreadable)), _) => bury(queue, leased.key.as_str(), leased.token, UNREADABLE).await,
            (None, Ok(())) => bury(queue, leased.key.as_str(), leased.token, GONE).await,
            (None, Err(_)) => missing.push(queue.held(&leased.key, leased.token)),
        }
    }
    queue.release_later(Mode::Repeatable, missing);
    match fetched {
        Err(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// Reads the missing requests, some at a time.
async fn fetch_requests(client: &Client, opened: &mut [OpenedRow]) -> Result<()> {
    let mut missing: Vec<_> = opened.iter_mut().filter(|event| event.request.is_none()).collect();
    let mut rest = &mut missing[..];
    while !rest.is_empty() {
        let mut length = 0;
        let fits = |event: &&&mut OpenedRow| {
            length += event.entry.request_length;
            length <= AT_ONCE
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (now, later) = rest.split_at_mut(count);
        let mut get = redis::cmd("MGET");
        for event in now.iter() {
            get.arg(client.request_key(event.entry.request_name.as_bytes()));
        }
        let requests: Vec<Option<Vec<u8>>> = client.ask(Mode::Repeatable, &client.stream()?, &get).await?.read()?;
        now.iter_mut().zip(requests).for_each(|(event, request)| event.request = request);
        rest = later;
    }
    Ok(())
}

/// Buries an event that no handler can be called for. If that fails, it is buried when it is leased again.
async fn bury(queue: &RedisQueue, key: &str, token: ClaimToken, reason: &str) {
    telemetry::redis_event_given_up(key, reason);
    let event = HeldEvent { key: queue.client.key_of(key), token };
    let _ = queue.settle(&event, &Ending::Bury { reason }).await;
}

impl LeasedRow {
    fn open(&self) -> Result<OpenedRow, Unreadable> {
        let (attempt, superseded, started, fingerprint, encoded, request) = &self.row;
        let entry = Entry::read(encoded)?;
        let mut leased = Leased::new(entry.key.clone(), self.token, entry.empty_request());
        (leased.attempt, leased.superseded, leased.started) = (*attempt, *superseded, *started);
        leased.event_type = entry.event_type.clone();
        leased.fingerprint = record::read_fingerprint(fingerprint)?;
        Ok(OpenedRow { leased, entry, request: request.clone() })
    }

    fn held_event(&self, client: &Client) -> Option<HeldEvent> {
        Some(HeldEvent { key: client.key_of(&event_key(&self.row.4).ok()?), token: self.token })
    }
}
