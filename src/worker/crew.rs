use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_service::Service;

use super::RetryPolicy;
use super::bulkheads::{Bulkheads, Place};
use super::hooks::Hooks;
use super::job::Job;
use crate::machine::{CompletesFn, DetachOnDrop, Machine, Terms, WorkerLedger, either, within};
use crate::store::queue::{LeaseRequest, Leased, Queue};
use crate::store::{StoreError, StoreErrorKind};
use crate::telemetry;

/// How long an inbox that failed is left alone.
pub(super) const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

/// What all events of one worker share.
pub(super) struct Shared {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) ledger: Arc<WorkerLedger>,
    pub(super) machine: Arc<Machine>,
    pub(super) terms: Terms,
    pub(super) retries: RetryPolicy,
    pub(super) hooks: Hooks,
    pub(super) completes: Arc<CompletesFn>,
    pub(super) bulkheads: Arc<Bulkheads>,
    pub(super) endpoints: Box<[Box<str>]>,
    pub(super) batch: usize,
    pub(super) poll: Duration,
}

/// Leases events and has the service run them.
pub(super) struct Crew<S> {
    pub(super) shared: Arc<Shared>,
    pub(super) service: S,
}

impl<S, R> Crew<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Send + Clone + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    /// Works until `shutdown` is ready. What runs then, runs on.
    pub(super) async fn work(&self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        while !is_ready(shutdown.as_mut()).await {
            let Shared { queue, bulkheads, poll, .. } = &*self.shared;
            // From before it is looked: what arrives or ends meanwhile is not missed.
            let (woken, ended) = (queue.wake(), bulkheads.ended());
            let stop = match self.lease().await {
                Ok(leased) if leased > 0 => false,
                Ok(_) if bulkheads.room() > 0 => {
                    or_shutdown(shutdown.as_mut(), either(either(woken, ended), tokio::time::sleep(*poll))).await
                }
                // Without room there is nothing to do with an event that arrives.
                Ok(_) => or_shutdown(shutdown.as_mut(), either(ended, tokio::time::sleep(*poll))).await,
                // Nor is there while the inbox is away, whatever it is heard to say.
                Err(error) => {
                    telemetry::lease_failed(&error);
                    or_shutdown(shutdown.as_mut(), tokio::time::sleep(PAUSE_AFTER_FAILURE)).await
                }
            };
            if stop {
                return;
            }
        }
    }

    /// Works until nothing is due and nothing runs; says how many events it leased.
    pub(super) async fn work_until_idle(&self) -> usize {
        let mut all = 0;
        loop {
            // From before it is looked: what ends meanwhile may be due again.
            let (ended, is_idle) = (self.shared.bulkheads.ended(), self.shared.bulkheads.is_idle());
            match self.lease().await {
                Ok(leased) if leased > 0 => all += leased,
                Ok(_) if is_idle => return all,
                Ok(_) => ended.await,
                Err(error) => {
                    telemetry::lease_failed(&error);
                    tokio::time::sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
        }
    }

    /// Leases what there is room for, and starts it.
    async fn lease(&self) -> Result<usize, StoreError> {
        let Shared { queue, terms, bulkheads, endpoints, batch, .. } = &*self.shared;
        let limit = bulkheads.room().min(*batch);
        if limit == 0 {
            return Ok(0);
        }
        let rooms = bulkheads.rooms();
        let mut request = LeaseRequest::new(limit, terms.lease);
        request.endpoints = endpoints;
        (request.per_endpoint, request.per_type) = (rooms.per_endpoint.as_ref(), rooms.per_type.as_ref());
        let since = Instant::now();
        let leased = within(terms.claim_deadline, queue.lease(&request)).await;
        let leased = leased.unwrap_or_else(|| Err(StoreError::new(StoreErrorKind::TimedOut)))?;
        let (mut started, mut surplus) = (0, Vec::new());
        for event in leased {
            match bulkheads.enter(&event) {
                Some(place) => {
                    self.start(event, since, place);
                    started += 1;
                }
                None => surplus.push(event),
            }
        }
        self.put_back(surplus).await;
        Ok(started)
    }

    fn start(&self, event: Leased, since: Instant, place: Place) {
        let job = Job::new(self.shared.clone(), self.service.clone(), event, since);
        let claim = job.claim.clone();
        // Here and not in the task: a drain that begins before that is first polled has to wait for it, too.
        let admission = self.shared.machine.hold();
        tokio::spawn(DetachOnDrop::new(Box::pin(job.run(place, admission)), claim, true));
    }

    /// An inbox that leases more of one kind than it was asked for gets the rest back.
    async fn put_back(&self, surplus: Vec<Leased>) {
        let mut releases = JoinSet::new();
        for event in surplus {
            let (queue, deadline) = (self.shared.queue.clone(), self.shared.terms.claim_deadline);
            releases.spawn(async move {
                // If it cannot be, its lease ends by itself.
                let _ = within(deadline, queue.release(&event.key, event.token)).await;
            });
        }
        releases.join_all().await;
    }
}

/// Whether it is ready now; once it was, it must not be asked again.
async fn is_ready(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// Waits; whether it was the shutdown that ended that.
async fn or_shutdown(shutdown: Pin<&mut impl Future<Output = ()>>, wait: impl Future<Output = ()>) -> bool {
    let shut_down = async {
        shutdown.await;
        true
    };
    let waited = async {
        wait.await;
        false
    };
    either(shut_down, waited).await
}
