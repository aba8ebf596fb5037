use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tower_service::Service;

use super::bulkheads::{Bulkheads, Limits};
use super::crew::{Crew, Shared};
use super::hooks::Hooks;
use super::{DeadLetter, RetryPolicy};
use crate::clock::countable;
use crate::error::{ConfigError, positive};
use crate::machine::{CompletesFn, Drained, Machine, Terms, WorkerLedger};
use crate::store::queue::{IntoQueue, Queue};

/// Runs the events of an inbox with a service: the `Router`, or any tower service, that would otherwise be behind the layer.
///
/// Any number of workers, in any number of processes, share an inbox: each event is leased by one of them, its lease renewed
/// while it runs, and taken over by another if the worker dies. See the [module](super) for an example.
#[must_use = "a worker does nothing until it is run"]
#[derive(Clone)]
pub struct Worker<S> {
    queue: Arc<dyn Queue>,
    service: S,
    terms: Terms,
    retries: RetryPolicy,
    limits: Limits,
    batch: Option<usize>,
    poll: Duration,
    grace: Duration,
    endpoints: Box<[Box<str>]>,
    hooks: Hooks,
    completes: Arc<CompletesFn>,
}

impl<S> Worker<S> {
    /// A worker for everything in `inbox`.
    pub fn new(queue: impl IntoQueue, service: S) -> Self {
        Self {
            queue: queue.into_queue(),
            service,
            terms: Terms { ready_wait: Duration::from_secs(60), settle_in_place: true, ..Terms::default() },
            retries: RetryPolicy::new(),
            limits: Limits { in_all: 64, per_endpoint: None, per_type: None },
            batch: None,
            poll: Duration::from_secs(1),
            grace: Duration::from_secs(30),
            endpoints: Box::default(),
            hooks: Hooks::default(),
            completes: Arc::new(|status| status.is_success()),
        }
    }

    /// How many events run at once (default 64).
    ///
    /// # Errors
    /// When it is zero.
    pub fn concurrency(mut self, events: usize) -> Result<Self, ConfigError> {
        positive(events, "the worker's concurrency")?;
        self.limits.in_all = events;
        Ok(self)
    }

    /// How many events are leased in one step at the most (default: as many as there is room for).
    ///
    /// # Errors
    /// When it is zero.
    pub fn batch(mut self, events: usize) -> Result<Self, ConfigError> {
        positive(events, "the batch")?;
        self.batch = Some(events);
        Ok(self)
    }

    /// How many events of one type run at once, so that a slow type leaves places to the others. Events without a type are not
    /// counted. Default: any number.
    ///
    /// # Errors
    /// When it is zero.
    pub fn concurrency_per_type(mut self, events: usize) -> Result<Self, ConfigError> {
        positive(events, "the concurrency per type")?;
        self.limits.per_type = Some(events);
        Ok(self)
    }

    /// How many events of one endpoint run at once, so that a slow endpoint leaves places to the others. Default: any number.
    ///
    /// # Errors
    /// When it is zero.
    pub fn concurrency_per_endpoint(mut self, events: usize) -> Result<Self, ConfigError> {
        positive(events, "the concurrency per endpoint")?;
        self.limits.per_endpoint = Some(events);
        Ok(self)
    }

    /// Leases events of these endpoints only, where several applications share an inbox: an event that the service has no route
    /// for would fail until it is dead.
    pub fn endpoints<E: Into<Box<str>>>(mut self, endpoints: impl IntoIterator<Item = E>) -> Self {
        self.endpoints = endpoints.into_iter().map(Into::into).collect();
        self
    }

    /// When failed events are tried again.
    pub fn retries(mut self, policy: RetryPolicy) -> Self {
        self.retries = policy;
        self
    }

    /// How long an event is leased without being renewed (default 30 s): so long after a crash it is run by another worker.
    ///
    /// # Errors
    /// When it is zero or longer than ten years.
    pub fn lease(mut self, lease: Duration) -> Result<Self, ConfigError> {
        self.terms.lease = countable(lease, "the lease")?;
        Ok(self)
    }

    /// How often an idle worker looks without being woken (default 1 s): the longest that a retry is late, and that an event waits
    /// whose wake-up was lost.
    ///
    /// # Errors
    /// When it is zero or longer than ten years.
    pub fn poll_every(mut self, time: Duration) -> Result<Self, ConfigError> {
        self.poll = countable(time, "the poll interval")?;
        Ok(self)
    }

    /// How long the inbox may take to answer (default 2 s).
    ///
    /// # Errors
    /// When it is zero or longer than ten years.
    pub fn claim_deadline(mut self, time: Duration) -> Result<Self, ConfigError> {
        self.terms.claim_deadline = countable(time, "the claim deadline")?;
        Ok(self)
    }

    /// How long running events have to end after the shutdown (default 30 s). The rest is dropped and put back.
    pub fn grace(mut self, time: Duration) -> Self {
        self.grace = time;
        self
    }

    /// Which statuses complete an event; all others are failures (default: 2xx completes). A
    /// [`Failure`](crate::handler::Failure) in the response's extensions goes before.
    pub fn complete_when(mut self, completes: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.completes = Arc::new(completes);
        self
    }

    /// Drops the handler as soon as its lease is known to be lost. By default it runs on, and
    /// [`is_held`](crate::WebhookEvent::is_held) tells it.
    pub fn cancel_on_lost_claim(mut self) -> Self {
        self.terms.drop_when_lost = true;
        self
    }

    /// Called for every event that becomes a dead letter, for alerting. It must not block.
    pub fn on_dead_letter(mut self, hook: impl Fn(&DeadLetter<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.on_dead_letter = Some(Arc::new(hook));
        self
    }

    /// Called, before [`on_dead_letter`](Self::on_dead_letter), for those of them whose handler said that no retry would help.
    pub fn on_permanent(mut self, hook: impl Fn(&DeadLetter<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.on_permanent = Some(Arc::new(hook));
        self
    }

    fn crew(&self) -> Crew<S>
    where
        S: Clone,
    {
        let ledger = WorkerLedger { queue: self.queue.clone(), retries: self.retries };
        let shared = Shared {
            queue: self.queue.clone(),
            ledger: Arc::new(ledger),
            machine: Arc::new(Machine::new(self.queue.clone())),
            terms: self.terms.clone(),
            retries: self.retries,
            hooks: self.hooks.clone(),
            completes: self.completes.clone(),
            bulkheads: Bulkheads::new(self.limits),
            endpoints: self.endpoints.clone(),
            batch: self.batch.unwrap_or(self.limits.in_all),
            poll: self.poll,
        };
        Crew { shared: Arc::new(shared), service: self.service.clone() }
    }
}

impl<S, R> Worker<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Send + Clone + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    /// Runs events until `shutdown` is ready, then gives the running ones their [grace](Self::grace). What is not done by then is
    /// dropped and put back, to be run by another worker.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Drained {
        let crew = self.crew();
        crew.work(shutdown).await;
        crew.shared.machine.drain_handle().drain(self.grace).await
    }

    /// Runs what is due until nothing is left, and says how many attempts that took: for tests, and for jobs that are started
    /// every now and then. An inbox that is away is waited for.
    pub async fn run_until_idle(&self) -> usize {
        self.crew().work_until_idle().await
    }
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("limits", &self.limits)
            .field("retries", &self.retries)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
