use super::RetryPolicy;
use crate::EventKey;
use crate::inbox::{AnyInbox, Inbox};
use crate::store::erased::{Answer, ErasedStore, Setback};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Enlistment, Hold};

/// An inbox as the machine of a worker sees it: what fails is retried or buried.
pub(super) struct Queued {
    pub(super) inbox: AnyInbox,
    pub(super) retries: RetryPolicy,
}

impl ErasedStore for Queued {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> Answer<'a, Claim> {
        self.inbox.claim(request)
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> Answer<'a, Hold> {
        self.inbox.renew(claim)
    }

    /// Given up for good, there is nobody but an operator to bring it back.
    fn complete<'a>(&'a self, claim: &'a ClaimRequest<'a>, completion: &'a Completion<'a>) -> Answer<'a, Hold> {
        match completion.failed {
            true => Box::pin(self.inbox.bury(claim, completion.summary)),
            false => self.inbox.complete(claim, completion),
        }
    }

    fn release<'a>(&'a self, key: &'a EventKey, token: ClaimToken) -> Answer<'a, Hold> {
        self.inbox.release(key, token)
    }

    fn set_back<'a>(
        &'a self,
        claim: &'a ClaimRequest<'a>,
        attempt: Option<u32>,
        setback: &'a Setback,
    ) -> Answer<'a, Hold> {
        let attempt = attempt.unwrap_or(1);
        match self.retries.is_last(attempt) && setback.called {
            true => Box::pin(self.inbox.bury(claim, &setback.reason)),
            false => {
                Box::pin(self.inbox.retry(claim, self.retries.pause(attempt, setback.retry_after), &setback.reason))
            }
        }
    }

    fn enlistment(&self) -> Option<Enlistment> {
        self.inbox.enlistment()
    }
}
