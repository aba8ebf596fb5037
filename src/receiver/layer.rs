use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use tower_layer::Layer;

use super::config::Config;
use super::explainer::Explainer;
use super::service::WebhookService;
use crate::clock::{Clock, LONGEST, countable};
use crate::error::{ConfigError, ConfigErrorKind, positive};
use crate::handler::{EventService, PermanentFailure};
use crate::identity::{IdSource, TypeSource};
use crate::inbox::IntoInbox;
use crate::key::is_name;
use crate::machine::{BodyChange, DrainHandle, FailureHook};
use crate::rejection::Rejection;
use crate::scheme::{Scheme, Suspects};
use crate::store::IntoStore;
use crate::{EventKey, telemetry};

/// Makes a route a webhook receiver: verified, deduplicated, claimed and settled.
///
/// With the feature `tracing`, the layer warns the operator, at most once a minute for each endpoint:
/// - of a handler that takes longer than the sender waits for an answer, where the scheme knows that time
///   ([`Profile::sender_timeout`](crate::scheme::Profile#structfield.sender_timeout)). A handler that never awaits is not
///   measured;
/// - of one body that came under two ids within some minutes, where ids are not part of the body: the URL may be
///   registered twice at the provider. It is a hint that looks at what this process got last.
///
/// Cheap to clone. Clones, and all services made by them, share one store, one set of limits and one drain.
///
/// ```
/// use axum::{Router, routing::post};
/// use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, scheme, store::MemoryStore};
///
/// async fn on_event(event: WebhookEvent) -> Result<(), HandlerError> {
///     println!("{}: {:?}", event.id(), event.event_type());
///     Ok(())
/// }
///
/// let layer = WebhookLayer::new(scheme::stripe("whsec_…")?, MemoryStore::new());
/// let app: Router = Router::new().route("/webhooks/stripe", post(on_event).layer(layer));
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
///
/// Around a whole `Router` it verifies the requests of all its routes. Where others are needed beside them, give the
/// webhooks a `Router` of their own, and [merge](https://docs.rs/axum/latest/axum/struct.Router.html#method.merge) it.
#[derive(Clone)]
pub struct WebhookLayer {
    config: Arc<Config>,
    advised: Arc<Once>,
}

impl WebhookLayer {
    /// Verifies with `scheme` and remembers in `store`.
    pub fn new(scheme: impl Scheme, store: impl IntoStore) -> Self {
        Self { config: Arc::new(Config::new(Arc::new(scheme), store.into_store())), advised: Arc::new(Once::new()) }
    }

    /// Verifies with `scheme` and stores events in `inbox`, for a [`Worker`](crate::Worker) to run: the sender is
    /// answered as soon as they are there. The layer does not call the inner service; the worker gets its own. See
    /// [`inbox`](crate::inbox).
    ///
    /// `inbox` is a [`Queue`](crate::queue::Queue), an `Arc<dyn Queue>`, or an [`Inbox`](crate::inbox::Inbox) with options.
    pub fn inbox(scheme: impl Scheme, inbox: impl IntoInbox) -> Self {
        let inbox = inbox.into_inbox();
        let config = Config::new(Arc::new(scheme), inbox.queue.clone());
        let inbox = inbox.for_sender(&config.scheme.profile());
        Self { config: Arc::new(Config { inbox: Some(inbox), ..config }), advised: Arc::new(Once::new()) }
    }

    /// Names this endpoint in the keys of its events.
    ///
    /// By default that is the route's template (axum's `MatchedPath`), or the scheme's name where no router says: under
    /// `nest_service` and outside of axum. Two endpoints on one store need two names, or the second would take the first
    /// one's events for duplicates; the layer logs a warning when it notices that a second one has the scheme's
    /// name. The name must
    /// outlive a renamed route, or events of yesterday run again today.
    ///
    /// # Errors
    /// If the name is empty, longer than 255 bytes, or has control characters.
    pub fn endpoint(self, name: impl Into<Arc<str>>) -> Result<Self, ConfigError> {
        let name = name.into();
        if !is_name(&name) {
            let message = "an endpoint's name has 1 to 255 bytes, and no control characters";
            return Err(ConfigError::new(ConfigErrorKind::Name, message));
        }
        Ok(self.with(|config| config.endpoint.give(name)))
    }

    /// Takes ids from another place than the scheme does.
    #[must_use]
    pub fn id_source(self, source: IdSource) -> Self {
        self.with(|config| config.id = source)
    }

    /// Takes types from another place than the scheme does.
    #[must_use]
    pub fn type_source(self, source: TypeSource) -> Self {
        self.with(|config| config.event_type = source)
    }

    /// The methods that carry events (default `POST`); others get 405.
    ///
    /// # Errors
    /// If `methods` is empty.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Result<Self, ConfigError> {
        let methods: Arc<[Method]> = methods.into_iter().collect();
        let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
        let allow = HeaderValue::try_from(names.join(", ")).ok().filter(|_| !methods.is_empty());
        let allow =
            allow.ok_or_else(|| ConfigError::new(ConfigErrorKind::Limit, "no method is left to receive with"))?;
        Ok(self.with(|config| {
            config.methods = methods;
            config.allow = allow;
        }))
    }

    /// The largest body (default 1 MiB, or what the scheme's sender needs); larger ones get 413 as soon as it shows.
    ///
    /// # Errors
    /// If it is zero.
    pub fn body_limit(self, bytes: usize) -> Result<Self, ConfigError> {
        positive(bytes, "the body limit")?;
        Ok(self.with(|config| config.body_limit = bytes))
    }

    /// How long a body may take to arrive (default 10 s); slower ones get 408.
    ///
    /// # Errors
    /// If it is zero or longer than ten years.
    pub fn body_deadline(self, time: Duration) -> Result<Self, ConfigError> {
        let time = countable(time, "the body deadline")?;
        Ok(self.with(|config| config.body_deadline = time))
    }

    /// How long a claim holds without being renewed (default 30 s). A crashed process keeps its events for that long.
    ///
    /// # Errors
    /// If it is zero or longer than ten years.
    pub fn lease(self, lease: Duration) -> Result<Self, ConfigError> {
        let lease = countable(lease, "the lease")?;
        Ok(self.with(|config| config.terms.lease = lease))
    }

    /// How long completed events are remembered (default 7 days). If it is shorter than the
    /// sender's retry window, the layer logs a warning (feature `tracing`).
    ///
    /// # Errors
    /// If it is zero or longer than ten years, or shorter than a signed delivery is accepted (twice the tolerance): it
    /// could then be replayed.
    pub fn retention(self, retention: Duration) -> Result<Self, ConfigError> {
        let retention = countable(retention, "the retention")?;
        if let Some(window) = self.config.replay_window.filter(|window| retention < *window) {
            let message = format!(
                "the retention must be at least {window:?}, as long as one signature is accepted: a \
                captured delivery could be replayed; raise it, or lower the tolerance"
            );
            return Err(ConfigError::new(ConfigErrorKind::Duration, message));
        }
        Ok(self.with(|config| config.terms.retention = retention))
    }

    /// Refuses a body that was delivered before under another id, for `window` after its first delivery. Off by
    /// default, and without effect where the id is [authenticated](IdSource::is_authenticated) or where the event has
    /// none.
    ///
    /// An id in an unsigned header recognises the sender's retries, but whoever captured a delivery can change it, and
    /// the signature of many senders never expires. With the guard the store also remembers a SHA-256 of the body, and
    /// of the event's type where that is [part of the id](IdSource::with_type), bound to the id that they first came
    /// under. The same under another id gets the uniform 401 ([`Replayed`](crate::rejection::RejectionKind::Replayed));
    /// under the same id it goes on as usual, so the sender's retries run. After the window, a captured delivery passes
    /// again.
    ///
    /// It costs:
    /// - a second record per event in the store, and two more round trips to it on an event's first delivery, one on
    ///   others;
    /// - a sender's "redeliver" button, if that makes a new id: refused within the window;
    /// - the retries of a sender that gives each of them a new id: refused within the window, even if the first one
    ///   failed;
    /// - the second of two events with the same bytes: refused within the window, though genuine;
    /// - an event whose first copy came from somebody else: the id that they chose is the one that passes from then on.
    ///
    /// It does not stop everything. Where the type is part of the id and comes from an unsigned header, it can be
    /// changed as well, and the delivery then passes as one of that other type. And where the chain of ids ends in
    /// [`IdSource::none`], whoever leaves the unsigned id out is not asked for one.
    ///
    /// # Errors
    /// If it is zero or longer than ten years.
    pub fn replay_guard(self, window: Duration) -> Result<Self, ConfigError> {
        let window = countable(window, "the replay guard's window")?;
        Ok(self.with(|config| config.replay_guard = Some(window)))
    }

    /// How long a duplicate waits for the first delivery's outcome (default 5 s, or half of the sender's timeout if
    /// that is less) before it gets a 503. Zero does not wait.
    #[must_use]
    pub fn in_flight_wait(self, wait: Duration) -> Self {
        self.with(|config| config.terms.wait = wait.min(LONGEST))
    }

    /// How long a delivery waits for the inner service to become ready (default 5 s, or half of the sender's timeout if
    /// that is less) before it gets a 503.
    #[must_use]
    pub fn ready_wait(self, wait: Duration) -> Self {
        self.with(|config| config.terms.ready_wait = wait.min(LONGEST))
    }

    /// How long the store may take to answer (default 2 s) before the sender gets a 503.
    ///
    /// # Errors
    /// If it is zero or longer than ten years.
    pub fn claim_deadline(self, time: Duration) -> Result<Self, ConfigError> {
        let time = countable(time, "the claim deadline")?;
        Ok(self.with(|config| config.terms.claim_deadline = time))
    }

    /// How many deliveries may run at once, those whose sender has hung up included (default 1,024); more get a 503.
    /// As many duplicates may wait beside them, of all events together.
    ///
    /// # Errors
    /// If it is zero.
    pub fn max_running(self, deliveries: usize) -> Result<Self, ConfigError> {
        positive(deliveries, "max_running")?;
        Ok(self.with(|config| config.terms.max_running = deliveries))
    }

    /// How many duplicates of one event may wait at once (default 64); more get a 503 at once. The duplicates of all
    /// events together are limited by [`max_running`](Self::max_running).
    #[must_use]
    pub fn max_waiting_per_event(self, duplicates: usize) -> Self {
        self.with(|config| config.terms.max_waiting_per_key = duplicates)
    }

    /// The value of `Retry-After` on a 503 (default 5 s).
    #[must_use]
    pub fn retry_after(self, time: Duration) -> Self {
        self.with(|config| config.retry_after = HeaderValue::from(time.as_secs()))
    }

    /// Which of the handler's statuses complete an event; all others release it (default: 2xx completes). A
    /// [`Failure`](crate::handler::Failure) in the response's extensions takes precedence. With an inbox, the
    /// [worker's](crate::Worker::complete_when) `complete_when` applies instead.
    #[must_use]
    pub fn complete_when(self, completes: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.with(|config| config.completes = Arc::new(completes))
    }

    /// Answers duplicates of completed events with another response than an empty 200. A status that is no success
    /// makes the sender retry.
    #[must_use]
    pub fn answer_duplicates(self, answer: impl Fn(&EventKey) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        self.with(|config| config.duplicate = Some(Arc::new(answer)))
    }

    /// Answers refusals with another response. The closure also gets the status that the sender would get. An answer
    /// that depends on the rejection tells the sender which check failed: answer every failed verification alike.
    /// `Retry-After` and `Allow` are added where they belong.
    #[must_use]
    pub fn answer_refusals<A>(self, answer: A) -> Self
    where
        A: Fn(&Rejection, StatusCode) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.with(|config| config.refusal = Some(Arc::new(answer)))
    }

    /// Logs why deliveries fail verification: [`scheme::diagnose`](fn@crate::scheme::diagnose) tries the usual accidents,
    /// and what it finds is a WARN of the target `tower_webhook`, with what to do about it. Off by default. Needs the
    /// feature `tracing`.
    ///
    /// `suspects` are secrets to try beside those of the scheme: the same texts again, to find white space or a prefix
    /// that does not belong there, and those of other modes and endpoints, to find that they were swapped. They stay in
    /// memory. Without any, pass [`Suspects::none`].
    ///
    /// Anyone can send deliveries that are refused, so the work is bounded: one diagnosis runs at a time, at most one per
    /// minute and endpoint, outside of the threads that serve requests, and a large body is not tried in every form. It
    /// begins after the answer is made. The sender learns nothing of it. A forger who never stops can take the minute's
    /// diagnosis from the deliveries that you want explained: capture one of them then, and give it to
    /// [`scheme::diagnose`](fn@crate::scheme::diagnose).
    ///
    /// A timestamp outside of the tolerance is usually refused before the body is read. The diagnosis then cannot say
    /// whether the signature is right.
    ///
    /// ```
    /// use tower_webhook::scheme::{self, Suspect};
    /// use tower_webhook::{WebhookLayer, store::MemoryStore};
    ///
    /// let (live, test) = ("whsec_live", "whsec_test");
    /// let layer = WebhookLayer::new(scheme::stripe(live)?, MemoryStore::new())
    ///     .explain_refusals([Suspect::new(live).label("live"), Suspect::new(test).label("test")]);
    /// # Ok::<(), tower_webhook::ConfigError>(())
    /// ```
    #[must_use]
    pub fn explain_refusals(self, suspects: impl Into<Suspects>) -> Self {
        let explainer = Arc::new(Explainer::new(suspects.into()));
        self.with(|config| config.explainer = Some(explainer))
    }

    /// Calls `hook` once for every event whose handler said that no retry would help
    /// ([`HandlerError::permanent`](crate::HandlerError::permanent)), for alerting: after the store has confirmed that
    /// the event is remembered as failed, however long that takes, and also if the sender has hung up. The hook must not
    /// block. If it panics, the delivery goes on.
    ///
    /// With an inbox, the [worker's](crate::Worker::on_permanent) `on_permanent` applies instead.
    #[must_use]
    pub fn on_permanent(self, hook: impl Fn(&PermanentFailure<'_>) + Send + Sync + 'static) -> Self {
        self.with(|config| config.terms.on_permanent = Some(FailureHook::new(hook)))
    }

    /// The status that failed verifications get (default 401, or what the scheme's sender wants). Without a signature
    /// or with a wrong one, it is the same.
    #[must_use]
    pub fn refusal_status(self, status: StatusCode) -> Self {
        self.with(|config| {
            config.unsigned_status = status;
            config.forged_status = status;
        })
    }

    /// Refuses an id that comes again with another body, with 409. By default the layer logs the change and
    /// answers as for a duplicate, because senders may re-serialise a retry.
    #[must_use]
    pub fn refuse_changed_bodies(self) -> Self {
        self.with(|config| config.terms.body_change = BodyChange::Refuse)
    }

    /// Drops the handler when the sender hangs up or an outer timeout fires, and releases its claim. By default it runs
    /// on to its end, so that the retry finds the work done.
    #[must_use]
    pub fn cancel_on_disconnect(self) -> Self {
        self.with(|config| config.terms.detach = false)
    }

    /// Drops the handler as soon as its claim is known to be lost. By default it runs on, and
    /// [`is_held`](crate::WebhookEvent::is_held) tells it. Behind an inbox it is the
    /// [worker's](crate::Worker::cancel_on_lost_claim) that counts.
    #[must_use]
    pub fn cancel_on_lost_claim(self) -> Self {
        self.with(|config| config.terms.drop_when_lost = true)
    }

    /// Takes the time from another clock, for tests.
    #[must_use]
    pub fn clock(self, clock: impl Clock) -> Self {
        self.with(|config| config.clock = Arc::new(clock))
    }

    /// Ends the running deliveries before the process exits.
    #[must_use]
    pub fn drain_handle(&self) -> DrainHandle {
        self.config.machine.drain_handle()
    }

    fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self.advised = Arc::new(Once::new());
        self
    }

    fn warn_of_short_retention(&self) {
        let Config { terms, retry_window, .. } = &*self.config;
        if let Some(window) = retry_window.filter(|window| terms.retention < *window) {
            telemetry::retention_too_short(terms.retention, window);
        }
    }
}

impl<S: EventService> Layer<S> for WebhookLayer {
    type Service = WebhookService<S>;

    fn layer(&self, inner: S) -> WebhookService<S> {
        // Here, because only now the configuration is complete.
        self.advised.call_once(|| self.warn_of_short_retention());
        WebhookService::new(inner, self.config.clone())
    }
}

impl fmt::Debug for WebhookLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookLayer")
            .field("scheme", &self.config.scheme.name())
            .field("endpoint", &self.config.endpoint.given())
            .field("id", &self.config.id)
            .field("terms", &self.config.terms)
            .finish_non_exhaustive()
    }
}
