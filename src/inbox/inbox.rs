use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, StatusCode};
use tokio::time::Instant;

use super::OrderSource;
use super::kept::Kept;
use super::stored_head::{self, StoredFacts, Targets};
use crate::EventKey;
use crate::error::{ConfigError, ConfigErrorKind, positive};
use crate::head::{Head, HeaderPattern};
use crate::lock::lock;
use crate::machine::{ClaimState, ask, within};
use crate::rejection::RejectionKind;
use crate::route;
use crate::scheme::Profile;
use crate::store::queue::{IntoQueue, Queue, StoredRequest};

/// How long a count of waiting events is reused.
const RECOUNT_AFTER: Duration = Duration::from_secs(1);

/// Where a layer stores verified events for a [`Worker`](crate::Worker), and how.
///
/// A queue alone is an inbox with the defaults:
///
/// ```
/// use tower_webhook::inbox::{Inbox, OrderSource};
/// use tower_webhook::{WebhookLayer, scheme, store::MemoryStore};
///
/// # fn main() -> Result<(), tower_webhook::ConfigError> {
/// let queue = MemoryStore::new();
/// let layer = WebhookLayer::inbox(scheme::github("a secret")?, queue.clone());
///
/// let inbox = Inbox::new(queue).order_by(OrderSource::json("data.customer")?).max_waiting_events(100_000)?;
/// let layer = WebhookLayer::inbox(scheme::stripe("whsec_…")?, inbox);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "an inbox does nothing until a layer gets it"]
pub struct Inbox {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) accepted_status: StatusCode,
    order: Option<OrderSource>,
    kept: Kept,
    backlog: Option<Arc<Backlog>>,
}

impl Inbox {
    /// An inbox that stores events in `queue`: any [`Queue`], or an `Arc<dyn Queue>` that was chosen at run time.
    pub fn new(queue: impl IntoQueue) -> Self {
        Self {
            queue: queue.into_queue(),
            accepted_status: StatusCode::OK,
            order: None,
            kept: Kept::default(),
            backlog: None,
        }
    }

    /// The status that tells the sender that its event was accepted (default 200).
    ///
    /// # Errors
    /// If the status is no success: the sender would deliver again and again.
    pub fn accepted_status(self, status: StatusCode) -> Result<Self, ConfigError> {
        if !status.is_success() {
            let message = format!("{status} is no success: the sender would deliver again what is accepted already");
            return Err(ConfigError::new(ConfigErrorKind::Limit, message));
        }
        Ok(Self { accepted_status: status, ..self })
    }

    /// Workers run the events of one resource one at a time, in the order of their arrival. By default events wait for
    /// no other.
    pub fn order_by(self, source: OrderSource) -> Self {
        Self { order: Some(source), ..self }
    }

    /// Stores more headers for the worker's request than [by default](crate::inbox#what-is-stored-of-a-request): by
    /// name (`x-forwarded-for`), or by how names begin (`x-acme-*`, or `*` for all).
    ///
    /// A name keeps any header, a signature or a credential too. A beginning does not: names that look like a
    /// credential's, the scheme's signatures, cookies and hop-by-hop headers are left out.
    ///
    /// # Errors
    /// If no header can have such a name.
    pub fn keep_headers<P: AsRef<str>>(mut self, headers: impl IntoIterator<Item = P>) -> Result<Self, ConfigError> {
        let headers = headers.into_iter().map(|text| HeaderPattern::new(text.as_ref()));
        let headers: Vec<HeaderPattern> = headers.collect::<Result<_, _>>()?;
        self.kept.choose_headers(headers);
        Ok(self)
    }

    /// Stores the values of these query parameters, although their names look like a credential's: by default
    /// `?project_key=a&page=2` is stored as `?project_key=&page=2`. The names are compared exactly, after their escapes
    /// are undone.
    pub fn keep_query_values<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.kept.choose_query(names.into_iter().map(Into::into));
        self
    }

    /// How many events may wait (default: any number). From then on deliveries get a 503 with `Retry-After`, so that
    /// workers that fell behind do not fill the disk; duplicates of accepted events are still answered. The layer
    /// counts once a second, so some more events may get in.
    ///
    /// # Errors
    /// If `events` is zero.
    pub fn max_waiting_events(self, events: u64) -> Result<Self, ConfigError> {
        positive(usize::try_from(events).unwrap_or(usize::MAX), "max_waiting_events")?;
        Ok(Self { backlog: Some(Arc::new(Backlog::new(events))), ..self })
    }

    /// The same inbox, which also keeps the headers that this sender's handlers need.
    pub(crate) fn for_sender(mut self, profile: &Profile) -> Self {
        self.kept.choose_sender(profile);
        self
    }

    /// The request of this delivery, as a worker needs it to run the event of this key. `identifies` says of a header
    /// that the event's id or type is read from it.
    pub(crate) fn stored_request(
        &self,
        (parts, head): (&Parts, &Head<'_>),
        body: &Bytes,
        key: &EventKey,
        facts: &StoredFacts,
        identifies: impl Fn(&HeaderName) -> bool,
    ) -> StoredRequest {
        let requested = route::requested_uri(parts);
        let original = (*requested != parts.uri).then(|| self.kept.uri(requested));
        let targets = Targets { here: self.kept.uri(&parts.uri), original };
        let keep = |name: &HeaderName| self.kept.keeps(name, identifies(name));
        let head_text = stored_head::write(parts, &targets, &keep, facts);
        let request = StoredRequest::new(head_text, body.clone(), head.now());
        match self.order.as_ref().and_then(|source| source.order(key, head, body)) {
            Some(order) => request.ordered(order),
            None => request,
        }
    }

    /// Refuses an event that there is no room for. An event that the queue knows already takes no room, and passes.
    pub(crate) async fn room(
        &self,
        claim: &ClaimState,
        lease: Duration,
        deadline: Duration,
    ) -> Result<(), RejectionKind> {
        let Some(backlog) = &self.backlog else { return Ok(()) };
        let began = Instant::now();
        match backlog.is_full(&*self.queue, deadline).await {
            Some(true) => {}
            Some(false) => return Ok(()),
            None => return Err(RejectionKind::StoreUnavailable),
        }
        let (request, left) = (claim.request(lease), deadline.saturating_sub(began.elapsed()));
        match ask("peek", &claim.key, left, self.queue.peek(&request)).await {
            Some(Some(_)) => Ok(()),
            Some(None) => Err(RejectionKind::Backlogged),
            None => Err(RejectionKind::StoreUnavailable),
        }
    }
}

/// An inbox for a layer: any [`Queue`], an `Arc<dyn Queue>` that was chosen at run time, or an [`Inbox`] with options.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a queue",
    label = "expected a store that keeps events for a worker, or an `Inbox` with options",
    note = "`MemoryStore`, `SqliteStore`, `RedisStore` and `PostgresStore` are queues; a `BreakerStore` is not"
)]
pub trait IntoInbox {
    /// The inbox.
    fn into_inbox(self) -> Inbox;
}

impl IntoInbox for Inbox {
    fn into_inbox(self) -> Inbox {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<Q: Queue> IntoInbox for Q {
    fn into_inbox(self) -> Inbox {
        Inbox::new(self)
    }
}

impl IntoInbox for Arc<dyn Queue> {
    fn into_inbox(self) -> Inbox {
        Inbox::new(self)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("accepted_status", &self.accepted_status)
            .field("order", &self.order)
            .field("max_waiting_events", &self.backlog.as_ref().map(|backlog| backlog.limit))
            .finish_non_exhaustive()
    }
}

/// Whether too many events wait. One delivery a second counts them, for all others.
struct Backlog {
    limit: u64,
    counting: AtomicBool,
    counted: Mutex<Option<(Instant, bool)>>,
}

impl Backlog {
    fn new(limit: u64) -> Self {
        Self { limit, counting: AtomicBool::new(false), counted: Mutex::new(None) }
    }

    /// Whether no more events may wait; `None` if the queue did not answer in time.
    async fn is_full(&self, queue: &dyn Queue, deadline: Duration) -> Option<bool> {
        let counted = *lock(&self.counted);
        let is_recent = counted.is_some_and(|(at, _)| at.elapsed() < RECOUNT_AFTER);
        if is_recent || self.counting.swap(true, Ordering::AcqRel) {
            return Some(counted.is_some_and(|(_, full)| full));
        }
        let _counting = Counting(&self.counting);
        let waiting = within(deadline, queue.waiting(self.limit)).await?;
        // A queue that fails to count fails to accept the event, too, and that is what the sender is told.
        let full = waiting.is_ok_and(|waiting| waiting >= self.limit);
        *lock(&self.counted) = Some((Instant::now(), full));
        Some(full)
    }
}

/// Dropped with the delivery that counts, if its sender hangs up.
struct Counting<'a>(&'a AtomicBool);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
