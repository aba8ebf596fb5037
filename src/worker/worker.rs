use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::attempt::{AttemptTimeouts, Options, WorkerContext};
use super::bulkheads::{Bulkheads, Limits};
use super::hooks::Hooks;
use super::poller::Poller;
use super::{AttemptReport, DeadLetter, RetryPolicy};
use crate::clock::countable;
use crate::error::{ConfigError, positive};
use crate::handler::EventService;
use crate::machine::{Drained, Machine, Terms, WorkerLedger};
use crate::store::queue::{IntoQueue, Queue};

/// Runs the events of a queue with a service: the `Router`, or any tower service, with the handlers. The service may be
/// the one that has the layer around it, since the layer lets a worker's requests pass. If that is not a `Router`,
/// which is always ready, the time until it is ready counts as the handler's.
///
/// Any number of workers, in any number of processes, share a queue: one of them leases each event and renews its lease
/// while it runs, and another takes the event over if the worker dies. See the [module](super) for an example.
///
/// ```no_run
/// use std::time::Duration;
/// use axum::{Router, routing::post};
/// use tower_webhook::worker::RetryPolicy;
/// use tower_webhook::{HandlerError, WebhookEvent, Worker, store::MemoryStore};
///
/// async fn on_event(event: WebhookEvent) -> Result<(), HandlerError> {
///     println!("{}, attempt {:?}", event.id(), event.attempt());
///     Ok(())
/// }
///
/// # async fn work(queue: MemoryStore) -> Result<(), tower_webhook::ConfigError> {
/// let handlers = Router::new().route("/webhooks/stripe", post(on_event));
/// let worker = Worker::new(queue, handlers)
///     .concurrency(32)?
///     .concurrency_per_type(8)?
///     .retries(RetryPolicy::new().max_attempts(10))
///     .attempt_timeout(Duration::from_secs(60))?
///     .on_dead_letter(|letter| eprintln!("{} was given up: {}", letter.key.id(), letter.reason));
///
/// let drained = worker.run(async { tokio::signal::ctrl_c().await.expect("a signal handler") }).await;
/// println!("{} events were put back", drained.dropped);
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until it is run"]
#[derive(Clone)]
pub struct Worker<S> {
    queue: Arc<dyn Queue>,
    service: S,
    options: Options,
}

impl<S: EventService> Worker<S> {
    /// A worker for all events of `queue`.
    pub fn new(queue: impl IntoQueue, service: S) -> Self {
        let options = Options {
            terms: Terms { ready_wait: Duration::from_secs(60), settle_in_place: true, ..Terms::default() },
            retries: RetryPolicy::new(),
            hooks: Hooks::default(),
            completes: Arc::new(|status| status.is_success()),
            limits: Limits { in_all: 64, per_endpoint: None, per_type: None },
            endpoints: Box::default(),
            batch: usize::MAX,
            poll: Duration::from_secs(1),
            grace: Duration::from_secs(30),
            outer_router: false,
            timeouts: AttemptTimeouts { each: Duration::from_secs(600), by_type: HashMap::new() },
        };
        Self { queue: queue.into_queue(), service, options }
    }

    /// How many events run at once (default 64).
    ///
    /// # Errors
    /// If it is zero.
    pub fn concurrency(mut self, events: usize) -> Result<Self, ConfigError> {
        positive(events, "the worker's concurrency")?;
        self.options.limits.in_all = events;
        Ok(self)
    }

    /// How many events the worker leases at once, at most (default: as many as there is room for).
    ///
    /// # Errors
    /// If it is zero.
    pub fn batch(mut self, events: usize) -> Result<Self, ConfigError> {
        positive(events, "the batch")?;
        self.options.batch = events;
        Ok(self)
    }

    /// How many events of one type run at once, so that a slow type leaves room for the others. Events without a type
    /// are not counted. Default: any number.
    ///
    /// # Errors
    /// If it is zero.
    pub fn concurrency_per_type(mut self, events: usize) -> Result<Self, ConfigError> {
        positive(events, "the concurrency per type")?;
        self.options.limits.per_type = Some(events);
        Ok(self)
    }

    /// How many events of one endpoint run at once, so that a slow endpoint leaves room for the others. Default: any
    /// number.
    ///
    /// # Errors
    /// If it is zero.
    pub fn concurrency_per_endpoint(mut self, events: usize) -> Result<Self, ConfigError> {
        positive(events, "the concurrency per endpoint")?;
        self.options.limits.per_endpoint = Some(events);
        Ok(self)
    }

    /// Leases events of these endpoints only, where several applications share a queue: an event that the service has
    /// no route for would fail until it is dead.
    pub fn endpoints<E: Into<Box<str>>>(mut self, endpoints: impl IntoIterator<Item = E>) -> Self {
        self.options.endpoints = endpoints.into_iter().map(Into::into).collect();
        self
    }

    /// The service is the outermost router, and the layer is on a router that is nested in it: requests get the URI
    /// that the sender requested. By default they get the URI that the layer saw, without the prefix of
    /// [`Router::nest`](https://docs.rs/axum/latest/axum/struct.Router.html#method.nest), as the nested router needs
    /// it.
    ///
    /// The `OriginalUri` of axum is what the sender requested either way.
    pub fn outer_router(mut self) -> Self {
        self.options.outer_router = true;
        self
    }

    /// When the worker tries failed events again, and when it gives them up.
    pub fn retries(mut self, policy: RetryPolicy) -> Self {
        self.options.retries = policy;
        self
    }

    /// How long a lease holds without being renewed (default 30 s). After a crash, another worker runs the event once
    /// the lease has ended.
    ///
    /// # Errors
    /// If it is zero or longer than ten years.
    pub fn lease(mut self, lease: Duration) -> Result<Self, ConfigError> {
        self.options.terms.lease = countable(lease, "the lease")?;
        Ok(self)
    }

    /// How often an idle worker leases without being woken (default 1 s): a retry is late by this at most, and so is an
    /// event whose wake-up was lost.
    ///
    /// # Errors
    /// If it is zero or longer than ten years.
    pub fn poll_every(mut self, time: Duration) -> Result<Self, ConfigError> {
        self.options.poll = countable(time, "the poll interval")?;
        Ok(self)
    }

    /// How long the queue may take to answer (default 2 s).
    ///
    /// # Errors
    /// If it is zero or longer than ten years.
    pub fn claim_deadline(mut self, time: Duration) -> Result<Self, ConfigError> {
        self.options.terms.claim_deadline = countable(time, "the claim deadline")?;
        Ok(self)
    }

    /// How long running events have to end after the shutdown (default 30 s). The worker then drops and releases the
    /// others.
    pub fn grace(mut self, time: Duration) -> Self {
        self.options.grace = time;
        self
    }

    /// How long the handler may run in one attempt (default 10 minutes). The worker then drops it, and the attempt has
    /// failed: the event is tried again, or becomes a dead letter.
    ///
    /// A handler that blocks its thread cannot be dropped. [`run`](Self::run) reports it once it has run for
    /// twice as long, if the runtime has another thread.
    ///
    /// # Errors
    /// If it is zero or longer than ten years.
    pub fn attempt_timeout(mut self, time: Duration) -> Result<Self, ConfigError> {
        self.options.timeouts.each = countable(time, "the attempt timeout")?;
        Ok(self)
    }

    /// How long the handler of events of this type may run, in place of [`attempt_timeout`](Self::attempt_timeout).
    ///
    /// # Errors
    /// If it is zero or longer than ten years.
    pub fn attempt_timeout_of_type(
        mut self,
        event_type: impl Into<Box<str>>,
        time: Duration,
    ) -> Result<Self, ConfigError> {
        self.options.timeouts.by_type.insert(event_type.into(), countable(time, "the attempt timeout")?);
        Ok(self)
    }

    /// Which statuses complete an event; all others are failures (default: 2xx completes). A
    /// [`Failure`](crate::handler::Failure) in the response's extensions takes precedence.
    pub fn complete_when(mut self, completes: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.options.completes = Arc::new(completes);
        self
    }

    /// Drops the handler as soon as its lease is known to be lost. By default it runs on, and
    /// [`is_held`](crate::WebhookEvent::is_held) tells it.
    pub fn cancel_on_lost_claim(mut self) -> Self {
        self.options.terms.drop_when_lost = true;
        self
    }

    /// Calls `hook` for every attempt that has ended, for metrics: once the queue has confirmed how, or could not be asked
    /// ([`AttemptOutcome::Unknown`](super::AttemptOutcome::Unknown)). It comes before the other hooks. The hook must
    /// not block. If it panics, the others are called all the same.
    ///
    /// ```
    /// use tower_webhook::{Worker, store::MemoryStore};
    ///
    /// # let handlers = axum::Router::<()>::new();
    /// let worker = Worker::new(MemoryStore::new(), handlers).on_attempt(|attempt| {
    ///     println!("{} attempt {}: {}, {:?}", attempt.key, attempt.attempt, attempt.outcome, attempt.took);
    /// });
    /// ```
    pub fn on_attempt(mut self, hook: impl Fn(&AttemptReport<'_>) + Send + Sync + 'static) -> Self {
        self.options.hooks.on_attempt = Some(Arc::new(hook));
        self
    }

    /// Calls `hook` for every event that becomes a dead letter, for alerting. The hook must not block.
    pub fn on_dead_letter(mut self, hook: impl Fn(&DeadLetter<'_>) + Send + Sync + 'static) -> Self {
        self.options.hooks.on_dead_letter = Some(Arc::new(hook));
        self
    }

    /// Calls `hook`, before [`on_dead_letter`](Self::on_dead_letter), for dead letters whose handler said that no retry
    /// would help.
    pub fn on_permanent(mut self, hook: impl Fn(&DeadLetter<'_>) + Send + Sync + 'static) -> Self {
        self.options.hooks.on_permanent = Some(Arc::new(hook));
        self
    }

    /// Runs events until `shutdown` is ready, then gives the running ones their [grace](Self::grace). Events that have
    /// not ended by then are dropped and released, and another worker runs them.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Drained {
        let poller = self.poller();
        poller.run(shutdown).await;
        poller.context.machine.drain_handle().drain(self.options.grace).await
    }

    /// Runs events until none is due, and returns the number of attempts: for tests, and for jobs that start every now
    /// and then. If the queue is away, the worker waits for it.
    pub async fn run_until_idle(&self) -> usize {
        self.poller().run_until_idle().await
    }

    fn poller(&self) -> Poller<S> {
        let (queue, options) = (self.queue.clone(), self.options.clone());
        let ledger = WorkerLedger { queue: queue.clone(), retries: options.retries };
        let context = WorkerContext {
            ledger: Arc::new(ledger),
            machine: Arc::new(Machine::new(queue.clone())),
            bulkheads: Bulkheads::new(options.limits),
            queue,
            options,
        };
        Poller { context: Arc::new(context), service: self.service.clone() }
    }
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("limits", &self.options.limits)
            .field("retries", &self.options.retries)
            .field("terms", &self.options.terms)
            .finish_non_exhaustive()
    }
}
