use std::fmt::Debug;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower_service::Service;

use super::TestDelivery;

/// Sends deliveries repeatedly, as senders do: one after the other, all at once, in any order.
///
/// ```
/// use axum::{Router, routing::post};
/// use tower_webhook::{Outcome, WebhookEvent, WebhookLayer, scheme, store::MemoryStore};
/// use tower_webhook::testing::{Replay, TestSender};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # async fn on_event(_: WebhookEvent) {}
/// let scheme = scheme::timestamped("whsec_test")?;
/// let app: Router = Router::new()
///     .route("/webhooks", post(on_event))
///     .layer(WebhookLayer::new(scheme.clone(), MemoryStore::new()));
///
/// let event = TestSender::new(scheme).deliver(r#"{"id":"evt_1"}"#);
/// let responses = Replay::of([event]).times(10).all_at_once(&app).await;
/// let ran = |response: &&axum::response::Response| response.extensions().get() == Some(&Outcome::Completed);
/// assert_eq!(responses.iter().filter(ran).count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replay {
    deliveries: Vec<TestDelivery>,
}

impl Replay {
    /// Sends each of these once.
    pub fn of(deliveries: impl IntoIterator<Item = TestDelivery>) -> Self {
        Self { deliveries: deliveries.into_iter().collect() }
    }

    /// Sends each of them this many times, all of them before any is repeated.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.deliveries = std::iter::repeat_n(self.deliveries, times).flatten().collect();
        self
    }

    /// Mixes the order up, in the same way for the same seed.
    #[must_use]
    pub fn out_of_order(mut self, seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        for index in (1..self.deliveries.len()).rev() {
            self.deliveries.swap(index, random.below(index + 1));
        }
        self
    }

    /// Sends one after the other. The responses are in the order of sending.
    ///
    /// # Panics
    ///
    /// If the service fails instead of answering.
    pub async fn one_by_one<S, R>(self, service: &S) -> Vec<Response<R>>
    where
        S: Service<Request<Full<Bytes>>, Response = Response<R>, Error: Debug> + Clone,
    {
        let mut responses = Vec::with_capacity(self.deliveries.len());
        for delivery in &self.deliveries {
            responses.push(delivery.send(service).await);
        }
        responses
    }

    /// Sends all of them at once, each from a task of its own. The responses are in the order of sending.
    ///
    /// # Panics
    ///
    /// If the service fails or panics instead of answering.
    pub async fn all_at_once<S, R>(self, service: &S) -> Vec<Response<R>>
    where
        S: Service<Request<Full<Bytes>>, Response = Response<R>, Error: Debug> + Clone + Send + Sync + 'static,
        S::Future: Send,
        R: Send + 'static,
    {
        let send = |delivery: TestDelivery| {
            let service = service.clone();
            tokio::spawn(async move { delivery.send(&service).await })
        };
        let tasks: Vec<_> = self.deliveries.into_iter().map(send).collect();
        let mut responses = Vec::with_capacity(tasks.len());
        for task in tasks {
            responses.push(task.await.expect("a service that does not panic"));
        }
        responses
    }
}

/// SplitMix64: one seed makes the same numbers, everywhere and for ever.
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws a number below `bound`, which must not be zero.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}
