//! Row 34: the commit is done, and its reply is lost.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::{HandlerError, Outcome, WebhookEvent};

use super::database::Database;
use crate::exactly_once::ledger::Ledger;
use crate::exactly_once::receiver::Receiver;
use crate::support::proxy::{Proxy, Weather};

#[tokio::test]
async fn row_34_lost_reply_to_the_commit_doubles_nothing() {
    let database = Database::new().await;
    let proxy = Arc::new(Proxy::before(Database::server()).await);
    // The handler's connection leads through the proxy, the store's does not.
    let through = database.pool_at(proxy.address).await;
    let receiver = Receiver::new(database.store.clone(), {
        let proxy = proxy.clone();
        move |event: WebhookEvent| {
            let (pool, proxy) = (through.clone(), proxy.clone());
            async move {
                let mut tx = pool.begin().await?;
                event.complete_in(&mut *tx).await?;
                sqlx::query("INSERT INTO payments VALUES ($1)").bind(event.id()).execute(&mut *tx).await?;
                proxy.set(Weather::SwallowReplies);
                let committed = tokio::time::timeout(Duration::from_millis(500), tx.commit()).await;
                assert!(committed.is_err(), "the reply was swallowed");
                Err::<(), _>(HandlerError::transient("whether it was committed is unknown"))
            }
        }
    });
    let answer = receiver.deliver("evt_1").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "the handler's own");
    assert_eq!(answer.outcome, Some(Outcome::Completed), "read back by its token");
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!(database.effects("evt_1").await, 1);
}
