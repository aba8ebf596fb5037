use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::claim_state::ClaimState;
use crate::handler::PermanentFailure;

type Hook = dyn Fn(&PermanentFailure<'_>) + Send + Sync;

/// The function to call for events that the store has remembered as failed.
#[derive(Clone)]
pub(crate) struct FailureHook(Arc<Hook>);

impl FailureHook {
    pub(crate) fn new(hook: impl Fn(&PermanentFailure<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    /// Calls the hook. If it panics, the delivery goes on.
    pub(super) fn call(&self, claim: &ClaimState, reason: &str) {
        let (event_type, attempt) = (claim.event_type.as_deref(), claim.attempt());
        let failure = PermanentFailure { key: &claim.key, event_type, attempt, reason };
        let _ = catch_unwind(AssertUnwindSafe(|| (self.0)(&failure)));
    }
}

impl fmt::Debug for FailureHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FailureHook")
    }
}
