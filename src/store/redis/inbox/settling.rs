//! The verbs on an event that a worker has leased. `None` says that it is no event of the inbox, but a claim like any other.

use std::time::Duration;

use super::super::fault::Fault;
use super::super::record::{self, is_leased, milliseconds};
use super::super::script::Script;
use super::super::store::{Shared, Way};
use super::leasing::LONGEST_LEASE;
use super::{entry::read, scripts};
use crate::store::queue::log::escaped;
use crate::store::{ClaimRequest, ClaimToken, Completion, Ending, Hold};

impl Shared {
    pub(in super::super) async fn renew_leased(&self, claim: &ClaimRequest<'_>) -> Result<Option<Hold>, Fault> {
        self.renew_or_start(claim, b"").await
    }

    /// Renews, and notes down that the event's handler is about to be called.
    pub(super) async fn start_leased(&self, claim: &ClaimRequest<'_>) -> Result<Option<Hold>, Fault> {
        self.renew_or_start(claim, b"1").await
    }

    async fn renew_or_start(&self, claim: &ClaimRequest<'_>, starts: &[u8]) -> Result<Option<Hold>, Fault> {
        let lease = milliseconds(claim.lease).min(LONGEST_LEASE).to_string();
        let arguments = [lease.as_bytes(), starts];
        self.settle(&scripts::RENEW, Way::Once, &self.key(claim.key), claim.token, &arguments).await
    }

    pub(in super::super) async fn settle_leased(
        &self,
        claim: &ClaimRequest<'_>,
        ending: &Ending<'_>,
    ) -> Result<Option<Hold>, Fault> {
        let (key, token) = (self.key(claim.key), claim.token);
        match *ending {
            Ending::Complete(Completion { failed: false, summary, retention }) => {
                let (retention, bodies) = self.kept_for(retention);
                let arguments = [retention.as_bytes(), bodies.as_bytes(), summary.as_bytes()];
                self.end(&scripts::COMPLETE, Way::Replicated, &key, token, &arguments).await
            }
            Ending::Complete(Completion { summary: reason, .. }) | Ending::Bury { reason } => {
                let line = escaped(reason);
                let arguments = [reason.as_bytes(), line.as_bytes()];
                self.end(&scripts::BURY, Way::Replicated, &key, token, &arguments).await
            }
            Ending::Release => self.end(&scripts::PUT_BACK, Way::Shared, &key, token, &[]).await,
            Ending::Retry { after, reason } => {
                let pause = if after.is_zero() { 0 } else { milliseconds(after) }.to_string();
                let reason = escaped(reason);
                let arguments = [pause.as_bytes(), reason.as_bytes()];
                self.end(&scripts::PUT_BACK, Way::Shared, &key, token, &arguments).await
            }
        }
    }

    /// For how many milliseconds the record of an event that has ended is kept, and its head and body.
    pub(super) fn kept_for(&self, retention: Duration) -> (String, String) {
        let kept = milliseconds(retention);
        let bodies = match self.completed_bodies {
            Some(Duration::ZERO) => 0,
            Some(time) => milliseconds(time).min(kept),
            None => kept,
        };
        (kept.to_string(), bodies.to_string())
    }

    /// As [`settle`](Self::settle). What was behind the event in its line may be due now, or it is itself: workers are told.
    pub(super) async fn end(
        &self,
        script: &Script,
        way: Way,
        key: &str,
        token: ClaimToken,
        arguments: &[&[u8]],
    ) -> Result<Option<Hold>, Fault> {
        let hold = self.settle(script, way, key, token, arguments).await?;
        if hold == Some(Hold::Held) {
            self.listener.tell();
        }
        Ok(hold)
    }

    /// Other tokens hold no event of the inbox, and nothing is asked of the server for them.
    async fn settle(
        &self,
        script: &Script,
        way: Way,
        key: &str,
        token: ClaimToken,
        arguments: &[&[u8]],
    ) -> Result<Option<Hold>, Fault> {
        if !is_leased(token) {
            return Ok(None);
        }
        let token = record::token(token);
        let arguments = [&[self.prefix.as_bytes(), token.as_bytes()], arguments].concat();
        let (reply, confirmed) = self.run(way, &script.call(key, &arguments)).await?;
        match read::<String>(reply)?.as_str() {
            "held" => {
                confirmed?;
                Ok(Some(Hold::Held))
            }
            "lost" => Ok(Some(Hold::Lost)),
            _ => Ok(None),
        }
    }
}
