use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Cmd, RedisError, Value, from_redis_value};
use xxhash_rust::xxh3::xxh3_64;

use super::fault::Fault;
use super::inbox::{Acceptor, Housekeeping, Listener};
use super::lane::{Lane, OnBreak};
use super::record::{self, Record, State, milliseconds};
use super::replicas::Replicas;
use super::script::{self, Call, Flags, Script};
use super::{RedisPool, RedisStoreBuilder};
use crate::store::batcher::Batcher;
use crate::store::{Claim, ClaimRequest, Completion, Ending, Fingerprint, Hold, Store, StoreError, StoreFuture};
use crate::{EventKey, telemetry};

/// Remembers events in Redis: any number of instances act as one receiver.
///
/// What it promises, what it does not, and how it uses the pool is in the [module's documentation](super).
///
/// Clones share their connections.
#[derive(Clone)]
pub struct RedisStore {
    pub(super) shared: Arc<Shared>,
    /// One for each lane.
    acceptors: Arc<[Batcher<Acceptor>]>,
}

pub(super) struct Shared {
    pub(super) prefix: Box<str>,
    pub(super) timeout: Duration,
    pub(super) lanes: Box<[Arc<Lane>]>,
    /// For what is asked because one of the others may lead nowhere.
    pub(super) aside: Arc<Lane>,
    pub(super) replicas: Option<Replicas>,
    /// The server does not know `SET` with both `NX` and `GET`.
    pub(super) claims_by_script: AtomicBool,
    /// The server does not know the flags of scripts.
    pub(super) refuses_flags: AtomicBool,
    pub(super) listener: Listener,
    pub(super) housekeeping: Housekeeping,
    /// For how long heads and bodies of completed events are kept, if not as long as their records.
    pub(super) completed_bodies: Option<Duration>,
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

    pub(super) fn from_parts(shared: Shared) -> Self {
        let shared = Arc::new(shared);
        let acceptors = shared.lanes.iter().map(|_| Batcher::new(Acceptor::new(shared.clone()))).collect();
        Self { shared, acceptors }
    }

    /// The one that accepts the event of this claim, together with others of its lane.
    pub(super) fn acceptor(&self, claim: &str) -> &Batcher<Acceptor> {
        &self.acceptors[self.shared.lane_number(claim)]
    }
}

impl Store for RedisStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let answer = self.shared.claim(request).await?;
            let Some(found) = answer.found else {
                if let Err(fault) = answer.confirmed {
                    // If this fails too, the lease ends by itself.
                    let _ = self.release(request.key, request.token).await;
                    return Err(fault.into());
                }
                return Ok(Claim::Fresh { attempt: None });
            };
            Ok(found.answers(request.fingerprint))
        })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            if let Some(hold) = self.shared.renew_leased(claim).await? {
                return Ok(hold);
            }
            let answer =
                self.shared.put(&script::PUT, Way::InOrder, claim, &record::running(claim), claim.lease).await?;
            Ok(if answer.found.is_none() { Hold::Held } else { Hold::Lost })
        })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            if let Some(hold) = self.shared.settle_leased(claim, &ending).await? {
                return Ok(hold);
            }
            match ending {
                Ending::Complete(completion) => self.shared.complete(claim, &completion).await,
                Ending::Release => self.shared.release(claim).await,
                Ending::Retry { .. } | Ending::Bury { .. } => Ok(Hold::Lost),
            }
        })
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
pub(super) enum Way {
    /// By the connections that deliveries share, and again if the connection breaks: for what is only read, and for changes that are
    /// the same when they are made twice, as those are that the caller's token decides about.
    Shared,
    /// By the same connections. If the connection breaks, that is an error: an operator's change that is made again finds nothing to
    /// change, and would report that nothing was.
    Once,
    /// By a connection beside them, and again if that breaks: for what is asked because one of them may lead nowhere.
    Aside,
    /// By the same connections as others, in one step and once: a renewal that is repeated, because the server does not have its script or
    /// because the connection broke, would be behind a release that was sent meanwhile, and bring the claim back.
    InOrder,
    /// By connections where replicas can be waited for, if any are to be.
    Replicated,
    /// By the same connections as the others, and once. The reply is waited for long after it is too late for most callers: this one has
    /// to know what was done.
    Patient,
}

impl Way {
    fn on_break(self) -> OnBreak {
        match self {
            Self::Shared | Self::Aside | Self::Replicated => OnBreak::Repeat,
            Self::Once | Self::InOrder | Self::Patient => OnBreak::Fail,
        }
    }
}

/// What was in the way of a write, and whether enough replicas have it, or what was written.
pub(super) struct Answer {
    pub(super) found: Option<Record>,
    pub(super) confirmed: Result<(), Fault>,
}

impl Answer {
    pub(super) fn read((reply, confirmed): Reply) -> Result<Self, Fault> {
        let found: Option<Vec<u8>> = from_redis_value(reply).map_err(RedisError::from)?;
        Ok(Self { found: found.as_deref().map(Record::read).transpose()?, confirmed })
    }
}

/// What the server said, and whether enough replicas have what was written.
pub(super) type Reply = (Value, Result<(), Fault>);

impl Record {
    /// What a claim is told that finds this.
    pub(super) fn answers(&self, fingerprint: Fingerprint) -> Claim {
        let same_body = self.fingerprint == fingerprint;
        match self.state {
            State::Running => Claim::InFlight { same_body },
            State::Accepted => Claim::Accepted { same_body },
            State::Completed | State::Failed => Claim::Completed { same_body },
        }
    }
}

impl Shared {
    async fn complete(&self, claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Result<Hold, StoreError> {
        let value = record::settled(claim, completion);
        let put = self.either(&script::PUT, &script::PUT_OR_REPEAT);
        let answer = self.put(put, Way::Replicated, claim, &value, completion.retention).await?;
        // What is found here is settled, or runs under another token.
        if answer.found.is_some_and(|found| found.token != claim.token) {
            return Ok(Hold::Lost);
        }
        answer.confirmed?;
        Ok(Hold::Held)
    }

    async fn release(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        let (key, holder) = (self.key(claim.key), record::holder(claim.token));
        let answer = self.run(Way::Shared, &script::DROP.call(&key, &[holder.as_bytes()])).await;
        let answer = answer.and_then(Answer::read)?;
        Ok(if answer.found.is_none() { Hold::Held } else { Hold::Lost })
    }

    pub(super) async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Answer, Fault> {
        let value = record::running(request);
        if !self.claims_by_script.load(Ordering::Relaxed) {
            let key = self.key(request.key);
            let set = script::set_if_absent(&key, &value, milliseconds(request.lease));
            match self.ask(Way::Replicated, &key, &set).await.and_then(Answer::read) {
                Err(fault) if fault.is_syntax_error() => self.claim_by_script_from_now_on(),
                // One's own claim, found again after a lost reply, is given a new lease.
                Ok(Answer { found: Some(found), .. })
                    if found.state == State::Running && found.token == request.token => {}
                answer => return answer,
            }
        }
        let claim = self.either(&script::CLAIM, &script::CLAIM_OR_REPEAT);
        self.put(claim, Way::Replicated, request, &value, request.lease).await
    }

    /// The server is older than Redis 7, which is also the first that knows the flags of scripts.
    fn claim_by_script_from_now_on(&self) {
        self.refuses_flags.store(true, Ordering::Relaxed);
        if !self.claims_by_script.swap(true, Ordering::Relaxed) {
            telemetry::redis_claims_by_script();
        }
    }

    /// The script to use where no replica is to confirm the write, or the other one.
    fn either(&self, put: &'static Script, put_or_repeat: &'static Script) -> &'static Script {
        if self.replicas.is_some() { put_or_repeat } else { put }
    }

    /// Writes where there is nothing, or a running claim under the same token.
    async fn put(
        &self,
        script: &Script,
        way: Way,
        claim: &ClaimRequest<'_>,
        value: &str,
        time: Duration,
    ) -> Result<Answer, Fault> {
        let (key, holder, time) = (self.key(claim.key), record::holder(claim.token), milliseconds(time).to_string());
        let arguments = [holder.as_bytes(), value.as_bytes(), time.as_bytes()];
        self.run(way, &script.call(&key, &arguments)).await.and_then(Answer::read)
    }

    /// Runs a script with its flags, and without them on a server that turns out not to know them.
    pub(super) async fn run(&self, way: Way, call: &Call<'_>) -> Result<Reply, Fault> {
        if self.refuses_flags.load(Ordering::Relaxed) || !call.has_flags() {
            return self.run_with(Flags::Unknown, way, call).await;
        }
        match self.run_with(Flags::Known, way, call).await {
            Err(fault) if fault.refuses_flags() => {
                self.refuses_flags.store(true, Ordering::Relaxed);
                // A renewal is not repeated. The claim before it has told of Redis 6 already; this is a server of another kind.
                if way == Way::InOrder { Err(fault) } else { self.run_with(Flags::Unknown, way, call).await }
            }
            reply => reply,
        }
    }

    async fn run_with(&self, flags: Flags, way: Way, call: &Call<'_>) -> Result<Reply, Fault> {
        if way == Way::InOrder {
            return self.ask(way, call.key, &call.in_full(flags)).await;
        }
        match self.ask(way, call.key, &call.by_hash(flags)).await {
            Err(fault) if fault.is_no_script() => self.ask(way, call.key, &call.in_full(flags)).await,
            reply => reply,
        }
    }

    pub(super) async fn ask(&self, way: Way, key: &str, command: &Cmd) -> Result<Reply, Fault> {
        match (way, &self.replicas) {
            (Way::Replicated, Some(replicas)) => replicas.ask(command).await,
            (Way::Aside, _) => Ok((self.aside.ask(command, None, way.on_break()).await?.0, Ok(()))),
            (Way::Patient, _) => Ok((self.lane(key).ask_patiently(command).await?, Ok(()))),
            _ => Ok((self.lane(key).ask(command, None, way.on_break()).await?.0, Ok(()))),
        }
    }

    /// One key's commands go by one connection: a renewal that is late must not overtake the release, since it would bring
    /// the claim back.
    fn lane(&self, key: &str) -> &Arc<Lane> {
        &self.lanes[self.lane_number(key)]
    }

    fn lane_number(&self, key: &str) -> usize {
        (xxh3_64(key.as_bytes()) % self.lanes.len() as u64) as usize
    }

    pub(super) fn key(&self, key: &EventKey) -> String {
        self.key_of(key.as_str())
    }

    pub(super) fn key_of(&self, key: &str) -> String {
        // On a Cluster a name in braces decides which node has the key, and route templates have some: all events of such an
        // endpoint would be on one. Empty braces before them say that there is no such name. A key begins with a digit.
        let open = if key.contains('{') { "{}" } else { "" };
        [&*self.prefix, open, key].concat()
    }
}
