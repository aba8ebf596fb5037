use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::inbox::{Housekeeping, Listener};
use super::lane::Lane;
use super::replicas::Replicas;
use super::store::Shared;
use super::{RedisPool, RedisStore};
use crate::clock::LONGEST;

/// More connections than this help nobody, and building the store must not fill the memory.
const MOST_CONNECTIONS: usize = 1_024;

/// Configures a [`RedisStore`].
///
/// ```no_run
/// use std::time::Duration;
/// use deadpool_redis::{Config, Runtime};
/// use tower_webhook::store::RedisStore;
///
/// let pool = Config::from_url("redis://127.0.0.1/").create_pool(Some(Runtime::Tokio1))?;
/// let store = RedisStore::builder(pool)
///     .prefix("billing:webhooks:")
///     .timeout(Duration::from_millis(500))
///     .replicas(1)
///     .build();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RedisStoreBuilder {
    pool: RedisPool,
    prefix: Box<str>,
    connections: usize,
    timeout: Duration,
    replicas: u32,
    replica_timeout: Duration,
    completed_bodies: Option<Duration>,
}

impl RedisStoreBuilder {
    pub(super) fn new(pool: RedisPool) -> Self {
        Self {
            pool,
            prefix: "tower-webhook:".into(),
            connections: 2,
            timeout: Duration::from_secs(1),
            replicas: 0,
            replica_timeout: Duration::from_millis(500),
            completed_bodies: None,
        }
    }

    /// What every key begins with; `tower-webhook:` by default.
    ///
    /// Receivers that are to act as one must have the same. On a Cluster a name in braces, `{webhooks}:`, keeps all keys on one
    /// node: an [inbox](super#the-inbox) needs it, and without one it is better left out.
    pub fn prefix(mut self, prefix: impl Into<Box<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How many connections are taken from the pool and shared by all deliveries, on a Cluster to every node; 2 by default, which
    /// is as fast as more are. Zero is taken for one, and more than 1,024 for 1,024.
    ///
    /// The commands for one event always go by the same one, except for claims and completions that
    /// [replicas](Self::replicas) are to confirm.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.clamp(1, MOST_CONNECTIONS);
        self
    }

    /// How long the server may take to answer; one second by default. What takes longer is an error, and its outcome unknown.
    ///
    /// Events that an inbox accepts share a command with others, and may have to wait for the one before. It bounds the wait for a
    /// connection, too, whatever the pool's own timeouts are. Keep it below the layer's
    /// [`claim_deadline`](crate::WebhookLayer::claim_deadline), or that decides.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(LONGEST);
        self
    }

    /// How many replicas must have a claim before it is run, and a completion before it counts, by `WAIT`; none by default.
    ///
    /// A claim that too few confirm is given back and refused with a 503; a completion is repeated until enough do. It makes
    /// losing a claim in a failover unlikely, and not impossible: Redis may promote a replica that had not confirmed, and a
    /// replica confirms what it has received, not what it has on disk. Renewals are not waited for. Every delivery takes at
    /// least two round trips to the replicas longer, and up to 16 more connections are used, on a Cluster to every node.
    ///
    /// Claims go by these connections, and their releases do not. A claim that the server did not answer in time is released
    /// as always; if the server had only stood still, it may find the release first and the claim behind it. The event is then
    /// refused as in flight until the [lease](crate::WebhookLayer::lease) ends, and runs after that.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// How long they may take to confirm; half a second by default, on top of [`timeout`](Self::timeout).
    pub fn replica_timeout(mut self, replica_timeout: Duration) -> Self {
        self.replica_timeout = replica_timeout.min(LONGEST);
        self
    }

    /// For how long an [inbox](super#the-inbox) keeps heads and bodies of completed and discarded events; by default for as long as
    /// their records, which is the [retention](crate::WebhookLayer::retention). Zero deletes them at completion.
    ///
    /// The record stays for the retention in any case, and tells duplicates. An event whose body is gone cannot be
    /// [requeued](crate::queue::Queue::requeue), and is counted there.
    pub fn keep_completed_bodies(mut self, time: Duration) -> Self {
        self.completed_bodies = Some(time);
        self
    }

    /// Builds the store. It connects when it is first used.
    #[must_use]
    pub fn build(self) -> RedisStore {
        let Self { pool, prefix, connections, timeout, replicas, replica_timeout, completed_bodies } = self;
        let shared = Shared {
            lanes: (0..connections).map(|_| Lane::new(pool.clone(), timeout)).collect(),
            aside: Lane::new(pool.clone(), timeout),
            replicas: (replicas > 0).then(|| Replicas::new(&pool, replicas, replica_timeout, timeout)),
            listener: Listener::new(pool, &prefix),
            housekeeping: Housekeeping::default(),
            completed_bodies,
            prefix,
            timeout,
            claims_by_script: AtomicBool::new(false),
            refuses_flags: AtomicBool::new(false),
        };
        RedisStore::from_parts(shared)
    }
}
