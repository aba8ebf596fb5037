use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::claims::Claims;
use super::client::Client;
use super::enqueue::{Enqueuer, NewEvent};
use super::queue::RedisQueue;
use super::{RedisPool, RedisStoreBuilder, enqueue, lease, operators};
use crate::EventKey;
use crate::store::batcher::Batcher;
use crate::store::queue::{
    Change, Changed, Filter, LeaseRequest, Leased, Page, Queue, QueueCounts, QueuedEvent, StoredRequest,
};
use crate::store::{Claim, ClaimRequest, Ending, Hold, Store, StoreFuture};

/// Remembers events in Redis: any number of instances act as one receiver.
///
/// The [module's documentation](super) describes its guarantees, their limits, and its use of the pool.
///
/// Clones share their connections.
///
/// ```no_run
/// use deadpool_redis::{Config, Runtime};
/// use tower_webhook::store::RedisStore;
/// use tower_webhook::{WebhookLayer, scheme};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Config::from_url("redis://127.0.0.1/").create_pool(Some(Runtime::Tokio1))?;
/// let store = RedisStore::new(pool);
/// for warning in store.check().await?.warnings {
///     eprintln!("{warning}");
/// }
/// let layer = WebhookLayer::new(scheme::stripe("whsec_…")?, store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    pub(super) client: Arc<Client>,
    pub(super) claims: Arc<Claims>,
    queue: Arc<RedisQueue>,
    /// One for each connection.
    enqueuers: Arc<[Batcher<Enqueuer>]>,
}

impl RedisStore {
    /// A store on the connections of a pool of deadpool-redis: for one server, a Cluster, or a Sentinel.
    ///
    /// It connects at the first delivery; [`check`](Self::check) says at start-up whether the server can be relied on.
    #[must_use]
    pub fn new(pool: impl Into<RedisPool>) -> Self {
        Self::builder(pool).build()
    }

    /// A store with another prefix, other timeouts, more connections, or replicas to wait for.
    pub fn builder(pool: impl Into<RedisPool>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(pool.into())
    }

    pub(super) fn from_parts(queue: RedisQueue) -> Self {
        let (client, queue) = (queue.client.clone(), Arc::new(queue));
        let enqueuers = client.connections.iter().map(|_| Batcher::new(Enqueuer::new(queue.clone()))).collect();
        Self { claims: Arc::new(Claims::new(client.clone())), client, queue, enqueuers }
    }
}

impl Store for RedisStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let written = self.claims.claim(request).await?;
            let Some(existing) = written.existing else {
                if let Err(error) = written.confirmed {
                    // If this fails as well, the lease ends by itself.
                    let _ = self.release(request.key, request.token).await;
                    return Err(error.into());
                }
                return Ok(Claim::Fresh { attempt: None });
            };
            Ok(existing.as_claim(request.fingerprint))
        })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            match self.queue.renew(claim).await? {
                Some(hold) => Ok(hold),
                None => Ok(self.claims.renew(claim).await?),
            }
        })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            if let Some(hold) = self.queue.settle(&self.queue.held(claim.key, claim.token), &ending).await? {
                return Ok(hold);
            }
            Ok(match ending {
                Ending::Complete(completion) => self.claims.complete(claim, &completion).await?,
                Ending::Release => self.claims.release(claim).await?,
                Ending::Retry { .. } | Ending::Bury { .. } => Hold::Lost,
            })
        })
    }
}

/// Events are kept in a Redis stream, and are as safe as the server's persistence makes them: see the
/// [module](crate::store::redis#the-inbox). With `appendfsync everysec`, the default of Redis, a crash loses up to a
/// second or two of acknowledged events; `always` loses none. Needs Redis 7.0 or Valkey; on a Cluster, a prefix with a
/// name in braces.
impl Queue for RedisStore {
    fn enqueue<'a>(&'a self, claim: &'a ClaimRequest<'a>, request: &'a StoredRequest) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let event = NewEvent::new(&self.client, claim, request);
            self.enqueuers[self.client.connection_number(&event.key)].ask(event).await
        })
    }

    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Option<Claim>> {
        Box::pin(async move { Ok(enqueue::peek(&self.client, claim).await?) })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> StoreFuture<'a, Vec<Leased>> {
        Box::pin(async move { Ok(lease::lease(&self.queue, request).await?) })
    }

    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { Ok(self.queue.start(claim).await?.unwrap_or(Hold::Lost)) })
    }

    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.queue.listener.wake())
    }

    fn waiting(&self, up_to: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move { Ok(operators::waiting(&self.client, up_to).await?) })
    }

    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> StoreFuture<'a, Vec<QueuedEvent>> {
        Box::pin(async move { Ok(operators::list(&self.client, filter, page).await?) })
    }

    fn get<'a>(&'a self, key: &'a EventKey) -> StoreFuture<'a, Option<QueuedEvent>> {
        Box::pin(async move { Ok(operators::get(&self.client, key).await?) })
    }

    fn change<'a>(&'a self, filter: &'a Filter, change: Change) -> StoreFuture<'a, Changed> {
        Box::pin(async move { Ok(operators::change(&self.queue, filter, change).await?) })
    }

    fn counts(&self) -> StoreFuture<'_, QueueCounts> {
        Box::pin(async move { Ok(operators::counts(&self.client).await?) })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.client.prefix)
            .field("connections", &self.client.connections.len())
            .field("timeout", &self.client.timeout)
            .field("replicas", &self.client.replicas_wanted())
            .finish_non_exhaustive()
    }
}
