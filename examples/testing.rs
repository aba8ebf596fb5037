//! How to test a webhook handler: no server, no port, no sleep. The tests are at the end.
//!
//! ```text
//! cargo test --example testing
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::{Router, extract::State, routing::post};
use serde::Deserialize;
use tower_webhook::scheme::Scheme;
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, scheme, store::MemoryStore};

#[derive(Deserialize)]
struct Invoice {
    amount: u32,
}

/// The sum of all paid invoices.
type Total = Arc<AtomicU32>;

/// The application takes its scheme from outside, so that a test can sign with it.
fn app(scheme: impl Scheme, total: Total) -> Router {
    let layer = WebhookLayer::new(scheme, MemoryStore::new());
    Router::new().route("/webhooks", post(on_invoice)).with_state(total).layer(layer)
}

async fn on_invoice(State(total): State<Total>, event: WebhookEvent<Invoice>) -> Result<(), HandlerError> {
    match event.data().amount {
        0 => Err(HandlerError::permanent("nothing was paid")),
        amount if amount > 1_000 => Err(HandlerError::transient("the ledger is closed")),
        amount => {
            total.fetch_add(amount, Ordering::Relaxed);
            Ok(())
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = app(scheme::stripe("whsec_demo_secret")?, Total::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::response::Response;
    use tower::ServiceExt;
    use tower_webhook::Outcome;
    use tower_webhook::rejection::{Rejection, RejectionKind};
    use tower_webhook::testing::{Replay, TestDelivery, TestSender};

    use super::*;

    struct Fixture {
        app: Router,
        sender: TestSender,
        total: Total,
    }

    fn fixture() -> Fixture {
        let (scheme, total) = (scheme::stripe("whsec_test").expect("a secret"), Total::default());
        Fixture { app: app(scheme.clone(), total.clone()), sender: TestSender::new(scheme), total }
    }

    impl Fixture {
        async fn outcome(&self, delivery: TestDelivery) -> (u16, Outcome) {
            let response: Response = self.app.clone().oneshot(delivery.request()).await.expect("a response");
            let outcome = response.extensions().get::<Outcome>().cloned();
            (response.status().as_u16(), outcome.expect("the layer says how it ended"))
        }
    }

    #[tokio::test]
    async fn invoice_is_paid_once() {
        let test = fixture();
        let event = test.sender.deliver(r#"{"id":"evt_1","type":"invoice.paid","amount":5}"#);
        assert_eq!(test.outcome(event.clone()).await, (200, Outcome::Completed));
        assert_eq!(test.outcome(event).await, (200, Outcome::Duplicate));
        assert_eq!(test.total.load(Ordering::Relaxed), 5);
    }

    #[tokio::test]
    async fn many_copies_in_any_order_are_paid_once() {
        let test = fixture();
        let events = (0..10).map(|n| test.sender.deliver(format!(r#"{{"id":"evt_{n}","amount":1}}"#)));
        Replay::of(events).times(3).out_of_order(7).all_at_once(&test.app).await;
        assert_eq!(test.total.load(Ordering::Relaxed), 10);
    }

    #[tokio::test]
    async fn changed_and_old_deliveries_are_refused() {
        let test = fixture();
        let event = test.sender.deliver(r#"{"id":"evt_1","amount":5}"#);
        for (delivery, kind) in [
            (event.clone().tampered(), RejectionKind::SignatureMismatch),
            (event.aged(Duration::from_secs(301)), RejectionKind::Stale),
        ] {
            let (status, outcome) = test.outcome(delivery).await;
            assert_eq!((status, outcome.rejection().map(Rejection::kind)), (401, Some(kind)));
        }
        assert_eq!(test.total.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn transient_failures_run_again_and_permanent_ones_do_not() {
        let test = fixture();
        let closed = test.sender.deliver(r#"{"id":"evt_1","amount":5000}"#);
        assert_eq!(test.outcome(closed.clone()).await, (500, Outcome::Released));
        assert_eq!(test.outcome(closed).await, (500, Outcome::Released));
        let empty = test.sender.deliver(r#"{"id":"evt_2","amount":0}"#);
        assert_eq!(test.outcome(empty.clone()).await, (200, Outcome::Failed));
        assert_eq!(test.outcome(empty).await, (200, Outcome::Duplicate));
    }
}
