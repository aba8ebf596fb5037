use std::time::Duration;

use super::{EnlistError, EnlistErrorKind};
use crate::WebhookEvent;
use crate::store::{COMMITTED, ClaimToken, Dialect};

/// A completion to be run inside of a transaction: a statement and its parameters, in their order.
///
/// It must change exactly one row. If it changes none, the claim is another delivery's: roll back.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CompletionStatement<'a> {
    /// Whose SQL the statement is.
    pub dialect: Dialect,
    /// The statement.
    pub sql: &'a str,
    /// The first parameter: the event's key, as text.
    pub key: &'a str,
    /// The second parameter: the claim's token, as 16 bytes.
    pub token: ClaimToken,
    /// The third parameter: what is remembered of the outcome, as text.
    pub summary: &'a str,
    /// The fourth parameter: for how long duplicates are recognised, in milliseconds, as a 64-bit integer.
    pub retention_ms: i64,
    /// Whether the driver may keep the statement prepared on its connection; not behind a transaction pooler.
    pub prepared: bool,
}

impl<T> WebhookEvent<T> {
    /// Enlists the completion in a transaction of the handler's own: effect and completion are committed together. To be called
    /// first thing in the transaction, with `&mut *tx`; see [`enlist`](crate::enlist) for what comes of it.
    ///
    /// # Errors
    ///
    /// If the claim is another delivery's by now, if the store is not in a database that `connection` could reach, or if the
    /// statement fails. The transaction is to be rolled back, and the error returned: it is a transient one.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub async fn complete_in<C: super::Connection>(&self, connection: &mut C) -> Result<(), EnlistError> {
        let state = self.claim().enlisting().ok_or(EnlistErrorKind::Unsupported)?;
        if state.enlistment.dialect() != C::DIALECT {
            return Err(EnlistErrorKind::OtherDatabase.into());
        }
        match connection.run(&self.enlist().await?).await {
            Ok(1) => Ok(()),
            Ok(_) => {
                self.claim().lost();
                Err(EnlistErrorKind::ClaimLost.into())
            }
            Err(error) => Err(EnlistError::database(error)),
        }
    }

    /// The same for another database driver: the statement to run inside of the transaction. From now on the layer takes the
    /// completion for enlisted, so it must be run: without it the event is released.
    ///
    /// # Errors
    ///
    /// If the store has no such statement, or the event no id.
    pub async fn enlist(&self) -> Result<CompletionStatement<'_>, EnlistError> {
        let claim = self.claim();
        let state = claim.enlisting().ok_or(EnlistErrorKind::Unsupported)?;
        state.enlist().await;
        Ok(CompletionStatement {
            dialect: state.enlistment.dialect(),
            sql: state.enlistment.sql(),
            key: claim.key.as_str(),
            token: claim.token,
            summary: COMMITTED,
            retention_ms: milliseconds(state.retention),
            prepared: state.enlistment.is_prepared(),
        })
    }
}

/// Rounded up: what is kept for less than a millisecond is kept for one.
fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}
