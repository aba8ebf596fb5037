use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

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

/// The queue of one store, and the verbs on a leased event. They return `None` if the event is claimed inline.
pub(super) struct Inbox {
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

impl Inbox {
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
        let inbox = self.clone();
        tokio::spawn(async move {
            for event in events {
                for _ in 0..RELEASE_TRIES {
                    if inbox.end_lease(&scripts::RELEASE, mode, &event, &[]).await.is_ok() {
                        break;
                    }
                    sleep(RELEASE_PAUSE).await;
                }
            }
        });
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
