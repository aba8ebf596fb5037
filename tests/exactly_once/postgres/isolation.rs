//! What only Postgres has: isolation levels, and locks on single rows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tower_webhook::enlist::EnlistErrorKind;
use tower_webhook::{HandlerError, Outcome, WebhookEvent};

use super::database::Database;
use crate::exactly_once::ledger::Ledger;
use crate::exactly_once::receiver::{Receiver, key};
use crate::support::wait::eventually;

/// When the lease of the event ends, as text; nothing before it is claimed.
async fn lease(database: &Database, id: &str) -> String {
    let lease = sqlx::query_scalar("SELECT lease_until::text FROM webhook_events WHERE key = $1");
    let lease = lease.bind(key(id).as_str().to_owned()).fetch_optional(&database.pool).await;
    lease.expect("a table").unwrap_or_default()
}

/// Ready when this event, which nobody enlists, was renewed several times.
async fn renewals_pass(database: &Database, id: &str) {
    for _ in 0..3 {
        let before = lease(database, id).await;
        eventually("a renewal", async || lease(database, id).await != before).await;
    }
}

/// A renewal between the transaction's first statement and its completion would make it fail: the row was changed after its
/// snapshot was taken. The first transaction is rolled back, so that no lock of its own keeps the renewals out of the second.
#[tokio::test]
async fn strict_isolation_levels_work_since_the_lease_is_not_renewed_any_more() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let database = Database::new().await;
        let (own, end) = (database.clone(), Arc::new(Semaphore::new(0)));
        let wait = end.clone();
        let brief = |layer: tower_webhook::WebhookLayer| layer.lease(Duration::from_millis(300)).expect("a lease");
        let receiver = Receiver::configured(database.store.clone(), brief, move |event: WebhookEvent| {
            let (database, wait) = (own.clone(), wait.clone());
            async move {
                if event.id() == "evt_renewed" {
                    wait.acquire().await?.forget();
                    return Ok(());
                }
                database.pay(&event).await?.rollback().await?;
                let begin = sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"));
                let mut tx = database.pool.begin_with(begin).await?;
                sqlx::query("SELECT count(*) FROM payments").execute(&mut *tx).await?;
                renewals_pass(&database, "evt_renewed").await;
                event.complete_in(&mut *tx).await?;
                sqlx::query("INSERT INTO payments VALUES ($1)").bind(event.id()).execute(&mut *tx).await?;
                tx.commit().await?;
                Ok::<_, HandlerError>(())
            }
        });
        let renewed = receiver.spawn("evt_renewed");
        renewals_pass(&database, "evt_renewed").await;
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed), "{level}");
        assert_eq!(database.effects("evt_1").await, 1);
        end.add_permits(1);
        assert_eq!(renewed.await.expect("no panic").outcome, Some(Outcome::Completed));
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
