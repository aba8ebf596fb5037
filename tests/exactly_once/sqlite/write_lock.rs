//! What only SQLite has: one write lock, which the handler's transaction holds and a renewal waits for.

use std::time::Duration;

use tokio::sync::watch;
use tower_webhook::store::{Claim, ClaimRequest, Ending, Enlistment, Hold, SqliteStore, Store, StoreFuture};
use tower_webhook::{HandlerError, Outcome, WebhookEvent};

use super::database::Database;
use crate::exactly_once::ledger::Ledger;
use crate::exactly_once::receiver::Receiver;

/// The store, and how many renewals have begun and ended.
#[derive(Clone)]
struct Watched {
    store: SqliteStore,
    begun: watch::Sender<usize>,
    ended: watch::Sender<usize>,
}

/// Counts an end, also that of whoever gives up.
struct CountEnd<'a>(&'a watch::Sender<usize>);

impl Drop for CountEnd<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|ended| *ended += 1);
    }
}

impl Store for Watched {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        self.store.claim(request)
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            let _end = CountEnd(&self.ended);
            self.begun.send_modify(|begun| *begun += 1);
            self.store.renew(claim).await
        })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        self.store.settle(claim, ending)
    }

    fn enlistment(&self) -> Option<Enlistment> {
        self.store.enlistment()
    }
}

/// The renewal waits for the transaction; if the transaction waited for the renewal, both would stand still, and all other
/// writers with them.
#[tokio::test]
async fn completion_is_enlisted_while_a_renewal_waits_for_the_transaction() {
    let database = Database::new().await;
    let watched = Watched { store: database.store.clone(), begun: watch::Sender::new(0), ended: watch::Sender::new(0) };
    let (own, renewals) = (database.clone(), watched.clone());
    // Renewed after a second, and waited for during two.
    let brief = |layer: tower_webhook::WebhookLayer| layer.lease(Duration::from_secs(3)).expect("a lease");
    let receiver = Receiver::configured(watched, brief, move |event: WebhookEvent| {
        let (database, renewals) = (own.clone(), renewals.clone());
        async move {
            let mut tx = database.begin().await?;
            renewals.begun.subscribe().wait_for(|begun| *begun > 0).await?;
            event.complete_in(&mut *tx).await?;
            assert_eq!(*renewals.ended.borrow(), 0, "the renewal still waits");
            sqlx::query("INSERT INTO payments VALUES ($1)").bind(event.id()).execute(&mut *tx).await?;
            tx.commit().await?;
            // It finds the claim completed, by this very transaction.
            renewals.ended.subscribe().wait_for(|ended| *ended > 0).await?;
            assert!(event.is_held());
            Ok::<_, HandlerError>(())
        }
    });
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!(database.effects("evt_1").await, 1);
}
