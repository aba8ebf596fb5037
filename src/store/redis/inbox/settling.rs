//! The verbs on an event that a worker has leased. `None` says that it is no event of the inbox, but a claim like any other.

use std::time::Duration;

use super::super::fault::Fault;
use super::super::record::{self, is_leased, milliseconds};
use super::super::script::Script;
use super::super::store::{Shared, Way};
use super::leasing::LONGEST_LEASE;
use super::{entry::read, scripts};
use crate::EventKey;
use crate::inbox::log::escaped;
use crate::store::{ClaimRequest, ClaimToken, Completion, Hold};

impl Shared {
    pub(in super::super) async fn renew_leased(&self, claim: &ClaimRequest<'_>) -> Result<Option<Hold>, Fault> {
        let lease = milliseconds(claim.lease).min(LONGEST_LEASE).to_string();
        self.settle(&scripts::RENEW, Way::Shared, claim.key, claim.token, &[lease.as_bytes()]).await
    }

    pub(in super::super) async fn complete_leased(
        &self,
        claim: &ClaimRequest<'_>,
        completion: &Completion<'_>,
    ) -> Result<Option<Hold>, Fault> {
        if completion.failed {
            return self.bury_leased(claim, completion.summary).await;
        }
        let retention = milliseconds(completion.retention).to_string();
        let arguments = [retention.as_bytes(), completion.summary.as_bytes()];
        self.end(&scripts::COMPLETE, Way::Replicated, claim.key, claim.token, &arguments).await
    }

    pub(in super::super) async fn release_leased(
        &self,
        key: &EventKey,
        token: ClaimToken,
    ) -> Result<Option<Hold>, Fault> {
        self.end(&scripts::PUT_BACK, Way::Shared, key, token, &[]).await
    }

    pub(super) async fn retry_leased(
        &self,
        claim: &ClaimRequest<'_>,
        after: Duration,
        reason: &str,
    ) -> Result<Option<Hold>, Fault> {
        let (pause, reason) = (if after.is_zero() { 0 } else { milliseconds(after) }.to_string(), escaped(reason));
        let arguments = [pause.as_bytes(), reason.as_bytes()];
        self.end(&scripts::PUT_BACK, Way::Shared, claim.key, claim.token, &arguments).await
    }

    pub(super) async fn bury_leased(&self, claim: &ClaimRequest<'_>, reason: &str) -> Result<Option<Hold>, Fault> {
        let line = escaped(reason);
        let arguments = [reason.as_bytes(), line.as_bytes()];
        self.end(&scripts::BURY, Way::Replicated, claim.key, claim.token, &arguments).await
    }

    /// As [`settle`](Self::settle). What was behind the event in its line may be due now, or it is itself: workers are told.
    async fn end(
        &self,
        script: &Script,
        way: Way,
        key: &EventKey,
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
        key: &EventKey,
        token: ClaimToken,
        arguments: &[&[u8]],
    ) -> Result<Option<Hold>, Fault> {
        if !is_leased(token) {
            return Ok(None);
        }
        let (key, token) = (self.key(key), record::token(token));
        let arguments = [&[self.prefix.as_bytes(), token.as_bytes()], arguments].concat();
        let (reply, confirmed) = self.run(way, &script.call(&key, &arguments)).await?;
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
