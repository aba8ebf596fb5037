//! Leasing in a task of its own: leased events reach a worker, or are released.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::client::Mode;
use super::entry::optional;
use super::error::{CommandError, NoConnection, Result};
use super::inbox::{Inbox, lease_milliseconds};
use super::leased_rows::{self, LeasedRow, Row, UNREADABLE};
use super::{lost_leases, record, scripts};
use crate::store::ClaimToken;
use crate::store::in_transit::{InTransit, PutBack};
use crate::store::queue::{KindLimits, LAPSED, LeaseRequest, Leased};
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
                lost_leases::search_later(inbox, lease, self.lease);
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
        for delay in lost_leases::delays() {
            match timeout(delay, &mut asking).await {
                Ok(Ok(late)) => {
                    let events = late.iter().filter_map(|row| row.held_event(&inbox.client)).collect();
                    return inbox.release_later(Mode::Repeatable, events);
                }
                Ok(Err(error)) if error.is_reply_lost() => {
                    return lost_leases::search_later(inbox, lease, self.lease);
                }
                Ok(Err(_)) => return,
                Err(_) => {}
            }
            // A failure is tried again after the next delay.
            if lost_leases::release_found(inbox, &lease).await.unwrap_or(false) {
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

impl PutBack for Arc<Inbox> {
    fn put_back(&self, events: Vec<Leased>) {
        let events = events.into_iter().map(|event| self.held(&event.key, event.token)).collect();
        self.release_later(Mode::Repeatable, events);
    }
}
