use std::borrow::Cow;
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use tower_service::Service;

use super::answer::{AnswerBody, pass_on};
use super::config::Config;
use super::explainer::RefusedDelivery;
use super::intake::{Arrived, ArrivedEvent, Intake};
use crate::EventKey;
use crate::event::{Facts, Provenance, WebhookEvent};
use crate::handler::Failure;
use crate::machine::{
    ClaimState, Deadline, DetachOnDrop, Ended, NotReady, PANICKED, RetryReason, SERVICE_FAILED, Settled, Verdict, Work,
    verdict_of,
};
use crate::outcome::Outcome;
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::Proof;
use crate::secrets::Prepared;
use crate::store::NOT_COMMITTED;
use crate::telemetry::{self, Delivered};

/// The output of the layer's future: a response, or the inner service's own error.
pub(super) type Reply<R, E> = Result<Response<AnswerBody<R>>, E>;

/// One delivery, from its head to its answer.
pub(super) struct Delivery<S> {
    intake: Intake,
    event: Option<ArrivedEvent>,
    inner: S,
    report: OutcomeReport,
}

impl<S> Delivery<S> {
    pub(super) fn new(parts: Parts, now: SystemTime, inner: S, config: Arc<Config>) -> Self {
        let intake = Intake::new(parts, now, Deadline::after(config.body_deadline));
        Self { intake, event: None, inner, report: OutcomeReport::new(config) }
    }

    /// Begins to verify the proof that the head carries.
    pub(super) fn begin(&mut self, proof: Proof) -> Result<(), Rejection> {
        self.intake.begin(&self.report.config, proof)
    }

    /// Waits for the whole body.
    pub(super) fn poll_collected<B>(&mut self, body: Pin<&mut B>, cx: &mut Context<'_>) -> Poll<Result<(), Rejection>>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        self.intake.poll_collected(body, self.report.config.body_limit, cx)
    }

    /// Verifies the complete body.
    pub(super) fn finish(&mut self) -> Result<Arrived, Rejection> {
        self.intake.finish(&self.report.config)
    }

    pub(super) fn greet<R>(&mut self, answer: Response<Bytes>) -> Response<AnswerBody<R>> {
        self.report.send(&Outcome::Handshake, &Answered::default());
        Config::answer_handshake(answer)
    }

    pub(super) fn refuse<R>(&mut self, rejection: Rejection) -> Response<AnswerBody<R>> {
        self.report.sent = true;
        let config = &self.report.config;
        config.report_refusal(&rejection, &self.intake.parts, self.intake.tenant.as_deref());
        if config.explainer.is_none() {
            return config.refuse(rejection);
        }
        let answer = config.refuse(rejection.clone());
        let (parts, body) = self.intake.take_refused();
        config.explain(RefusedDelivery { rejection, parts, received_at: self.intake.received_at, body });
        answer
    }
}

impl<S, R> Delivery<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Send + Clone + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    /// Claims, runs, settles and answers.
    pub(super) fn start(mut self: Box<Self>, mut event: ArrivedEvent) -> DetachOnDrop<Reply<R, S::Error>> {
        let (claim, secret) = (event.claim.clone(), event.verified.secret().clone());
        let (config, detached_claim) = (self.report.config.clone(), claim.clone());
        let detach = config.terms.detach;
        self.report.about = Some((claim.clone(), secret));
        let guard = event.guard.take();
        self.event = Some(event);
        // An `async fn` would keep its arguments twice, so this is a block. The box is allocated first, so that the
        // future is built in place. What is large and rare in it is boxed: up to 1,032 bytes, glibc allocates from the
        // thread's own cache.
        let delivery = Box::write(Box::new_uninit(), async move {
            let mut handling = Handling { delivery: self, output: None };
            let ended = match &config.inbox {
                None => config.machine.drive(&config.terms, &claim, guard.as_deref(), &mut handling).await,
                // Boxed: not every delivery's future need be as large as both.
                Some(inbox) => {
                    let terms = &config.terms;
                    let room = inbox.room(&claim, terms.lease, terms.claim_deadline);
                    Box::pin(config.machine.enqueue(terms, &claim, guard.as_deref(), room)).await
                }
            };
            let (reply, outcome, answered) = conclude(&config, &claim.key, ended, handling.output);
            handling.delivery.report.send(&outcome, &answered);
            reply
        });
        DetachOnDrop::new(Box::into_pin(delivery), detached_claim, detach)
    }
}

/// The answer of the handler, as telemetry reports it.
#[derive(Default)]
struct Answered {
    status: Option<StatusCode>,
    /// Why the event is to be run again, or not at all.
    reason: Option<Cow<'static, str>>,
}

impl Answered {
    fn because(reason: &'static str) -> Self {
        Self { status: None, reason: Some(Cow::Borrowed(reason)) }
    }
}

/// The reply to the sender, the outcome that is counted, and how the handler answered.
fn conclude<R, E>(
    config: &Config,
    key: &EventKey,
    ended: Ended,
    output: Option<Result<Response<R>, E>>,
) -> (Reply<R, E>, Outcome, Answered) {
    let nothing = Answered::default();
    let refused =
        |rejection: Rejection, answered| (Ok(config.refuse(rejection.clone())), Outcome::Refused(rejection), answered);
    let (response, settled) = match (ended, output) {
        (Ended::Ran(settled), Some(Ok(response))) => (response, settled),
        // The handler failed after its transaction was committed.
        (Ended::Ran(Settled::Completed), Some(Err(error))) => return (Err(error), Outcome::Completed, nothing),
        (Ended::Ran(settled), Some(Err(error))) => {
            let outcome = match settled {
                Settled::Lost => RejectionKind::ClaimLost.into(),
                _ => Outcome::Released,
            };
            return (Err(error), outcome, Answered::because(SERVICE_FAILED));
        }
        (Ended::NotReady(_), Some(output)) => {
            return (output.map(|response| pass_on(response, Outcome::NotReady)), Outcome::NotReady, nothing);
        }
        (Ended::Accepted, _) => return (Ok(config.answer_accepted()), Outcome::Accepted, nothing),
        (Ended::Duplicate, _) => return (Ok(config.answer_duplicate(key)), Outcome::Duplicate, nothing),
        (Ended::Refused(rejection), _) => return refused(rejection, nothing),
        (Ended::Dropped { why, .. }, _) => return refused(why.into(), nothing),
        // Only a panic leaves no output behind.
        (Ended::Panicked(_) | Ended::Ran(_) | Ended::NotReady(_), _) => {
            return (Ok(Config::answer_panic()), Outcome::Panicked, Answered::because(PANICKED));
        }
    };
    let failure = match settled {
        Settled::NotCommitted => Some(Failure::transient(NOT_COMMITTED)),
        _ => response.extensions().get::<Failure>().cloned(),
    };
    let reason = match &failure {
        Some(failure) => Some(failure.reason().to_owned().into()),
        None if settled == Settled::Released => Some(format!("the handler answered {}", response.status()).into()),
        None => None,
    };
    let answered = Answered { status: Some(response.status()), reason };
    let outcome = match settled {
        Settled::Completed => Outcome::Completed,
        Settled::CompletionPending => Outcome::CompletionPending,
        Settled::Failed => Outcome::Failed,
        Settled::Released | Settled::NotCommitted => Outcome::Released,
        Settled::Unknown => return refused(RejectionKind::StoreUnavailable.into(), answered),
        // Even if the handler failed: what becomes of the event is for the delivery to say that has the claim now.
        Settled::Lost => return refused(RejectionKind::ClaimLost.into(), answered),
    };
    let reply = match &failure {
        Some(failure) if failure.is_permanent() => Config::answer_permanent_failure(outcome.clone()),
        _ if outcome == Outcome::Released && response.status().is_success() => {
            Config::answer_released(failure.as_ref(), outcome.clone())
        }
        _ => pass_on(response, outcome.clone()),
    };
    (Ok(reply), outcome, answered)
}

/// Runs the inner service for one delivery, and keeps its output.
struct Handling<S, T> {
    delivery: Box<Delivery<S>>,
    output: Option<T>,
}

impl<S, R> Work for Handling<S, Result<Response<R>, S::Error>>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Send + Clone,
    S::Future: Send,
    S::Error: Send,
    R: Send,
{
    async fn ready(&mut self) -> Result<(), NotReady> {
        let ready = poll_fn(|cx| self.delivery.inner.poll_ready(cx)).await;
        ready.map_err(|error| {
            self.output = Some(Err(error));
            NotReady
        })
    }

    fn unready(&mut self) {
        // A clone has reserved nothing, and dropping the original gives back what it had.
        self.delivery.inner = self.delivery.inner.clone();
    }

    // An `async fn` would keep `called` as long as the handler runs.
    fn run(&mut self, called: &AtomicBool) -> impl Future<Output = Verdict> {
        called.store(true, Ordering::Relaxed);
        async move {
            let request = self.delivery.take_request();
            let running = self.delivery.inner.call(request);
            let output = self.output.insert(running.await);
            match output {
                Ok(response) => verdict_of(&*self.delivery.report.config.completes, response),
                Err(_) => Verdict::Release(Some(RetryReason::new(SERVICE_FAILED))),
            }
        }
    }
}

impl<S> Delivery<S> {
    /// The request for the inner service: the head as it came, the signed bytes, and the event.
    fn take_request(&mut self) -> Request<Full<Bytes>> {
        let (nothing, ()) = Request::default().into_parts();
        let mut parts = std::mem::replace(&mut self.intake.parts, nothing);
        let mut signed = Bytes::new();
        if let Some(ArrivedEvent { body, claim, verified, .. }) = self.event.take() {
            let received_at = self.intake.received_at;
            let id_authenticated = self.report.config.id.is_authenticated_by(verified.coverage());
            signed = body.clone();
            let type_authenticated = self.report.config.event_type.is_authenticated_by(verified.coverage());
            let provenance = Provenance::Verified(verified);
            let facts = Facts { claim, body, provenance, received_at, id_authenticated, type_authenticated };
            parts.extensions.insert(WebhookEvent::new(facts));
        }
        Request::from_parts(parts, Full::new(signed))
    }
}

/// Reports the outcome of a delivery to telemetry, once. If it is dropped before it was sent, the sender disconnected
/// before the handler finished.
struct OutcomeReport {
    sent: bool,
    config: Arc<Config>,
    about: Option<(Arc<ClaimState>, Arc<Prepared>)>,
}

impl OutcomeReport {
    fn new(config: Arc<Config>) -> Self {
        Self { sent: false, config, about: None }
    }

    /// Reports how the delivery ended.
    fn send(&mut self, outcome: &Outcome, answered: &Answered) {
        self.sent = true;
        let is_unverified = *outcome == Outcome::Abandoned && self.about.is_none();
        if !telemetry::tells_refusals() && !telemetry::audits(is_unverified) {
            return;
        }
        let refused = outcome.rejection().and_then(|rejection| Some((rejection, self.count(rejection)?)));
        let about = Delivered { scheme: Some(self.config.scheme.name()), is_unverified, ..self.about(answered) };
        if let Some((rejection, count)) = refused {
            telemetry::refused(rejection, &about, count);
        }
        let late_after = self.about.as_ref().and_then(|(claim, _)| claim.late_after());
        if let (Some(took), Some(waits)) = (late_after, self.config.terms.sender_timeout) {
            self.config.advice.answered_late(took, waits, &about, self.config.clock.monotonic());
        }
        telemetry::delivered(outcome, &about);
    }

    /// Counts a refusal of an event that is known.
    fn count(&self, rejection: &Rejection) -> Option<u64> {
        let (claim, _) = self.about.as_ref()?;
        self.config.count_refusal(claim.key.endpoint(), rejection.kind())
    }

    fn about<'a>(&'a self, answered: &'a Answered) -> Delivered<'a> {
        let Some((claim, secret)) = &self.about else {
            return Delivered { endpoint: self.config.endpoint.given(), ..Delivered::UNKNOWN };
        };
        Delivered {
            event_type: claim.event_type.as_deref(),
            secret_label: Some(&secret.label),
            attempt: claim.attempt(),
            status: answered.status.map(|status| status.as_u16()),
            reason: answered.reason.as_deref(),
            body_changed: claim.is_body_changed(),
            ..Delivered::of(&claim.key)
        }
    }
}

impl Drop for OutcomeReport {
    fn drop(&mut self) {
        if !self.sent {
            let cancelled = self.about.as_ref().is_some_and(|(claim, _)| claim.has_held());
            self.send(if cancelled { &Outcome::Cancelled } else { &Outcome::Abandoned }, &Answered::default());
        }
    }
}
