//! Row 18: the way to the store is cut while a handler runs, for longer than its lease.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use deadpool_redis::{Config, Runtime};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{AnyStore, PostgresStore, RedisStore};
use tower_webhook::{Outcome, WebhookLayer};

use crate::support::audited::{Audited, eventually};
use crate::support::checker::Ledger;
use crate::support::postgres_server::PostgresServer;
use crate::support::proxy::{Proxy, Weather};
use crate::support::redis_server::RedisServer;

const LEASE: Duration = Duration::from_millis(600);

/// A server, and how to reach it.
enum Server {
    Redis(RedisServer),
    Postgres(PostgresServer),
}

impl Server {
    fn all() -> [Self; 2] {
        [Self::Redis(RedisServer::start()), Self::Postgres(PostgresServer::start())]
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Redis(server) => server.address(),
            Self::Postgres(server) => server.address(),
        }
    }

    /// A store on it, by way of `address`.
    async fn store_at(&self, address: SocketAddr) -> AnyStore {
        match self {
            Self::Redis(_) => {
                let pool = Config::from_url(format!("redis://{address}/")).create_pool(Some(Runtime::Tokio1));
                AnyStore::new(RedisStore::new(pool.expect("a pool")))
            }
            Self::Postgres(server) => {
                let store = PostgresStore::new(server.pool_at(address));
                store.migrate().await.expect("a table");
                AnyStore::new(store)
            }
        }
    }
}

/// A receiver with a short lease, the proxy that it reaches its store by, and another receiver that needs none.
async fn receivers(server: &Server) -> (Audited<AnyStore>, Proxy, Audited<AnyStore>) {
    let proxy = Proxy::before(server.address()).await;
    let brief = |layer: WebhookLayer| layer.lease(LEASE).expect("a lease");
    let behind = Audited::configured(server.store_at(proxy.address).await, Ledger::default(), brief);
    let direct = Audited::configured(server.store_at(server.address()).await, Ledger::default(), brief);
    behind.handler.hold();
    (behind, proxy, direct)
}

#[tokio::test]
async fn row_18_claim_that_nobody_took_over_is_completed_by_its_token() {
    for server in Server::all() {
        let (receiver, proxy, other) = receivers(&server).await;
        let running = receiver.spawn("evt_1");
        let event = receiver.handler.started(1).await;
        proxy.set(Weather::Cut);
        eventually("the claim is not held any more", async || !event.is_held()).await;
        proxy.set(Weather::Fair);
        receiver.handler.go();
        let answer = running.await.expect("no panic");
        // At once, or as soon as there is a connection again.
        let done = [Some(Outcome::Completed), Some(Outcome::CompletionPending)];
        assert!(done.contains(&answer.outcome), "{answer:?}");
        receiver.settled().await;
        assert_eq!(other.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    }
}

#[tokio::test]
async fn row_18_claim_that_was_taken_over_is_not_completed_by_a_lost_token() {
    for server in Server::all() {
        let (receiver, proxy, other) = receivers(&server).await;
        let running = receiver.spawn("evt_1");
        let event = receiver.handler.started(1).await;
        proxy.set(Weather::Cut);
        eventually("the claim is not held any more", async || !event.is_held()).await;
        assert_eq!(other.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
        proxy.set(Weather::Fair);
        receiver.handler.go();
        let answer = running.await.expect("no panic");
        assert_eq!(answer.rejection(), Some(RejectionKind::ClaimLost), "{answer:?}");
        assert_eq!(other.handler.runs(), 1);
    }
}
