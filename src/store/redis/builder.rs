use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, EVENTS, Replicas};
use super::housekeeping::Housekeeper;
use super::listener::Listener;
use super::queue::RedisQueue;
use super::{RedisPool, RedisStore};
use crate::clock::LONGEST;

/// More connections make nothing faster, and a store must not fill the memory when it is built.
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
    body_retention: Option<Duration>,
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
            body_retention: None,
        }
    }

    /// The beginning of every key; `tower-webhook:` by default.
    ///
    /// Receivers that are to act as one must share it. On a Cluster, a name in braces, `{webhooks}:`, keeps all keys on
    /// one node: an [inbox](super#the-inbox) needs that, and a store without one is better without it.
    pub fn prefix(mut self, prefix: impl Into<Box<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How many connections are taken from the pool and shared by all deliveries, on a Cluster to every node; 2 by
    /// default, which is as fast as more are. Zero means one, and more than 1,024 mean 1,024.
    ///
    /// All commands for one event go by the same connection, except for claims and completions that
    /// [replicas](Self::replicas) are to confirm.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections.clamp(1, MOST_CONNECTIONS);
        self
    }

    /// How long the server may take to answer; one second by default. After that the call fails, and its outcome is
    /// unknown.
    ///
    /// An event that an inbox accepts shares a command with others, and may have to wait for the command before. The
    /// timeout also bounds the wait for a connection, whatever the pool's own timeouts are. Keep it below the layer's
    /// [`claim_deadline`](crate::WebhookLayer::claim_deadline), or that decides.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(LONGEST);
        self
    }

    /// How many replicas must have a claim before it is run, and a completion before it counts, by `WAIT`; none by
    /// default.
    ///
    /// A claim that too few confirm is released and refused with a 503; a completion is repeated until enough confirm.
    /// That makes losing a claim in a failover unlikely, but not impossible: Redis may promote a replica that had not
    /// confirmed, and a replica confirms what it has received, not what it has on disk. Renewals are not waited for.
    /// Every delivery takes at least two round trips to the replicas longer, and up to 16 more connections are used, on
    /// a Cluster to every node.
    ///
    /// Claims go by these connections, and their releases do not. A claim that the server did not answer in time is
    /// released as always; if the server was only paused, it may run the release first and the claim after it. The
    /// event is then refused as in flight until the [lease](crate::WebhookLayer::lease) ends, and runs after that.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// How long the replicas may take to confirm; half a second by default, on top of [`timeout`](Self::timeout).
    pub fn replica_timeout(mut self, replica_timeout: Duration) -> Self {
        self.replica_timeout = replica_timeout.min(LONGEST);
        self
    }

    /// How long an [inbox](super#the-inbox) keeps the requests of completed and discarded events; by default as long as
    /// their records, which is the [retention](crate::WebhookLayer::retention). Zero deletes them at completion.
    ///
    /// The record stays for the retention in any case, so that duplicates are recognised. An event without its request
    /// cannot be [requeued](crate::queue::Queue::requeue), and is counted there.
    pub fn keep_completed_bodies(mut self, time: Duration) -> Self {
        self.body_retention = Some(time);
        self
    }

    /// Builds the store. It connects when it is first used.
    #[must_use]
    pub fn build(self) -> RedisStore {
        let Self { pool, prefix, connections, timeout, replicas, replica_timeout, body_retention } = self;
        let listener = Listener::new(pool.clone(), [&*prefix, EVENTS].concat());
        let replicas = (replicas > 0).then(|| Replicas::new(&pool, replicas, replica_timeout, timeout));
        let client = Arc::new(Client::new(&pool, prefix, connections, timeout, replicas));
        let housekeeper = Housekeeper::new(client.clone());
        RedisStore::from_parts(RedisQueue { client, listener, housekeeper, body_retention })
    }
}
