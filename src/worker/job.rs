use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::Instant;
use tower_service::Service;

use super::bulkheads::Place;
use super::crew::{PAUSE_AFTER_FAILURE, Shared};
use super::hooks::DeadLetter;
use crate::event::{Facts, Provenance, WebhookEvent};
use crate::inbox::stored_head::{self, StoredFacts, Unreadable};
use crate::machine::{
    Admission, ClaimState, Ended, NotReady, Record, RetryReason, Settled, Stage, Terms, Verdict, Work, ask, verdict_of,
};
use crate::store::queue::{LAPSED, Leased};
use crate::store::{Hold, NOT_COMMITTED};
use crate::telemetry::{self, Attempted, Delivered};

const SUPERSEDED: &str = "superseded by a newer event of the same resource";
const UNREADABLE: &str = "the stored request is not one that this version wrote";

/// One event that was leased, and what is to be done with it.
pub(super) struct Job<S> {
    shared: Arc<Shared>,
    service: S,
    leased: Leased,
    since: Instant,
    request: Result<(Parts, StoredFacts), Unreadable>,
    pub(super) claim: Arc<ClaimState>,
    /// Why it failed, if it did.
    failure: Option<Cow<'static, str>>,
    /// Whether the service was called.
    called: bool,
}

impl<S, R> Job<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Send + Clone + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    pub(super) fn new(shared: Arc<Shared>, service: S, leased: Leased, since: Instant) -> Self {
        let request = stored_head::read(&leased.request.head);
        let deduplicated = request.as_ref().is_ok_and(|(_, facts)| facts.deduplicated);
        let claim = Arc::new(
            ClaimState::new(shared.ledger.clone(), leased.key.clone(), leased.token, leased.fingerprint)
                .typed(leased.event_type.clone())
                .deduplicated(deduplicated),
        );
        Self { shared, service, leased, since, request, claim, failure: None, called: false }
    }

    /// Runs the event, settles it, and tells what came of it; then its place is free.
    pub(super) async fn run(mut self, _place: Place, _admission: Admission) {
        let (shared, claim) = (self.shared.clone(), self.claim.clone());
        let terms = self.terms();
        let leased = (self.since, self.leased.attempt);
        let ended = shared.machine.resume(&terms, &claim, leased, &mut self).await;
        claim.enter(Stage::Outside);
        self.tell(&ended);
    }

    /// The worker's, but for what the layer that accepted the event asks for.
    fn terms(&self) -> Terms {
        let mut terms = self.shared.terms.clone();
        if let Ok((_, facts)) = &self.request {
            terms.retention = facts.retention;
        }
        terms
    }

    fn tell(&self, ended: &Ended) {
        let attempt = self.leased.attempt;
        let attempted = match ended {
            // Put back without having been tried.
            Ended::Ran(Settled::Released(Some(Hold::Held))) if self.failure.is_none() => Attempted::Released,
            Ended::Ran(settled) | Ended::Panicked(settled) | Ended::NotReady(Some(settled)) => self.attempted(*settled),
            Ended::NotReady(None) | Ended::Accepted | Ended::Duplicate | Ended::Refused(_) => Attempted::Released,
        };
        let reason = match (&self.failure, ended) {
            (Some(reason), _) => Some(&**reason),
            (None, Ended::Panicked(_)) if !self.called => Some("the inner service panicked before it was ready"),
            (None, Ended::Panicked(_)) => Some("the handler panicked"),
            (None, Ended::NotReady(_)) => Some("the inner service refused to become ready"),
            (None, Ended::Ran(Settled::NotCommitted)) => Some(NOT_COMMITTED),
            (None, _) => None,
        };
        let secret_label = self.request.as_ref().ok().map(|(_, facts)| &*facts.secret_label);
        let event_type = self.leased.event_type.as_deref();
        let about = Delivered {
            key: Some(&self.leased.key),
            event_type,
            secret_label,
            attempt: Some(attempt),
            reason,
            body_changed: false,
        };
        telemetry::attempted(attempted, &about);
        if attempted == Attempted::Buried {
            let permanent = self.called && matches!(ended, Ended::Ran(Settled::Failed));
            let reason = reason.unwrap_or_default();
            self.shared.hooks.buried(&DeadLetter { key: &self.leased.key, event_type, attempt, reason, permanent });
        }
    }

    /// What became of the event, as far as the store has confirmed it.
    fn attempted(&self, settled: Settled) -> Attempted {
        match settled {
            Settled::Completed => Attempted::Completed,
            Settled::Failed => Attempted::Buried,
            Settled::Released(Some(Hold::Held)) | Settled::NotCommitted => {
                let is_buried = self.shared.retries.is_last(self.leased.attempt) && self.called;
                if is_buried { Attempted::Buried } else { Attempted::Retried }
            }
            Settled::Released(Some(Hold::Lost)) | Settled::Lost => Attempted::Lost,
            Settled::Released(None) | Settled::CompletionPending | Settled::Unknown => Attempted::Unknown,
        }
    }
}

impl<S, R> Work for Job<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Send + Clone + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    async fn ready(&mut self) -> Result<(), NotReady> {
        poll_fn(|cx| self.service.poll_ready(cx)).await.map_err(|_| NotReady)
    }

    fn unready(&mut self) {}

    async fn run(&mut self) -> Verdict {
        let verdict = match self.decided() {
            Some(record) => Verdict::Complete(record),
            None => self.call().await,
        };
        self.failure = match &verdict {
            Verdict::Complete(Record { failed: true, summary }) => Some(summary.clone()),
            Verdict::Release(Some(why)) => Some(why.reason.clone()),
            Verdict::Complete(_) | Verdict::Release(None) => None,
        };
        verdict
    }
}

impl<S> Job<S> {
    /// What is known of the event without its handler.
    fn decided(&self) -> Option<Record> {
        let given_up = |why| Record { failed: true, summary: Cow::Borrowed(why) };
        let done = |why| Record { failed: false, summary: Cow::Borrowed(why) };
        // Run before by this very process, which could not tell the store until the lease had lapsed.
        if let Some(record) = self.shared.machine.pending_record(&self.leased.key) {
            return Some(record);
        }
        if self.leased.superseded {
            return Some(done(SUPERSEDED));
        }
        // Otherwise it was leased, and nobody ever called its handler: that does not use its last attempt up.
        if self.shared.retries.is_beyond(self.leased.attempt) && self.leased.started {
            return Some(given_up(LAPSED));
        }
        self.request.is_err().then(|| given_up(UNREADABLE))
    }

    async fn call<R>(&mut self) -> Verdict
    where
        S: Service<Request<Full<Bytes>>, Response = Response<R>>,
    {
        let Some(request) = self.take_request() else {
            return Verdict::Release(Some(RetryReason::new(UNREADABLE)));
        };
        if !self.may_start().await {
            return Verdict::Release(None);
        }
        self.called = true;
        match self.service.call(request).await {
            Ok(response) => verdict_of(&*self.shared.completes, &response),
            Err(_) => Verdict::Release(Some(RetryReason::new("the inner service failed"))),
        }
    }

    /// Whether the handler may be called. The inbox notes down that the last attempt begins, so that an event that takes the process
    /// down with it is given up, and no other is.
    async fn may_start(&mut self) -> bool {
        let Shared { queue, terms, retries, .. } = &*self.shared;
        if !retries.is_last(self.leased.attempt) {
            return true;
        }
        // The lease is renewed every third of its time, so it holds for longer than this.
        let (claim, patience) = (self.leased.claim(terms.lease), Instant::now() + terms.lease / 3);
        loop {
            let deadline = terms.claim_deadline.min(patience.saturating_duration_since(Instant::now()));
            let started = ask("start", &self.leased.key, deadline, queue.start(&claim)).await;
            if let Some(hold) = started {
                return hold == Hold::Held;
            }
            // The mark may be there though the reply was lost. The next lease would then give up an event that was never run, so the
            // handler is called while this lease holds.
            if Instant::now() + PAUSE_AFTER_FAILURE >= patience {
                return true;
            }
            tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
        }
    }

    /// What the service gets: the request as it was accepted, and the event.
    fn take_request(&mut self) -> Option<Request<Full<Bytes>>> {
        let (parts, facts) = self.request.as_ref().ok()?;
        let mut parts = parts.clone();
        let provenance = Provenance::Kept { secret_label: facts.secret_label.clone(), signed_at: facts.signed_at };
        let body = self.leased.request.body.clone();
        parts.extensions.insert(WebhookEvent::new(Facts {
            claim: self.claim.clone(),
            body: body.clone(),
            provenance,
            received_at: self.leased.request.received_at,
            id_authenticated: facts.id_authenticated,
            type_authenticated: facts.type_authenticated,
        }));
        Some(Request::from_parts(parts, Full::new(body)))
    }
}
