use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, StatusCode};
use tokio::time::Instant;

use super::config::Config;
use crate::EventKey;
use crate::claimant::Claimant;
use crate::head::Head;
use crate::inbox::head::{self, KeptFacts};
use crate::inbox::kept::Kept;
use crate::inbox::{AnyInbox, Inbox, OrderSource, Parcel};
use crate::machine::{Ended, ask, within};
use crate::rejection::RejectionKind;
use crate::scheme::{Profile, Verified};
use crate::store::erased::{Answer, ErasedStore};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Enlistment, Hold};

/// How long a look at how many events are waiting is good for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How a layer keeps events for later.
#[derive(Clone)]
pub(super) struct Keeping {
    pub(super) status: StatusCode,
    pub(super) order: Option<OrderSource>,
    pub(super) kept: Kept,
    pub(super) backlog: Option<Arc<Backlog>>,
    pub(super) inbox: AnyInbox,
}

impl Keeping {
    pub(super) fn new(inbox: AnyInbox, profile: &Profile) -> Self {
        Self { status: StatusCode::OK, order: None, kept: Kept::of(profile), backlog: None, inbox }
    }
}

impl Config {
    /// What a worker needs to run this delivery's event.
    pub(super) fn parcel(
        &self,
        keeping: &Keeping,
        parts: &Parts,
        head: &Head<'_>,
        verified: &Verified,
        (claimant, body): (&Claimant, &bytes::Bytes),
    ) -> Parcel {
        let facts = KeptFacts {
            secret_label: verified.secret_label().into(),
            signed_at: verified.signed_at(),
            id_authenticated: self.id.is_authenticated_by(verified.coverage()),
            type_authenticated: self.event_type.is_authenticated_by(verified.coverage()),
            deduplicated: claimant.is_deduplicated(),
            retention: self.terms.retention,
        };
        let target = keeping.kept.uri(&parts.uri);
        let keep = |name: &HeaderName| keeping.kept.keeps(name, self.id.reads(name) || self.event_type.reads(name));
        let parcel = Parcel::new(head::write(parts, &target, &keep, &facts), body.clone(), head.now());
        match keeping.order.as_ref().and_then(|source| source.order(&claimant.key, head, body)) {
            Some(order) => parcel.ordered(order),
            None => parcel,
        }
    }

    /// Keeps the event, unless there are too many waiting already.
    pub(super) async fn accept(&self, claimant: &Arc<Claimant>) -> Ended {
        self.machine.accept(&self.terms, claimant, self.room(claimant)).await
    }

    /// Refuses an event that there is no room for. One that the inbox knows adds nothing to it, and is answered as ever.
    async fn room(&self, claimant: &Claimant) -> Result<(), RejectionKind> {
        let Some((keeping, backlog)) =
            self.keeping.as_ref().and_then(|keeping| Some((keeping, keeping.backlog.as_ref()?)))
        else {
            return Ok(());
        };
        let (began, deadline) = (Instant::now(), self.terms.claim_deadline);
        match backlog.is_full(&keeping.inbox, deadline).await {
            Some(true) => {}
            Some(false) => return Ok(()),
            None => return Err(RejectionKind::StoreUnavailable),
        }
        let (claim, left) = (claimant.request(self.terms.lease), deadline.saturating_sub(began.elapsed()));
        match ask("peek", &claimant.key, left, keeping.inbox.peek(&claim)).await {
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
    async fn is_full(&self, inbox: &AnyInbox, deadline: Duration) -> Option<bool> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = seen.is_some_and(|(at, _)| at.elapsed() < LOOK_EVERY);
        if is_recent || self.looking.swap(true, Ordering::AcqRel) {
            return Some(seen.is_some_and(|(_, full)| full));
        }
        let _looking = Looking(&self.looking);
        let waiting = within(deadline, inbox.waiting(self.limit)).await?;
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

/// An inbox as the machine of a layer sees it: what is claimed with a parcel is accepted.
pub(super) struct Accepting(pub(super) AnyInbox);

impl ErasedStore for Accepting {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> Answer<'a, Claim> {
        match request.parcel {
            Some(parcel) => Box::pin(self.0.accept(request, parcel)),
            None => self.0.claim(request),
        }
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> Answer<'a, Hold> {
        self.0.renew(claim)
    }

    fn complete<'a>(&'a self, claim: &'a ClaimRequest<'a>, completion: &'a Completion<'a>) -> Answer<'a, Hold> {
        self.0.complete(claim, completion)
    }

    /// What may have been accepted is going to be run, and the sender's retry finds it: there is nothing to take back.
    fn release<'a>(&'a self, _: &'a EventKey, _: ClaimToken) -> Answer<'a, Hold> {
        Box::pin(std::future::ready(Ok(Hold::Held)))
    }

    fn enlistment(&self) -> Option<Enlistment> {
        None
    }
}
