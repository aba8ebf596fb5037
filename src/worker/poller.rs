use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower_service::Service;

use super::attempt::{Attempt, Options, PAUSE_AFTER_FAILURE, WorkerContext};
use super::bulkheads::Permit;
use crate::machine::{DetachOnDrop, either, within};
use crate::store::queue::{LeaseRequest, Leased};
use crate::store::{StoreError, StoreErrorKind};
use crate::telemetry;

/// Leases events, as many as there is room for, and runs them with the service.
pub(super) struct Poller<S> {
    pub(super) context: Arc<WorkerContext>,
    pub(super) service: S,
}

impl<S, R> Poller<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Send + Clone + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    /// Leases and starts events until `shutdown` is ready. Events that run then run on.
    pub(super) async fn run(&self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        while !is_ready(shutdown.as_mut()).await {
            let WorkerContext { queue, bulkheads, options: Options { poll, .. }, .. } = &*self.context;
            for key in bulkheads.newly_blocked(Instant::now()) {
                telemetry::handler_blocked(&key);
            }
            // Listens before it leases, so that it misses no event that arrives or ends meanwhile.
            let (woken, ended) = (queue.wake(), bulkheads.ended());
            let stop = match self.lease().await {
                Ok(leased) if leased > 0 => false,
                Ok(_) if bulkheads.room() > 0 => {
                    or_shutdown(shutdown.as_mut(), either(either(woken, ended), tokio::time::sleep(*poll))).await
                }
                // Without room, an event that arrives cannot start: only the end of another one matters.
                Ok(_) => or_shutdown(shutdown.as_mut(), either(ended, tokio::time::sleep(*poll))).await,
                // While the queue is away, being woken does not help.
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

    /// Leases and starts events until nothing is due and nothing runs. Returns how many events it started.
    pub(super) async fn run_until_idle(&self) -> usize {
        let mut all = 0;
        loop {
            // Listens before it leases: an event that ends meanwhile may be due again.
            let (ended, is_idle) = (self.context.bulkheads.ended(), self.context.bulkheads.is_idle());
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

    /// Leases as many events as there is room for, and starts them. Returns their number.
    async fn lease(&self) -> Result<usize, StoreError> {
        let WorkerContext { queue, bulkheads, options, .. } = &*self.context;
        let limit = bulkheads.room().min(options.batch);
        if limit == 0 {
            return Ok(0);
        }
        let room = bulkheads.room_by_kind();
        let mut request = LeaseRequest::new(limit, options.terms.lease);
        request.endpoints = &options.endpoints;
        (request.per_endpoint, request.per_type) = (room.per_endpoint.as_ref(), room.per_type.as_ref());
        let since = Instant::now();
        let leased = within(options.terms.claim_deadline, queue.lease(&request)).await;
        let leased = leased.unwrap_or_else(|| Err(StoreError::new(StoreErrorKind::TimedOut)))?;
        let (mut started, mut surplus) = (0, Vec::new());
        for event in leased {
            match bulkheads.try_acquire(&event) {
                Some(permit) => {
                    self.start(event, since, permit);
                    started += 1;
                }
                None => surplus.push(event),
            }
        }
        self.release(surplus).await;
        Ok(started)
    }

    fn start(&self, event: Leased, since: Instant, permit: Permit) {
        let attempt = Attempt::new(self.context.clone(), self.service.clone(), event, since);
        let claim = attempt.claim.clone();
        // Counted here and not in the task: a drain that begins before the task is first polled has to wait for it,
        // too.
        let admission = self.context.machine.hold();
        tokio::spawn(DetachOnDrop::new(Box::pin(attempt.run(permit, admission)), claim, true));
    }

    /// Releases events that the queue leased although there is no room for their kind.
    async fn release(&self, surplus: Vec<Leased>) {
        let mut releases = JoinSet::new();
        for event in surplus {
            let (queue, deadline) = (self.context.queue.clone(), self.context.options.terms.claim_deadline);
            releases.spawn(async move {
                // If the queue cannot be asked, the lease ends by itself.
                let _ = within(deadline, queue.release(&event.key, event.token)).await;
            });
        }
        releases.join_all().await;
    }
}

/// Whether the future is ready now. Once it was, it must not be polled again.
async fn is_ready(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// Awaits `wait` or the shutdown. Returns whether the shutdown came first.
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
