//! Inline claims: events that a receiver runs itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_redis::redis;

use super::client::{Client, Mode, Reply};
use super::error::Result;
use super::record::{self, Record, State, milliseconds};
use super::scripts::{self, Script};
use crate::store::{ClaimRequest, Completion, Hold};
use crate::telemetry;

pub(super) struct Claims {
    client: Arc<Client>,
    /// The server does not know `SET` with both `NX` and `GET`.
    by_script: AtomicBool,
}

/// The record that prevented a write, and whether enough replicas have confirmed it, or the write.
pub(super) struct Written {
    pub(super) existing: Option<Record>,
    pub(super) confirmed: Result<()>,
}

impl Written {
    fn read(reply: Reply) -> Result<Self> {
        let (existing, confirmed) = reply.into_parts::<Option<Vec<u8>>>()?;
        Ok(Self { existing: existing.as_deref().map(Record::read).transpose()?, confirmed })
    }

    fn hold(&self) -> Hold {
        if self.existing.is_none() { Hold::Held } else { Hold::Lost }
    }
}

impl Claims {
    pub(super) const fn new(client: Arc<Client>) -> Self {
        Self { client, by_script: AtomicBool::new(false) }
    }

    pub(super) async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Written> {
        let value = record::running(request);
        if !self.by_script() {
            let key = self.client.key(request.key);
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(&value).arg("NX").arg("GET").arg("PX").arg(milliseconds(request.lease));
            match self.client.ask(Mode::Replicated, &key, &set).await.and_then(Written::read) {
                Err(error) if error.is_syntax_error() => self.claim_by_script_from_now_on(),
                // The caller's own claim, which it repeats after a lost reply, gets a new lease.
                Ok(Written { existing: Some(existing), .. })
                    if existing.state == State::Running && existing.token == request.token => {}
                written => return written,
            }
        }
        let claim = self.either(&scripts::CLAIM, &scripts::CLAIM_REPLICATED);
        self.put(claim, Mode::Replicated, request, &value, request.lease).await
    }

    pub(super) async fn renew(&self, claim: &ClaimRequest<'_>) -> Result<Hold> {
        let put = self.put(&scripts::PUT, Mode::InOneStep, claim, &record::running(claim), claim.lease).await?;
        Ok(put.hold())
    }

    pub(super) async fn complete(&self, claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Result<Hold> {
        let value = record::settled(claim, completion);
        let put = self.either(&scripts::PUT, &scripts::PUT_REPLICATED);
        let written = self.put(put, Mode::Replicated, claim, &value, completion.retention).await?;
        // A record under the same token is settled: the reply to an earlier completion was lost.
        if written.existing.is_some_and(|existing| existing.token != claim.token) {
            return Ok(Hold::Lost);
        }
        written.confirmed?;
        Ok(Hold::Held)
    }

    pub(super) async fn release(&self, claim: &ClaimRequest<'_>) -> Result<Hold> {
        let (key, holder) = (self.client.key(claim.key), record::holder(claim.token));
        let reply = self.client.run(Mode::Repeatable, &scripts::DELETE, &key, &[holder]).await?;
        Ok(Written::read(reply)?.hold())
    }

    pub(super) fn by_script(&self) -> bool {
        self.by_script.load(Ordering::Relaxed)
    }

    /// The server is older than Redis 7, which is also the first that knows the flags of scripts.
    fn claim_by_script_from_now_on(&self) {
        self.client.omit_flags();
        if !self.by_script.swap(true, Ordering::Relaxed) {
            telemetry::redis_claims_by_script();
        }
    }

    /// Returns the script for a write that no replica is to confirm, or the other one.
    fn either(&self, put: &'static Script, replicated: &'static Script) -> &'static Script {
        if self.client.replicas.is_some() { replicated } else { put }
    }

    /// Writes if there is no record, or a running claim under the same token.
    async fn put(
        &self,
        script: &Script,
        mode: Mode,
        claim: &ClaimRequest<'_>,
        value: &str,
        time: Duration,
    ) -> Result<Written> {
        let (key, holder, time) =
            (self.client.key(claim.key), record::holder(claim.token), milliseconds(time).to_string());
        Written::read(self.client.run(mode, script, &key, &[&*holder, value, &time]).await?)
    }
}
