use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::Instant;
use tower_service::Service;

use super::RetryPolicy;
use super::bulkheads::{Bulkheads, Limits, Permit};
use super::hooks::{AttemptReport, DeadLetter, Hooks};
use crate::event::{Facts, Provenance, WebhookEvent};
use crate::inbox::stored_head::{self, StoredHead, Unreadable};
use crate::machine::{
    Admission, ClaimState, CompletesFn, CompletionRecord, Ended, Machine, NotReady, RetryReason, SERVICE_FAILED,
    Settled, Stage, Terms, Verdict, Work, WorkerLedger, ask, verdict_of, within,
};
use crate::outcome::AttemptOutcome;
use crate::route;
use crate::store::queue::{LAPSED, Leased, Queue};
use crate::store::{Hold, NOT_COMMITTED};
use crate::telemetry::{self, Delivered};

const SUPERSEDED: &str = "superseded by a newer event of the same resource";
const UNREADABLE: &str = "the stored request is not one that this version wrote";

/// How long a worker waits before it asks a queue again that failed.
pub(super) const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// The parts of a worker that all its attempts share.
pub(super) struct WorkerContext {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) ledger: Arc<WorkerLedger>,
    pub(super) machine: Arc<Machine>,
    pub(super) bulkheads: Arc<Bulkheads>,
    pub(super) options: Options,
}

/// The options of a worker.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) terms: Terms,
    pub(super) retries: RetryPolicy,
    pub(super) hooks: Hooks,
    pub(super) completes: Arc<CompletesFn>,
    pub(super) limits: Limits,
    pub(super) endpoints: Box<[Box<str>]>,
    /// How many events a lease takes at most.
    pub(super) batch: usize,
    pub(super) poll: Duration,
    pub(super) grace: Duration,
    pub(super) outer_router: bool,
    pub(super) timeouts: AttemptTimeouts,
}

/// How long a handler may run in one attempt.
#[derive(Clone, Debug)]
pub(super) struct AttemptTimeouts {
    pub(super) each: Duration,
    pub(super) by_type: HashMap<Box<str>, Duration>,
}

impl AttemptTimeouts {
    pub(super) fn of(&self, event_type: Option<&str>) -> Duration {
        let own = event_type.and_then(|event_type| self.by_type.get(event_type));
        own.copied().unwrap_or(self.each)
    }
}

/// One attempt at a leased event.
pub(super) struct Attempt<S> {
    context: Arc<WorkerContext>,
    service: S,
    leased: Leased,
    since: Instant,
    head: Result<StoredHead, Unreadable>,
    pub(super) claim: Arc<ClaimState>,
    /// Why the attempt failed, if it did.
    failure: Option<Cow<'static, str>>,
    /// Whether the event is given up because the attempt failed.
    gives_up: bool,
    /// Whether the handler said that no retry would help.
    is_permanent: bool,
    /// How long the service's call took.
    took: Duration,
}

impl<S, R> Attempt<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Send + Clone + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    pub(super) fn new(context: Arc<WorkerContext>, service: S, leased: Leased, since: Instant) -> Self {
        let head = stored_head::read(&leased.request.head);
        let deduplicated = head.as_ref().is_ok_and(|head| head.facts.deduplicated);
        let claim = Arc::new(
            ClaimState::new(context.ledger.clone(), leased.key.clone(), leased.token, leased.fingerprint)
                .typed(leased.event_type.clone())
                .deduplicated(deduplicated),
        );
        Self {
            context,
            service,
            leased,
            since,
            head,
            claim,
            failure: None,
            gives_up: false,
            is_permanent: false,
            took: Duration::ZERO,
        }
    }

    /// Runs the event, settles it, and reports how it ended. Keeps the permit and the admission until then.
    pub(super) async fn run(mut self, _permit: Permit, _admission: Admission) {
        let (context, claim) = (self.context.clone(), self.claim.clone());
        let terms = self.terms();
        let leased = (self.since, self.leased.attempt);
        let ended = context.machine.resume(&terms, &claim, leased, &mut self).await;
        claim.set_stage(Stage::NothingToDo);
        self.report(&ended);
    }

    /// The worker's terms, with the retention of the layer that accepted the event.
    fn terms(&self) -> Terms {
        let mut terms = self.context.options.terms.clone();
        if let Ok(head) = &self.head {
            terms.retention = head.facts.retention;
        }
        terms
    }

    /// Reports how the attempt ended: to telemetry and to the hooks.
    fn report(&self, ended: &Ended) {
        let attempt = self.leased.attempt;
        let outcome = match ended {
            Ended::Ran(settled)
            | Ended::Panicked(settled)
            | Ended::NotReady(Some(settled))
            | Ended::Dropped { settled, .. } => self.outcome_of(*settled),
            // Only a delivery that asks for its claim ends so. A worker has leased its event.
            Ended::NotReady(None) | Ended::Accepted | Ended::Duplicate | Ended::Refused(_) => AttemptOutcome::Unknown,
        };
        let reason = match (&self.failure, ended) {
            (Some(reason), _) => Some(&**reason),
            (None, Ended::Ran(Settled::NotCommitted)) => Some(NOT_COMMITTED),
            (None, _) => None,
        };
        let secret_label = self.head.as_ref().ok().map(|head| &*head.facts.secret_label);
        let event_type = self.leased.event_type.as_deref();
        let about =
            Delivered { event_type, secret_label, attempt: Some(attempt), reason, ..Delivered::of(&self.leased.key) };
        telemetry::attempted(outcome, &about);
        let key = &self.leased.key;
        self.context.options.hooks.attempted(&AttemptReport {
            key,
            event_type,
            received_at: self.leased.request.received_at,
            attempt,
            outcome,
            took: self.took,
            reason,
        });
        if outcome == AttemptOutcome::Buried {
            let reason = reason.unwrap_or_default();
            self.context.options.hooks.buried(&DeadLetter {
                key,
                event_type,
                attempt,
                reason,
                permanent: self.is_permanent,
            });
        }
    }

    fn gives_up_on(&self, why: &RetryReason) -> bool {
        self.context.ledger.gives_up(self.leased.attempt, why)
    }

    /// How the attempt ended, as far as the queue has confirmed it.
    fn outcome_of(&self, settled: Settled) -> AttemptOutcome {
        match settled {
            Settled::Completed => AttemptOutcome::Completed,
            Settled::Failed => AttemptOutcome::Buried,
            // The attempt does not count: the handler was not called, or was dropped half-way.
            Settled::Released if self.failure.is_none() => AttemptOutcome::Released,
            Settled::Released if self.gives_up => AttemptOutcome::Buried,
            Settled::NotCommitted if self.gives_up_on(&RetryReason::new(NOT_COMMITTED)) => AttemptOutcome::Buried,
            Settled::Released | Settled::NotCommitted => AttemptOutcome::Retried,
            Settled::Lost => AttemptOutcome::Lost,
            Settled::CompletionPending | Settled::Unknown => AttemptOutcome::Unknown,
        }
    }
}

impl<S, R> Work for Attempt<S>
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

    async fn run(&mut self, called: &AtomicBool) -> Verdict {
        if let Some(record) = self.known_result() {
            return Verdict::Complete(record);
        }
        let verdict = self.call(called).await;
        self.is_permanent = matches!(verdict, Verdict::Complete(CompletionRecord { failed: true, .. }));
        verdict
    }

    fn settles(&mut self, verdict: &Verdict) {
        (self.failure, self.gives_up) = match verdict {
            Verdict::Complete(CompletionRecord { failed: true, summary }) => (Some(summary.clone()), false),
            Verdict::Release(Some(why)) => (Some(why.reason.clone()), self.gives_up_on(why)),
            Verdict::Complete(_) | Verdict::Release(None) => (None, false),
        };
    }
}

impl<S> Attempt<S> {
    /// The completion of an event that must not be run: it was run before, or it cannot be.
    fn known_result(&self) -> Option<CompletionRecord> {
        let given_up = |why| CompletionRecord { failed: true, summary: Cow::Borrowed(why) };
        let done = |why| CompletionRecord { failed: false, summary: Cow::Borrowed(why) };
        // This process has run it before, and could not tell the queue until the lease had lapsed.
        if let Some(record) = self.context.machine.pending_record(&self.leased.key) {
            return Some(record);
        }
        if self.leased.superseded {
            return Some(done(SUPERSEDED));
        }
        // An event that was leased and whose handler was never called keeps its last attempt.
        if self.context.options.retries.is_beyond(self.leased.attempt) && self.leased.started {
            return Some(given_up(LAPSED));
        }
        self.head.is_err().then(|| given_up(UNREADABLE))
    }

    async fn call<R>(&mut self, called: &AtomicBool) -> Verdict
    where
        S: Service<Request<Full<Bytes>>, Response = Response<R>>,
    {
        let Some(request) = self.take_request() else {
            return Verdict::Release(Some(RetryReason::new(UNREADABLE)));
        };
        if !self.may_start().await {
            return Verdict::Release(None);
        }
        called.store(true, Ordering::Relaxed);
        let timeout = self.context.options.timeouts.of(self.leased.event_type.as_deref());
        let watch = self.context.bulkheads.watch(&self.leased, Instant::now() + 2 * timeout);
        let stopwatch = Stopwatch { since: Instant::now(), took: &mut self.took };
        let answer = within(timeout, self.service.call(request)).await;
        drop((stopwatch, watch));
        let Some(answer) = answer else {
            let reason = format!("the handler did not end within {timeout:?}, and was dropped");
            return Verdict::Release(Some(RetryReason { reason: reason.into(), ..RetryReason::new("") }));
        };
        match answer {
            Ok(response) => verdict_of(&*self.context.options.completes, &response),
            Err(_) => Verdict::Release(Some(RetryReason::new(SERVICE_FAILED))),
        }
    }

    /// Whether the handler may be called. The queue notes that the last attempt begins, so that a later worker gives up
    /// an event that took its process down, and no other.
    async fn may_start(&mut self) -> bool {
        let WorkerContext { queue, options: Options { terms, retries, .. }, .. } = &*self.context;
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
            // The queue may have noted the start although its reply was lost. The next worker would then give up an
            // event that was never run, so this one calls the handler while its lease holds.
            if Instant::now() + PAUSE_AFTER_FAILURE >= patience {
                return true;
            }
            tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
        }
    }

    /// The request for the service: as it was accepted, with the event in its extensions.
    fn take_request(&mut self) -> Option<Request<Full<Bytes>>> {
        let StoredHead { mut parts, original_uri, facts } = self.head.clone().ok()?;
        let original_uri = original_uri.unwrap_or_else(|| parts.uri.clone());
        if self.context.options.outer_router {
            parts.uri.clone_from(&original_uri);
        }
        route::set_requested_uri(&mut parts, original_uri);
        let provenance = Provenance::Kept { secret_label: facts.secret_label, signed_at: facts.signed_at };
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

/// Measures how long the service's call takes, also one that panics.
struct Stopwatch<'a> {
    since: Instant,
    took: &'a mut Duration,
}

impl Drop for Stopwatch<'_> {
    fn drop(&mut self) {
        *self.took = self.since.elapsed();
    }
}
