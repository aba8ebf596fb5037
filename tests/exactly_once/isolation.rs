//! What only Postgres has: isolation levels, and locks on single rows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tower_webhook::enlist::EnlistErrorKind;
use tower_webhook::{HandlerError, Outcome, WebhookEvent};

use super::database::Database;
use crate::receiver::Receiver;

/// A renewal after the transaction's first statement would make the commit fail. The lease is so short that there would be
/// several.
#[tokio::test]
async fn strict_isolation_levels_work_since_the_lease_is_not_renewed_any_more() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::new().await;
        let own = database.clone();
        let brief = |layer: tower_webhook::WebhookLayer| layer.lease(Duration::from_millis(150)).expect("a lease");
        let receiver = Receiver::configured(database.store.clone(), brief, move |event: WebhookEvent| {
            let database = own.clone();
            async move {
                let mut tx =
                    database.pool.begin_with(sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"))).await?;
                event.complete_in(&mut *tx).await?;
                sqlx::query("INSERT INTO payments VALUES ($1)").bind(event.id()).execute(&mut *tx).await?;
                tokio::time::sleep(Duration::from_millis(600)).await;
                tx.commit().await?;
                Ok::<_, HandlerError>(())
            }
        });
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed), "{level}");
        assert_eq!(database.effects("evt_1").await, 1);
    }
}

/// No batch waits for a row that a handler's transaction holds.
#[tokio::test]
async fn open_transaction_delays_no_other_event() {
    let database = Database::new().await;
    let (inside, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let receiver = Receiver::new(database.store.clone(), {
        let (database, inside, go_on) = (database.clone(), inside.clone(), go_on.clone());
        move |event: WebhookEvent| {
            let (database, inside, go_on) = (database.clone(), inside.clone(), go_on.clone());
            async move {
                let tx = database.pay(&event).await?;
                if event.id() == "evt_held" {
                    inside.add_permits(1);
                    go_on.acquire().await?.forget();
                }
                tx.commit().await?;
                Ok::<_, HandlerError>(())
            }
        }
    });
    let held = receiver.spawn("evt_held");
    inside.acquire().await.expect("never closed").forget();
    for id in ["evt_1", "evt_2", "evt_3"] {
        assert_eq!(receiver.deliver(id).await.outcome, Some(Outcome::Completed));
    }
    assert!(!held.is_finished(), "the transaction was open all the while");
    go_on.add_permits(1);
    assert_eq!(held.await.expect("no panic").outcome, Some(Outcome::Completed));
}

#[tokio::test]
async fn connection_of_another_kind_of_database_is_refused() {
    let database = Database::new().await;
    let receiver = Receiver::new(database.store.clone(), |event: WebhookEvent| async move {
        let sqlite = sqlx::SqlitePool::connect("sqlite::memory:").await?;
        let mut tx = sqlite.begin().await?;
        let error = event.complete_in(&mut *tx).await.expect_err("the store is in Postgres");
        assert_eq!(error.kind(), EnlistErrorKind::OtherDatabase);
        Ok::<(), HandlerError>(())
    });
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed), "nothing was enlisted");
}
