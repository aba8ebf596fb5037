//! Leasing in a task of its own: leased events reach a worker, or are released.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::client::Mode;
use super::entry::optional;
use super::error::{CommandError, NoConnection, Result};
use super::inbox::{HeldEvent, Inbox, lease_milliseconds};
use super::leased_rows::{self, LeasedRow, Row};
use super::{record, scripts};
use crate::store::ClaimToken;
use crate::store::in_transit::{InTransit, Releaser};
use crate::store::queue::{KindLimits, LAPSED, LeaseRequest, Leased, UNREADABLE};
use crate::telemetry;

/// How many events one script leases at most: the server does nothing else meanwhile.
const MOST: usize = 64;

/// How many scripts one lease runs that lease nothing, because they had to repair something.
const MOST_SCRIPTS: usize = 64;

/// How often a lease is sent if its connection breaks. An idle connection that turns out to be closed costs no lease,
/// nor does another one that was begun before.
const SENDS: usize = 3;

/// The rows, the keys of events that were buried, the position up to which everything was read, whether there may be
/// more, and whether there are events to purge.
type Reply = (Vec<Row>, Vec<String>, Option<String>, bool, bool);

/// Leases events in a task that outlives the caller: events that come too late for it are released.
pub(super) async fn lease(inbox: &Arc<Inbox>, request: &LeaseRequest<'_>) -> Result<Vec<Leased>> {
    let stream = inbox.client.stream()?;
    if request.limit == 0 {
        return Ok(Vec::new());
    }
    let limit = request.limit.min(MOST);
    let arguments = arguments(&inbox.client.prefix, request, limit);
    let task = LeaseTask { inbox: inbox.clone(), stream, arguments, limit, lease: request.lease };
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(task.run(sender));
    // Without an answer, the runtime is shutting down.
    let leased = receiver.await.unwrap_or_else(|_| Err(NoConnection::Abandoned.into()));
    Ok(leased?.take())
}

struct LeaseTask {
    inbox: Arc<Inbox>,
    stream: String,
    /// Without the tokens.
    arguments: Vec<String>,
    limit: usize,
    lease: Duration,
}

impl LeaseTask {
    /// Leases under tokens that no other lease has. If the reply is lost, these tokens are searched for.
    async fn run(self, sender: oneshot::Sender<Result<InTransit<Arc<Inbox>>>>) {
        let (inbox, until) = (&self.inbox, Instant::now() + self.inbox.client.timeout);
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
                search_later(inbox, lease, self.lease);
            }
            match answer {
                Err(CommandError::Broken(_)) if sends < SENDS => sends += 1,
                answer => break answer,
            }
        };
        let leased = match rows {
            Ok(rows) => leased_rows::open(inbox, rows).await.map(|leased| InTransit::new(leased, inbox.clone())),
            Err(error) => Err(error),
        };
        // If the caller has left, the events are dropped here, and so released.
        drop(sender.send(leased));
    }

    /// Releases the events of a lease whose caller has left, and which the server may carry out now, later, or never.
    /// The reply may still come, or the connection may lead nowhere without an error: while the reply is waited for,
    /// the events are searched for by another connection.
    async fn release_late(&self, mut asking: Pin<&mut impl Future<Output = Result<Vec<LeasedRow>>>>, lease: String) {
        let Self { inbox, .. } = self;
        for delay in delays() {
            match timeout(delay, &mut asking).await {
                Ok(Ok(late)) => {
                    let events = late.iter().filter_map(|row| row.held_event(&inbox.client)).collect();
                    return inbox.release_later(Mode::Repeatable, events);
                }
                Ok(Err(error)) if error.is_reply_lost() => {
                    return search_later(inbox, lease, self.lease);
                }
                Ok(Err(_)) => return,
                Err(_) => {}
            }
            // A failure is tried again after the next delay.
            if release_found(inbox, &lease).await.unwrap_or(false) {
                return;
            }
        }
    }

    async fn lease_under(&self, tokens: Vec<ClaimToken>, until: Instant) -> Result<Vec<LeasedRow>> {
        let Inbox { client, listener, housekeeper, .. } = &*self.inbox;
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

impl Releaser for Arc<Inbox> {
    fn release(&self, events: Vec<Leased>) {
        let events = events.into_iter().map(|event| self.held(&event.key, event.token)).collect();
        self.release_later(Mode::Repeatable, events);
    }
}

/// How many looks that find nothing end a search. The server may carry out a lease after the first look, if the lease
/// was still on its way when its connection broke.
const LOOKS: usize = 10;

/// The first delay between two looks, and the longest.
const DELAYS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// How many running events one script looks at.
const LOOKED_AT: usize = 100;

/// The server's cursor for the beginning of a sorted set, and for its end.
const START: &str = "0";

/// Where to go on, and the event keys and tokens that were found.
type Found = (String, Vec<(String, Vec<u8>)>);

/// The delays between looks.
pub(super) fn delays() -> impl Iterator<Item = Duration> {
    let [first, longest] = DELAYS;
    std::iter::successors(Some(first), move |delay| Some((*delay * 2).min(longest)))
}

/// Searches for the events of a lease in a task of its own, and releases them. The server may be out of reach for
/// longer than the worker waits: the search goes on until a lease of this time has ended by itself.
pub(super) fn search_later(inbox: &Arc<Inbox>, lease: String, time: Duration) {
    let (inbox, lost_at) = (inbox.clone(), Instant::now());
    tokio::spawn(async move {
        let mut looks = 0;
        for delay in delays() {
            match release_found(&inbox, &lease).await {
                Ok(true) => return,
                Ok(false) => looks += 1,
                Err(_) => {}
            }
            if looks >= LOOKS || lost_at.elapsed() >= time {
                return;
            }
            sleep(delay).await;
        }
    });
}

/// Looks once for the events of a lease, and releases them if there are any. One script has leased all of them, so that
/// none will follow. Returns whether there were any.
pub(super) async fn release_found(inbox: &Arc<Inbox>, lease: &str) -> Result<bool> {
    if find(inbox, lease).await?.is_empty() {
        return Ok(false);
    }
    // The lease may have run between two steps of the first look, which then has seen only some of its events.
    let events = find(inbox, lease).await?;
    // No worker has sent a command for these events: they need not go by the connections of their keys.
    inbox.release_later(Mode::Spare, events);
    Ok(true)
}

/// Finds the events that run under tokens of this lease.
async fn find(inbox: &Inbox, lease: &str) -> Result<Vec<HeldEvent>> {
    let client = &inbox.client;
    let (stream, most) = (client.stream()?, LOOKED_AT.to_string());
    let (mut cursor, mut found) = (START.to_owned(), Vec::new());
    loop {
        let arguments = [&*client.prefix, lease, &cursor, &most];
        let reply = client.run(Mode::Spare, &scripts::FIND_LEASED, &stream, &arguments).await?;
        let (next, rows): Found = reply.read()?;
        for (key, token) in rows {
            found.push(HeldEvent { key: client.key_of(&key), token: record::read_token(&token)? });
        }
        if next == START {
            return Ok(found);
        }
        cursor = next;
    }
}
