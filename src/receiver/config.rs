use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};

use super::advice::Advice;
use super::endpoint::EndpointName;
use super::explainer::{Explainer, RefusedDelivery};
use crate::EventKey;
use crate::clock::{Clock, LONGEST, SystemClock};
use crate::identity::{Coverage, IdSource, TypeSource};
use crate::inbox::Inbox;
use crate::inbox::stored_head::StoredFacts;
use crate::machine::{CompletesFn, InlineLedger, Ledger, Machine, NoIdLedger, Terms};
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::{Scheme, Tolerance, Verified};
use crate::store::Store;
use crate::throttle::Throttles;

pub(super) const DEFAULT_BODY_LIMIT: usize = 1024 * 1024;

pub(super) type AnswerRefusal = dyn Fn(&Rejection, StatusCode) -> Response<Bytes> + Send + Sync;
pub(super) type AnswerDuplicate = dyn Fn(&EventKey) -> Response<Bytes> + Send + Sync;

/// Everything that a [`WebhookLayer`](super::WebhookLayer) was told, and the machine behind it: one allocation for a
/// delivery to share.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) scheme: Arc<dyn Scheme>,
    pub(super) id: IdSource,
    pub(super) event_type: TypeSource,
    pub(super) endpoint: EndpointName,
    /// How often the operator is told of each kind of refusal: a forger must not be able to flood the log.
    pub(super) refusals: Arc<Throttles<RejectionKind>>,
    /// Diagnoses refused deliveries, if that is wanted.
    pub(super) explainer: Option<Arc<Explainer>>,
    pub(super) advice: Arc<Advice>,
    pub(super) url_is_signed: bool,
    pub(super) methods: Arc<[Method]>,
    pub(super) allow: HeaderValue,
    pub(super) body_limit: usize,
    pub(super) body_deadline: Duration,
    pub(super) retry_after: HeaderValue,
    pub(super) retry_window: Option<Duration>,
    pub(super) replay_window: Option<Duration>,
    pub(super) unsigned_status: StatusCode,
    pub(super) forged_status: StatusCode,
    pub(super) replay_guard: Option<Duration>,
    pub(super) terms: Terms,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) completes: Arc<CompletesFn>,
    pub(super) refusal: Option<Arc<AnswerRefusal>>,
    pub(super) duplicate: Option<Arc<AnswerDuplicate>>,
    pub(super) machine: Arc<Machine>,
    /// Where deliveries that run inline keep their claims.
    pub(super) inline: Arc<dyn Ledger>,
    pub(super) no_id: Arc<dyn Ledger>,
    /// How deliveries are stored for a worker, if they do not run inline.
    pub(super) inbox: Option<Inbox>,
}

impl Config {
    pub(super) fn new(scheme: Arc<dyn Scheme>, store: Arc<dyn Store>) -> Self {
        let profile = scheme.profile();
        let mut terms = Terms::default();
        if let Some(timeout) = profile.sender_timeout {
            terms.wait = terms.wait.min(timeout / 2);
            terms.ready_wait = terms.ready_wait.min(timeout / 2);
            terms.sender_timeout = Some(timeout);
        }
        // Remembered for at least as long as it is accepted, or it could be replayed.
        let replay_window = profile.tolerance.and_then(Tolerance::window);
        terms.retention = terms.retention.max(replay_window.unwrap_or_default()).min(LONGEST);
        Self {
            scheme,
            id: profile.id,
            event_type: profile.event_type,
            endpoint: EndpointName::default(),
            refusals: Arc::default(),
            explainer: None,
            advice: Arc::default(),
            url_is_signed: profile.signs_url,
            methods: Arc::new([Method::POST]),
            allow: HeaderValue::from_static("POST"),
            body_limit: profile.body_limit.unwrap_or(DEFAULT_BODY_LIMIT),
            body_deadline: Duration::from_secs(10),
            retry_after: HeaderValue::from_static("5"),
            retry_window: profile.retry_window,
            replay_window,
            unsigned_status: profile.unsigned_status,
            forged_status: profile.forged_status,
            replay_guard: None,
            terms,
            clock: Arc::new(SystemClock),
            completes: Arc::new(|status| status.is_success()),
            refusal: None,
            duplicate: None,
            machine: Arc::new(Machine::new(store.clone())),
            inline: Arc::new(InlineLedger(store)),
            no_id: Arc::new(NoIdLedger),
            inbox: None,
        }
    }

    /// The facts of a verified delivery that its worker needs.
    pub(super) fn stored_facts(&self, verified: &Verified, deduplicated: bool) -> StoredFacts {
        StoredFacts {
            secret_label: verified.secret_label().into(),
            signed_at: verified.signed_at(),
            id_authenticated: self.id.is_authenticated_by(verified.coverage()),
            type_authenticated: self.event_type.is_authenticated_by(verified.coverage()),
            deduplicated,
            retention: self.terms.retention,
        }
    }

    /// Counts a refusal. Returns how many of its kind the operator is to be told of now, if it is time.
    pub(super) fn count_refusal(&self, endpoint: &str, kind: RejectionKind) -> Option<u64> {
        kind.is_of_the_request().then(|| self.refusals.count(endpoint, kind, self.clock.monotonic()))?
    }

    /// Diagnoses a refused delivery for the operator, if that is wanted.
    pub(super) fn explain(&self, refused: RefusedDelivery) {
        if let Some(explainer) = &self.explainer {
            explainer.explain(&self.scheme, &self.endpoint, &*self.clock, refused);
        }
    }

    /// For how long bodies are bound to their ids. A signed id binds itself.
    pub(super) fn guard_window(&self, signed: Coverage) -> Option<Duration> {
        self.replay_guard.filter(|_| !self.id.is_authenticated_by(signed))
    }
}
