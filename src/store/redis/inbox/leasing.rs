//! Leasing in a task of its own: what is leased comes to a worker, or is put back.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::super::fault::{Fault, NoConnection};
use super::super::record::{self, milliseconds};
use super::super::store::{Shared, Way};
use super::entry::{read, text};
use super::handing::{Held, Row, UNREADABLE};
use super::scripts;
use super::strays::pauses;
use crate::store::ClaimToken;
use crate::store::in_transit::{InTransit, PutBack};
use crate::store::queue::{KindLimits, LAPSED, LeaseRequest, Leased};
use crate::telemetry;

/// How many events one script leases at the most: the server does nothing else meanwhile.
const MOST: usize = 64;

/// The longest lease, in milliseconds: 31 years.
pub(super) const LONGEST_LEASE: u64 = 1_000_000_000_000;

/// How many scripts one lease runs that lease nothing, because they had to put something right.
const MOST_SCRIPTS: usize = 64;

/// How often a lease is sent whose connection breaks. An idle connection that turns out to be closed costs no lease, nor does another one
/// that was begun before.
const SENDS: usize = 3;

/// How often it is tried to put an event back, with a pause after each time. After that its lease ends by itself.
const PUT_BACK_TRIES: usize = 60;
const PUT_BACK_PAUSE: Duration = Duration::from_millis(500);

/// A lease, as its task has it.
struct Leasing {
    shared: Arc<Shared>,
    events: String,
    /// All but the tokens.
    arguments: Vec<String>,
    limit: usize,
    lease: Duration,
}

/// The rows, the keys of events that were given up, how far everything was looked at, whether there may be more, and whether events are
/// to be purged.
type Found = (Vec<Row>, Vec<String>, Option<String>, bool, bool);

impl Shared {
    /// Asks in a task of its own, which outlives the caller: events that come after it has given up are put back.
    pub(super) async fn lease(self: &Arc<Self>, request: &LeaseRequest<'_>) -> Result<Vec<Leased>, Fault> {
        let events = self.events()?;
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        let limit = request.limit.min(MOST);
        let arguments = self.lease_arguments(request, limit);
        let leasing = Leasing { shared: self.clone(), events, arguments, limit, lease: request.lease };
        let (coming, handed) = oneshot::channel();
        tokio::spawn(leasing.run(coming));
        // It only ends early with the runtime.
        let handed = handed.await.unwrap_or_else(|_| Err(NoConnection::Abandoned.into()));
        Ok(handed?.take())
    }

    fn lease_arguments(&self, request: &LeaseRequest<'_>, limit: usize) -> Vec<String> {
        let mut arguments = vec![
            self.prefix.to_string(),
            limit.to_string(),
            milliseconds(request.lease).min(LONGEST_LEASE).to_string(),
            LAPSED.to_owned(),
            UNREADABLE.to_owned(),
            request.endpoints.len().to_string(),
        ];
        arguments.extend(request.endpoints.iter().map(ToString::to_string));
        add_limits(&mut arguments, request.per_endpoint, str::to_owned);
        add_limits(&mut arguments, request.per_type, |kind| text(Some(kind)));
        arguments
    }

    /// Has events wait again that no worker knows of: by the keys of their claims, and their tokens.
    pub(super) fn put_back_soon(self: &Arc<Self>, events: Vec<(String, ClaimToken)>) {
        self.put_back_by(Way::Shared, events);
    }

    pub(super) fn put_back_by(self: &Arc<Self>, way: Way, events: Vec<(String, ClaimToken)>) {
        if events.is_empty() {
            return;
        }
        let shared = self.clone();
        tokio::spawn(async move {
            for (claim, token) in events {
                shared.release_patiently(way, &claim, token).await;
            }
        });
    }

    async fn release_patiently(&self, way: Way, claim: &str, token: ClaimToken) {
        for _ in 0..PUT_BACK_TRIES {
            if self.end(&scripts::PUT_BACK, way, claim, token, &[]).await.is_ok() {
                return;
            }
            sleep(PUT_BACK_PAUSE).await;
        }
    }
}

impl Leasing {
    /// Leases under tokens that no other lease has. If the answer is lost, events may be leased under them: these are searched for.
    async fn run(self, coming: oneshot::Sender<Result<InTransit<Arc<Shared>>, Fault>>) {
        let (shared, until) = (&self.shared, Instant::now() + self.shared.timeout);
        let mut sends = 1;
        let held = loop {
            let tokens = record::leased_tokens(self.limit);
            let Some(lease) = tokens.first().map(|token| record::lease_of(*token)) else { break Ok(Vec::new()) };
            let mut asking = pin!(self.lease_under(tokens, until));
            let Ok(answer) = timeout_at(until, &mut asking).await else {
                drop(coming.send(Err(Fault::TimedOut)));
                return self.put_back_late(asking, lease).await;
            };
            if answer.as_ref().is_err_and(Fault::is_unheard) {
                shared.search_soon(lease, self.lease);
            }
            match answer {
                Err(Fault::Broken(_)) if sends < SENDS => sends += 1,
                answer => break answer,
            }
        };
        let handed = match held {
            Ok(held) => shared.hand_over(held).await.map(|leased| InTransit::new(leased, shared.clone())),
            Err(fault) => Err(fault),
        };
        // If the caller has left, they are dropped here, and put back.
        drop(coming.send(handed));
    }

    /// Puts the events of a lease back whose caller has given up, and which the server may carry out now, later, or not at all. The reply
    /// may still come, and the connection may as well lead nowhere without a word of that: while the reply is waited for, the events are
    /// looked for by another connection.
    async fn put_back_late(&self, mut asking: Pin<&mut impl Future<Output = Result<Vec<Held>, Fault>>>, lease: String) {
        let Self { shared, .. } = self;
        for pause in pauses() {
            match timeout(pause, &mut asking).await {
                Ok(Ok(late)) => {
                    return shared.put_back_soon(late.iter().filter_map(|held| held.name(shared)).collect());
                }
                Ok(Err(fault)) if fault.is_unheard() => return shared.search_soon(lease, self.lease),
                Ok(Err(_)) => return,
                Err(_) => {}
            }
            // What fails is tried again after the next pause.
            if shared.put_strays_back(&lease).await.unwrap_or(false) {
                return;
            }
        }
    }

    async fn lease_under(&self, tokens: Vec<ClaimToken>, until: Instant) -> Result<Vec<Held>, Fault> {
        let Self { shared, events, .. } = self;
        let texts: Vec<_> = tokens.iter().map(|token| record::token(*token)).collect();
        let arguments: Vec<&[u8]> = self.arguments.iter().chain(&texts).map(String::as_bytes).collect();
        for _ in 0..MOST_SCRIPTS {
            let (reply, _) = shared.run(Way::Patient, &scripts::LEASE.call(events, &arguments)).await?;
            let (rows, given_up, position, has_more, has_expired): Found = read(reply)?;
            given_up.iter().for_each(|key| telemetry::redis_event_given_up(key, UNREADABLE));
            shared.keep_house(has_expired);
            if let Some(position) = position {
                shared.listener.read_up_to(position);
            }
            // Where nothing was leased, something was put right, and is out of the way now. After `until` nobody waits for events.
            if !rows.is_empty() || !has_more || Instant::now() >= until {
                return Ok(rows.into_iter().zip(tokens).map(|(row, token)| Held { row, token }).collect());
            }
        }
        Ok(Vec::new())
    }
}

/// How many of each kind, empty for any number, and of which kinds another number.
fn add_limits(arguments: &mut Vec<String>, limits: Option<&KindLimits>, name: impl Fn(&str) -> String) {
    let Some(limits) = limits else {
        arguments.extend([String::new(), "0".to_owned()]);
        return;
    };
    arguments.extend([limits.each, limits.left.len()].map(|number| number.to_string()));
    arguments.extend(limits.left.iter().flat_map(|(kind, left)| [name(kind), left.to_string()]));
}

impl PutBack for Arc<Shared> {
    fn put_back(&self, events: Vec<Leased>) {
        self.put_back_soon(events.into_iter().map(|event| (self.key(&event.key), event.token)).collect());
    }
}
