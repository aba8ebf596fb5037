use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, RedisError, from_redis_value};
use xxhash_rust::xxh3::xxh3_64;

use super::fault::Fault;
use super::lane::Lane;
use super::record::{self, Record, milliseconds};
use super::replicas::Replicas;
use super::script::{self, Call};
use super::{RedisPool, RedisStoreBuilder};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, Store, StoreError};
use crate::{EventKey, telemetry};

/// Remembers events in Redis: any number of instances act as one receiver.
///
/// What it promises, what it does not, and how it uses the pool is in the [module's documentation](super).
///
/// Clones share their connections.
#[derive(Clone)]
pub struct RedisStore {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) prefix: Box<str>,
    pub(super) timeout: Duration,
    pub(super) lanes: Box<[Arc<Lane>]>,
    pub(super) replicas: Option<Replicas>,
    /// The server does not know `SET` with both `NX` and `GET`.
    pub(super) claims_by_script: AtomicBool,
}

impl RedisStore {
    /// A store on the connections of a pool of deadpool-redis: for one server, a Cluster, or a Sentinel.
    ///
    /// Nothing is connected before the first delivery; [`check`](Self::check) says at start-up whether the server can be
    /// relied upon.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>) -> Self {
        Self::builder(pool).build()
    }

    /// A store with another prefix, other timeouts, more connections, or replicas to wait for.
    pub fn builder(pool: impl Into<RedisPool>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(pool.into())
    }
}

impl Store for RedisStore {
    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        let answer = self.shared.claim(request).await?;
        let Some(found) = answer.found else {
            if let Err(fault) = answer.confirmed {
                // If this fails too, the lease ends by itself.
                let _ = self.release(request.key, request.token).await;
                return Err(fault.into());
            }
            return Ok(Claim::Fresh { attempt: None });
        };
        let same_body = found.fingerprint == request.fingerprint;
        Ok(if found.is_running { Claim::InFlight { same_body } } else { Claim::Completed { same_body } })
    }

    async fn renew(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        let answer = self.shared.put(Way::InOrder, claim, &record::running(claim), claim.lease).await?;
        Ok(if answer.found.is_none() { Hold::Held } else { Hold::Lost })
    }

    async fn complete(&self, claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Result<Hold, StoreError> {
        let value = record::settled(claim, completion);
        let answer = self.shared.put(Way::Replicated, claim, &value, completion.retention).await?;
        // What is found here is settled, or runs under another token.
        if answer.found.is_some_and(|found| found.token != claim.token) {
            return Ok(Hold::Lost);
        }
        answer.confirmed?;
        Ok(Hold::Held)
    }

    async fn release(&self, key: &EventKey, token: ClaimToken) -> Result<Hold, StoreError> {
        let (key, holder) = (self.shared.key(key), record::holder(token));
        let answer = self.shared.run(Way::Shared, &script::DROP.call(&key, &[holder.as_bytes()])).await?;
        Ok(if answer.found.is_none() { Hold::Held } else { Hold::Lost })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.shared.prefix)
            .field("connections", &self.shared.lanes.len())
            .field("timeout", &self.shared.timeout)
            .field("replicas", &self.shared.replicas.as_ref().map_or(0, Replicas::wanted))
            .finish_non_exhaustive()
    }
}

/// How a command is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Shared,
    /// By the same connections, in one step: a renewal that has to be repeated, because the server does not have its script,
    /// would be behind a release that was sent meanwhile, and bring the claim back.
    InOrder,
    /// By connections where replicas can be waited for, if any are to be.
    Replicated,
}

/// What was in the way of a write, and whether enough replicas have it, or what was written.
struct Answer {
    found: Option<Record>,
    confirmed: Result<(), Fault>,
}

impl Shared {
    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Answer, Fault> {
        let value = record::running(request);
        if !self.claims_by_script.load(Ordering::Relaxed) {
            let key = self.key(request.key);
            let set = script::set_if_absent(&key, &value, milliseconds(request.lease));
            match self.ask(Way::Replicated, &key, &set).await {
                Err(fault) if fault.is_syntax_error() => self.claim_by_script_from_now_on(),
                // One's own claim, found again after a lost reply, is given a new lease.
                Ok(Answer { found: Some(found), .. }) if found.is_running && found.token == request.token => {}
                answer => return answer,
            }
        }
        self.put(Way::Replicated, request, &value, request.lease).await
    }

    fn claim_by_script_from_now_on(&self) {
        if !self.claims_by_script.swap(true, Ordering::Relaxed) {
            telemetry::redis_claims_by_script();
        }
    }

    /// Writes where there is nothing, or a running claim under the same token.
    async fn put(&self, way: Way, claim: &ClaimRequest<'_>, value: &str, time: Duration) -> Result<Answer, Fault> {
        let (key, holder, time) = (self.key(claim.key), record::holder(claim.token), milliseconds(time).to_string());
        let arguments = [holder.as_bytes(), value.as_bytes(), time.as_bytes()];
        let put = match (way, &self.replicas) {
            (Way::Replicated, Some(_)) => &script::PUT_OR_REPEAT,
            _ => &script::PUT,
        };
        self.run(way, &put.call(&key, &arguments)).await
    }

    async fn run(&self, way: Way, call: &Call<'_>) -> Result<Answer, Fault> {
        if way == Way::InOrder {
            return self.ask(way, call.key, &call.in_full()).await;
        }
        match self.ask(way, call.key, &call.by_hash()).await {
            Err(fault) if fault.is_no_script() => self.ask(way, call.key, &call.in_full()).await,
            answer => answer,
        }
    }

    async fn ask(&self, way: Way, key: &str, command: &Cmd) -> Result<Answer, Fault> {
        let (reply, confirmed) = match (way, &self.replicas) {
            (Way::Replicated, Some(replicas)) => replicas.ask(command).await?,
            _ => (self.lane(key).ask(command, None).await?.0, Ok(())),
        };
        let found: Option<Vec<u8>> = from_redis_value(reply).map_err(RedisError::from)?;
        Ok(Answer { found: found.as_deref().map(Record::read).transpose()?, confirmed })
    }

    /// One key's commands go by one connection: a renewal that is late must not overtake the release, since it would bring
    /// the claim back.
    fn lane(&self, key: &str) -> &Arc<Lane> {
        &self.lanes[(xxh3_64(key.as_bytes()) % self.lanes.len() as u64) as usize]
    }

    fn key(&self, key: &EventKey) -> String {
        // On a Cluster a name in braces decides which node has the key, and route templates have some: all events of such an
        // endpoint would be on one. Empty braces before them say that there is no such name. A key begins with a digit.
        let open = if key.as_str().contains('{') { "{}" } else { "" };
        [&*self.prefix, open, key.as_str()].concat()
    }
}
