//! The queue of one store: the verbs on leased events, and the releases that no worker asks for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::client::{Client, Mode};
use super::error::Result;
use super::housekeeping::Housekeeper;
use super::listener::Listener;
use super::record::{self, is_leased, milliseconds};
use super::scripts::{self, Script};
use crate::EventKey;
use crate::store::queue::log::escaped;
use crate::store::{ClaimRequest, ClaimToken, Completion, Ending, Hold};

/// The longest lease, in milliseconds: 31 years.
const LONGEST_LEASE: u64 = 1_000_000_000_000;

/// How often a release in the background is tried, with a pause after each time. After that, the lease ends by itself.
const RELEASE_TRIES: usize = 60;
const RELEASE_PAUSE: Duration = Duration::from_millis(500);

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

/// The queue of one store, and the verbs on a leased event. They return `None` if the event is claimed inline.
pub(super) struct RedisQueue {
    pub(super) client: Arc<Client>,
    pub(super) listener: Listener,
    pub(super) housekeeper: Arc<Housekeeper>,
    /// How long the requests of completed events are kept, if not as long as their records.
    pub(super) body_retention: Option<Duration>,
}

/// An event that a token holds.
pub(super) struct HeldEvent {
    /// The key of its record.
    pub(super) key: String,
    pub(super) token: ClaimToken,
}

impl RedisQueue {
    pub(super) async fn renew(&self, claim: &ClaimRequest<'_>) -> Result<Option<Hold>> {
        self.renew_or_start(claim, "").await
    }

    /// Renews, and notes that the event's handler is about to be called.
    pub(super) async fn start(&self, claim: &ClaimRequest<'_>) -> Result<Option<Hold>> {
        self.renew_or_start(claim, "1").await
    }

    async fn renew_or_start(&self, claim: &ClaimRequest<'_>, starts: &str) -> Result<Option<Hold>> {
        let event = self.held(claim.key, claim.token);
        self.change_held(&scripts::RENEW, Mode::Once, &event, &[&lease_milliseconds(claim.lease), starts]).await
    }

    /// Ends the lease of an event.
    pub(super) async fn settle(&self, event: &HeldEvent, ending: &Ending<'_>) -> Result<Option<Hold>> {
        match *ending {
            Ending::Complete(Completion { failed: false, summary, retention }) => {
                let [retention, of_body] = self.retentions(retention);
                let arguments = [&*retention, &of_body, summary];
                self.end_lease(&scripts::COMPLETE, Mode::Replicated, event, &arguments).await
            }
            Ending::Complete(Completion { summary: reason, .. }) | Ending::Bury { reason } => {
                self.end_lease(&scripts::BURY, Mode::Replicated, event, &[reason, &escaped(reason)]).await
            }
            Ending::Release => self.end_lease(&scripts::RELEASE, Mode::Repeatable, event, &[]).await,
            Ending::Retry { after, reason } => {
                let delay = if after.is_zero() { 0 } else { milliseconds(after) }.to_string();
                let arguments = [&*delay, &escaped(reason)];
                self.end_lease(&scripts::RELEASE, Mode::Repeatable, event, &arguments).await
            }
        }
    }

    /// Releases events that no worker knows of, in a task of its own.
    pub(super) fn release_later(self: &Arc<Self>, mode: Mode, events: Vec<HeldEvent>) {
        if events.is_empty() {
            return;
        }
        let queue = self.clone();
        tokio::spawn(async move {
            for event in events {
                for _ in 0..RELEASE_TRIES {
                    if queue.end_lease(&scripts::RELEASE, mode, &event, &[]).await.is_ok() {
                        break;
                    }
                    sleep(RELEASE_PAUSE).await;
                }
            }
        });
    }

    /// Searches for the events of a lease in a task of its own, and releases them. The server may be out of reach for
    /// longer than the worker waits: the search goes on until a lease of this time has ended by itself.
    pub(super) fn search_later(self: &Arc<Self>, lease: String, time: Duration) {
        let (queue, lost_at) = (self.clone(), Instant::now());
        tokio::spawn(async move {
            let mut looks = 0;
            for delay in delays() {
                match queue.release_found(&lease).await {
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

    /// Looks once for the events of a lease, and releases them if there are any. One script has leased all of them, so
    /// that none will follow. Returns whether there were any.
    pub(super) async fn release_found(self: &Arc<Self>, lease: &str) -> Result<bool> {
        if self.find(lease).await?.is_empty() {
            return Ok(false);
        }
        // The lease may have run between two steps of the first look, which then has seen only some of its events.
        let events = self.find(lease).await?;
        // No worker has sent a command for these events: they need not go by the connections of their keys.
        self.release_later(Mode::Spare, events);
        Ok(true)
    }

    /// Finds the events that run under tokens of this lease.
    async fn find(&self, lease: &str) -> Result<Vec<HeldEvent>> {
        let client = &self.client;
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

    pub(super) fn held(&self, key: &EventKey, token: ClaimToken) -> HeldEvent {
        HeldEvent { key: self.client.key(key), token }
    }

    /// How many milliseconds the record of an ended event is kept, and its request.
    pub(super) fn retentions(&self, retention: Duration) -> [String; 2] {
        let record = milliseconds(retention);
        let body = match self.body_retention {
            Some(Duration::ZERO) => 0,
            Some(time) => milliseconds(time).min(record),
            None => record,
        };
        [record, body].map(|time| time.to_string())
    }

    /// Changes an event so that it does not run any more. The event, or the next one of its order, may be due: workers
    /// are notified.
    async fn end_lease(
        &self,
        script: &Script,
        mode: Mode,
        event: &HeldEvent,
        arguments: &[&str],
    ) -> Result<Option<Hold>> {
        let hold = self.change_held(script, mode, event, arguments).await?;
        if hold == Some(Hold::Held) {
            self.listener.notify();
        }
        Ok(hold)
    }

    /// Runs a script if the token can be a worker's. Other tokens hold no event of the queue, and cost no command.
    async fn change_held(
        &self,
        script: &Script,
        mode: Mode,
        event: &HeldEvent,
        arguments: &[&str],
    ) -> Result<Option<Hold>> {
        if !is_leased(event.token) {
            return Ok(None);
        }
        let token = record::token(event.token);
        let arguments = [&[&*self.client.prefix, &token], arguments].concat();
        let (answer, confirmed) =
            self.client.run(mode, script, &event.key, &arguments).await?.into_parts::<String>()?;
        match answer.as_str() {
            "held" => {
                confirmed?;
                Ok(Some(Hold::Held))
            }
            "lost" => Ok(Some(Hold::Lost)),
            _ => Ok(None),
        }
    }
}

/// A lease for a script.
pub(super) fn lease_milliseconds(lease: Duration) -> String {
    milliseconds(lease).min(LONGEST_LEASE).to_string()
}

/// The delays between looks.
pub(super) fn delays() -> impl Iterator<Item = Duration> {
    let [first, longest] = DELAYS;
    std::iter::successors(Some(first), move |delay| Some((*delay * 2).min(longest)))
}
