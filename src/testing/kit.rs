use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{ManualClock, TestDelivery, TestSender};
use crate::WebhookLayer;
use crate::scheme::Scheme;
use crate::store::MemoryStore;

/// When the clock of a kit starts, in seconds since the Unix epoch: the same in every test.
const START: u64 = 1_700_000_000;

/// A scheme, a clock, a memory store, a sender and the layer, for the test of one receiver.
///
/// One [`ManualClock`] drives all of them: the sender signs by it, the layer compares signed timestamps with it, and the
/// store's leases and retention are on it. Time passes when the test says so, and no test sleeps. Clones share clock and
/// store.
///
/// ```
/// use std::time::Duration;
/// use axum::routing::post;
/// use tower_webhook::{Outcome, WebhookEvent, scheme, testing::TestKit};
///
/// # async fn on_event(_: WebhookEvent) {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_webhook::ConfigError> {
/// let kit = TestKit::new(scheme::stripe("whsec_test")?).uri("/webhooks/stripe");
/// let app = kit.router(post(on_event));
///
/// let event = kit.deliver(r#"{"id":"evt_1"}"#);
/// assert_eq!(event.send(&app).await.extensions().get(), Some(&Outcome::Completed));
/// assert_eq!(event.send(&app).await.extensions().get(), Some(&Outcome::Duplicate));
///
/// // Stripe's signatures are accepted for five minutes.
/// let late = kit.deliver(r#"{"id":"evt_2"}"#).aged(Duration::from_secs(600));
/// assert_eq!(late.send(&app).await.status(), 401);
/// # Ok(())
/// # }
/// ```
///
/// An application that builds its layer itself takes the parts: [`scheme`](Self::scheme), [`store`](Self::store) and
/// [`clock`](Self::clock). With an inbox, the worker drains the kit's store:
///
/// ```
/// use axum::{Router, routing::post};
/// use tower_webhook::{Outcome, WebhookEvent, Worker, scheme, testing::TestKit};
///
/// # async fn on_event(_: WebhookEvent) {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_webhook::ConfigError> {
/// let kit = TestKit::new(scheme::timestamped("whsec_test")?);
/// let app: Router = Router::new().route("/webhooks", post(on_event)).layer(kit.inbox());
///
/// let accepted = kit.deliver(r#"{"id":"evt_1"}"#).send(&app).await;
/// assert_eq!(accepted.extensions().get(), Some(&Outcome::Accepted));
/// assert_eq!(Worker::new(kit.store(), app).run_until_idle().await, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TestKit {
    scheme: Arc<dyn Scheme>,
    clock: ManualClock,
    store: MemoryStore,
    sender: TestSender,
}

impl TestKit {
    /// Makes a kit for receivers of this scheme, whose sender delivers to `/webhooks`. Its clock stands still at a fixed
    /// time of the year 2023.
    pub fn new(scheme: impl Scheme) -> Self {
        let (scheme, clock): (Arc<dyn Scheme>, _) = (Arc::new(scheme), ManualClock::at_unix(START));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let sender = TestSender::new(scheme.clone()).clock(clock.clone());
        Self { scheme, clock, store, sender }
    }

    /// Sets the path that the sender delivers to, and that [`router`](Self::router) has.
    ///
    /// # Panics
    ///
    /// If `uri` is not a URI.
    #[must_use]
    pub fn uri(mut self, uri: &str) -> Self {
        self.sender = self.sender.uri(uri);
        self
    }

    /// Creates a layer that runs handlers inline. Layers of one kit are like instances of one receiver: they share the
    /// store.
    #[must_use]
    pub fn layer(&self) -> WebhookLayer {
        WebhookLayer::new(self.scheme(), self.store()).clock(self.clock())
    }

    /// Creates a layer that stores events for a [`Worker`](crate::Worker), which gets them from the kit's
    /// [`store`](Self::store).
    #[must_use]
    pub fn inbox(&self) -> WebhookLayer {
        WebhookLayer::inbox(self.scheme(), self.store()).clock(self.clock())
    }

    /// Creates a router with these handlers behind the [`layer`](Self::layer), at the path that the sender delivers to.
    #[cfg(feature = "axum")]
    pub fn router<S: Clone + Send + Sync + 'static>(
        &self,
        handlers: axum::routing::MethodRouter<S>,
    ) -> axum::Router<S> {
        axum::Router::new().route(self.sender.path(), handlers).layer(self.layer())
    }

    /// Creates a delivery of this body, signed by the kit's clock when it is [sent](TestDelivery::send).
    pub fn deliver(&self, body: impl Into<Bytes>) -> TestDelivery {
        self.sender.deliver(body)
    }

    /// Lets time pass for sender, layer and store.
    ///
    /// # Panics
    ///
    /// If the clock cannot hold the new time.
    pub fn advance(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// The clock that all parts share.
    #[must_use]
    pub fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    /// The store, on the kit's clock.
    #[must_use]
    pub fn store(&self) -> MemoryStore {
        self.store.clone()
    }

    /// The sender, which signs by the kit's clock.
    #[must_use]
    pub fn sender(&self) -> TestSender {
        self.sender.clone()
    }

    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Arc<dyn Scheme> {
        self.scheme.clone()
    }
}

impl fmt::Debug for TestKit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestKit").field("sender", &self.sender).field("clock", &self.clock).finish_non_exhaustive()
    }
}
