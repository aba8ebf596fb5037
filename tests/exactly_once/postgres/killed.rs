//! Row 33: the server is killed in the middle of the handler's transaction.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Semaphore;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::{HandlerError, Outcome, WebhookEvent};

use super::database::Database;
use crate::exactly_once::ledger::Ledger;
use crate::exactly_once::receiver::Receiver;
use crate::support::servers::postgres::PostgresServer;
use crate::support::wait::eventually;

#[tokio::test]
async fn row_33_server_killed_in_the_handlers_transaction_leaves_nothing_of_it() {
    let mut server = PostgresServer::start();
    let database = Database::over(server.pool()).await;
    let (inside, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let brief = |layer: tower_webhook::WebhookLayer| layer.in_flight_wait(Duration::ZERO);
    let receiver = Receiver::configured(database.store.clone(), brief, {
        let (database, inside, go_on) = (database.clone(), inside.clone(), go_on.clone());
        move |event: WebhookEvent| {
            let (database, inside, go_on) = (database.clone(), inside.clone(), go_on.clone());
            async move {
                let tx = database.pay(&event).await?;
                inside.add_permits(1);
                go_on.acquire().await?.forget();
                tx.commit().await?;
                Ok::<_, HandlerError>(())
            }
        }
    });
    let first = receiver.spawn("evt_1");
    inside.acquire().await.expect("never closed").forget();
    server.kill();
    go_on.add_permits(1);
    let answer = first.await.expect("no panic");
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "whether it was committed nobody can say");
    assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable));

    server.restart();
    let connected = async || sqlx::query("SELECT 1").execute(&database.pool).await.is_ok();
    eventually("connected again", connected).await;
    assert_eq!(database.effects("evt_1").await, 0, "rolled back");
    // The claim itself was committed before, and ends with its lease.
    assert_eq!(receiver.deliver("evt_1").await.rejection(), Some(RejectionKind::InFlight));
    database.lapse().await;
    go_on.add_permits(1);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!(database.effects("evt_1").await, 1);
}
