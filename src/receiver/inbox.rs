use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, StatusCode};
use tokio::time::Instant;

use super::config::Config;
use crate::EventKey;
use crate::head::Head;
use crate::machine::{ClaimState, Ended, ask, within};
use crate::queue::head::{self, StoredFacts};
use crate::queue::kept::Kept;
use crate::queue::{OrderSource, Queue, StoredRequest};
use crate::rejection::RejectionKind;
use crate::scheme::{Profile, Verified};

/// How long a look at how many events are waiting is good for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How a layer keeps events for later.
#[derive(Clone)]
pub(super) struct InboxOptions {
    pub(super) status: StatusCode,
    pub(super) order: Option<OrderSource>,
    pub(super) kept: Kept,
    pub(super) backlog: Option<Arc<Backlog>>,
    pub(super) queue: Arc<dyn Queue>,
}

impl InboxOptions {
    pub(super) fn new(queue: Arc<dyn Queue>, profile: &Profile) -> Self {
        Self { status: StatusCode::OK, order: None, kept: Kept::of(profile), backlog: None, queue }
    }
}

impl Config {
    /// The request of this delivery, as a worker needs it to run the event of this key.
    pub(super) fn stored_request(
        &self,
        options: &InboxOptions,
        (parts, head): (&Parts, &Head<'_>),
        verified: &Verified,
        (key, deduplicated): (&EventKey, bool),
        body: &bytes::Bytes,
    ) -> StoredRequest {
        let facts = StoredFacts {
            secret_label: verified.secret_label().into(),
            signed_at: verified.signed_at(),
            id_authenticated: self.id.is_authenticated_by(verified.coverage()),
            type_authenticated: self.event_type.is_authenticated_by(verified.coverage()),
            deduplicated,
            retention: self.terms.retention,
        };
        let target = options.kept.uri(&parts.uri);
        let keep = |name: &HeaderName| options.kept.keeps(name, self.id.reads(name) || self.event_type.reads(name));
        let request = StoredRequest::new(head::write(parts, &target, &keep, &facts), body.clone(), head.now());
        match options.order.as_ref().and_then(|source| source.order(key, head, body)) {
            Some(order) => request.ordered(order),
            None => request,
        }
    }

    /// Enqueues the event, unless too many events wait already.
    pub(super) async fn enqueue(&self, claim: &Arc<ClaimState>) -> Ended {
        self.machine.enqueue(&self.terms, claim, self.room(claim)).await
    }

    /// Refuses an event that there is no room for. One that the inbox knows adds nothing to it, and is answered as ever.
    async fn room(&self, claim: &ClaimState) -> Result<(), RejectionKind> {
        let Some((options, backlog)) =
            self.inbox.as_ref().and_then(|options| Some((options, options.backlog.as_ref()?)))
        else {
            return Ok(());
        };
        let (began, deadline) = (Instant::now(), self.terms.claim_deadline);
        match backlog.is_full(&*options.queue, deadline).await {
            Some(true) => {}
            Some(false) => return Ok(()),
            None => return Err(RejectionKind::StoreUnavailable),
        }
        let (request, left) = (claim.request(self.terms.lease), deadline.saturating_sub(began.elapsed()));
        match ask("peek", &claim.key, left, options.queue.peek(&request)).await {
            Some(Some(_)) => Ok(()),
            Some(None) => Err(RejectionKind::Backlogged),
            None => Err(RejectionKind::StoreUnavailable),
        }
    }
}

/// What is done when too many events are waiting. Looked at once a second, by one delivery for all.
pub(super) struct Backlog {
    limit: u64,
    looking: AtomicBool,
    seen: Mutex<Option<(Instant, bool)>>,
}

impl Backlog {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, looking: AtomicBool::new(false), seen: Mutex::new(None) }
    }

    /// Whether no more events may wait; `None` if the inbox did not answer in time.
    async fn is_full(&self, queue: &dyn Queue, deadline: Duration) -> Option<bool> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = seen.is_some_and(|(at, _)| at.elapsed() < LOOK_EVERY);
        if is_recent || self.looking.swap(true, Ordering::AcqRel) {
            return Some(seen.is_some_and(|(_, full)| full));
        }
        let _looking = Looking(&self.looking);
        let waiting = within(deadline, queue.waiting(self.limit)).await?;
        // An inbox that fails says so again when the event is put to it.
        let full = waiting.is_ok_and(|waiting| waiting >= self.limit);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), full));
        Some(full)
    }
}

/// Dropped with the delivery that looks, if its sender goes away.
struct Looking<'a>(&'a AtomicBool);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
