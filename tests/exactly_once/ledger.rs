//! A database with payments in it, on any engine.

use std::future::Future;
use std::sync::Arc;

use tower_webhook::enlist::EnlistError;
use tower_webhook::store::Store;
use tower_webhook::{HandlerError, WebhookEvent};

/// A database of the test's own, with the store and the effects of a handler in it.
pub(crate) trait Ledger: Clone + Send + Sync + 'static {
    type Transaction: Transaction;

    fn fresh() -> impl Future<Output = Self> + Send;

    fn store(&self) -> Arc<dyn Store>;

    /// Enlists the completion in a transaction of its own, which is then rolled back.
    fn enlist(&self, event: &WebhookEvent) -> impl Future<Output = Result<(), EnlistError>> + Send;

    /// The effect, with the completion enlisted first; not yet committed.
    fn pay(&self, event: &WebhookEvent) -> impl Future<Output = Result<Self::Transaction, HandlerError>> + Send;

    /// How often the event took effect.
    fn effects(&self, id: &str) -> impl Future<Output = i64> + Send;

    /// Ends all leases.
    fn lapse(&self) -> impl Future<Output = ()> + Send;
}

/// The handler's transaction.
pub(crate) trait Transaction: Send {
    fn commit(self) -> impl Future<Output = sqlx::Result<()>> + Send;
    fn rollback(self) -> impl Future<Output = sqlx::Result<()>> + Send;
}

/// Implements [`Ledger`] for a `Database` with `new`, `begin`, `lapse`, a `pool` and a `store`: sqlx has no trait for what
/// the engines have in common here.
macro_rules! impl_ledger {
    ($database:ty, $transaction:ty) => {
        impl crate::exactly_once::ledger::Transaction for $transaction {
            async fn commit(self) -> sqlx::Result<()> {
                self.commit().await
            }

            async fn rollback(self) -> sqlx::Result<()> {
                self.rollback().await
            }
        }

        impl crate::exactly_once::ledger::Ledger for $database {
            type Transaction = $transaction;

            async fn fresh() -> Self {
                Self::new().await
            }

            fn store(&self) -> std::sync::Arc<dyn tower_webhook::store::Store> {
                std::sync::Arc::new(self.store.clone())
            }

            async fn enlist(
                &self,
                event: &tower_webhook::WebhookEvent,
            ) -> Result<(), tower_webhook::enlist::EnlistError> {
                event.complete_in(&mut *self.begin().await.expect("a transaction")).await
            }

            async fn pay(
                &self,
                event: &tower_webhook::WebhookEvent,
            ) -> Result<$transaction, tower_webhook::HandlerError> {
                let mut tx = self.begin().await?;
                // Both spellings, by turns.
                match event.attempt() {
                    Some(attempt) if attempt % 2 == 0 => event.complete_in(&mut *tx).await?,
                    _ => event.complete_in(&mut tx).await?,
                }
                sqlx::query("INSERT INTO payments VALUES ($1)").bind(event.id()).execute(&mut *tx).await?;
                Ok(tx)
            }

            async fn effects(&self, id: &str) -> i64 {
                let count = sqlx::query_scalar("SELECT count(*) FROM payments WHERE id = $1").bind(id);
                count.fetch_one(&self.pool).await.expect("a table")
            }

            async fn lapse(&self) {
                self.lapse().await;
            }
        }
    };
}
pub(crate) use impl_ledger;
