use std::future::Future;
use std::time::Duration;

use super::within;
use crate::store::{StoreError, StoreErrorKind};
use crate::{EventKey, telemetry};

/// What the store answers within the deadline. `None`, and a word to the operator, when it could not be asked: whether the
/// verb took effect is then unknown.
pub(crate) async fn ask<T>(
    verb: &str,
    key: &EventKey,
    deadline: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Option<T> {
    let answer = within(deadline, answer).await.unwrap_or_else(|| Err(StoreError::new(StoreErrorKind::TimedOut)));
    answer.inspect_err(|error| telemetry::store_failed(verb, key, error)).ok()
}
