//! Leases on real servers. Row 18: the way to the store is cut while a handler runs, for longer than its lease. Row 45: the
//! receiver's clock jumps.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use deadpool_redis::{Config, Runtime};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, PostgresStore, RedisStore, Store};
use tower_webhook::{Outcome, WebhookLayer};

use crate::support::audited::Audited;
use crate::support::checker::Ledger;
use crate::support::proxy::{Proxy, Weather};
use crate::support::servers::postgres::PostgresServer;
use crate::support::servers::redis::RedisServer;
use crate::support::wait::eventually;
use crate::support::{NOW, key};

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

    /// The keys of the events that it holds.
    async fn keys(&self) -> BTreeSet<String> {
        match self {
            Self::Redis(server) => {
                let keys = server.keys().into_iter();
                keys.map(|key| key.trim_start_matches("tower-webhook:").to_owned()).collect()
            }
            Self::Postgres(server) => {
                let keys = sqlx::query_scalar("SELECT key FROM webhook_events").fetch_all(&server.pool()).await;
                keys.expect("the table").into_iter().collect()
            }
        }
    }

    /// A store on it, by way of `address`.
    async fn store_at(&self, address: SocketAddr) -> Arc<dyn Store> {
        match self {
            Self::Redis(_) => {
                let pool = Config::from_url(format!("redis://{address}/")).create_pool(Some(Runtime::Tokio1));
                Arc::new(RedisStore::new(pool.expect("a pool")))
            }
            Self::Postgres(server) => {
                let store = PostgresStore::new(server.pool_at(address));
                store.migrate().await.expect("a table");
                Arc::new(store)
            }
        }
    }
}

/// A receiver with a short lease, the proxy that it reaches its store by, and another receiver that needs none. They have one
/// ledger.
async fn receivers(server: &Server) -> (Audited<Arc<dyn Store>>, Proxy, Audited<Arc<dyn Store>>) {
    let proxy = Proxy::before(server.address()).await;
    let brief = |layer: WebhookLayer| layer.in_flight_wait(Duration::ZERO).lease(LEASE).expect("a lease");
    let ledger = Ledger::default();
    let behind = Audited::configured(server.store_at(proxy.address).await, ledger.clone(), brief);
    let direct = Audited::configured(server.store_at(server.address()).await, ledger, brief);
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
        receiver.ledger.check_keys(&server.keys().await, "no seed: nothing is random here");
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
        other.ledger.check_keys(&server.keys().await, "no seed: nothing is random here");
        proxy.set(Weather::Fair);
        receiver.handler.go();
        let answer = running.await.expect("no panic");
        assert_eq!(answer.rejection(), Some(RejectionKind::ClaimLost), "{answer:?}");
        assert_eq!(other.handler.runs(), 1);
        // It had been told, by `is_held`, and went on: what no transaction completes is done twice.
        receiver.ledger.check_but_for(&["evt_1"], &server.keys().await, "no seed: nothing is random here");
    }
}

/// Leases are on the server's clock, whatever the receivers' say.
#[tokio::test]
async fn row_45_receivers_clock_jumps_by_an_hour_and_leases_are_as_before() {
    for server in Server::all() {
        for (id, wall) in [("forwards", NOW + 3600), ("backwards", NOW - 3600)] {
            let (receiver, _proxy, other) = receivers(&server).await;
            let running = receiver.spawn(id);
            let event = receiver.handler.started(1).await;
            let forsaken = format!("{id} and forsaken");
            let nobodys = key(&forsaken);
            let claim = other.store.claim(&ClaimRequest::new(&nobodys, ClaimToken::random(), 4 * LEASE)).await;
            assert!(matches!(claim, Ok(Claim::Fresh { .. })), "{claim:?}");
            for receiver in [&receiver, &other] {
                receiver.clock.set_wall(UNIX_EPOCH + Duration::from_secs(wall));
            }
            let early = other.deliver(&forsaken).await;
            assert_eq!(early.rejection(), Some(RejectionKind::InFlight), "{id}: not ended early");
            other.deliver_until_acknowledged(&forsaken).await;
            // Some leases later, this one has been renewed.
            assert!(event.is_held());
            assert_eq!(other.deliver(id).await.rejection(), Some(RejectionKind::InFlight), "{id}");
            receiver.handler.go();
            assert_eq!(running.await.expect("no panic").outcome, Some(Outcome::Completed), "{id}");
            assert_eq!(other.deliver(id).await.outcome, Some(Outcome::Duplicate), "{id}");
            let mut keys = server.keys().await;
            keys.retain(|key| key.contains(id));
            receiver.ledger.check_keys(&keys, id);
        }
    }
}
