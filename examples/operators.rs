//! What an operator does with the events of an inbox: count, list, look into one, requeue, discard, forget.
//!
//! ```text
//! cargo run --example operators
//! ```
//!
//! Everything happens in this process and in memory. The verbs are the same on SQLite, Redis and Postgres.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::{Router, extract::State, routing::post};
use tower::ServiceExt;
use tower_webhook::queue::{EventState, Filter, Page, Queue};
use tower_webhook::testing::TestSender;
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, Worker, scheme, store::MemoryStore};

type Mended = Arc<AtomicBool>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (queue, scheme, mended) = (MemoryStore::new(), scheme::timestamped("whsec_demo_secret")?, Mended::default());
    let handlers = Router::new().route("/webhooks", post(on_event)).with_state(mended.clone());
    let app = handlers.clone().layer(WebhookLayer::inbox(scheme.clone(), queue.clone()));
    let worker = Worker::new(queue.clone(), handlers);

    // Four events arrive and are acknowledged; a worker cannot handle two of them.
    let sender = TestSender::new(scheme);
    for (id, event_type) in [("1", "invoice.paid"), ("2", "refund"), ("3", "refund"), ("4", "invoice.paid")] {
        let body = format!(r#"{{"id":"evt_{id}","type":"{event_type}"}}"#);
        app.clone().oneshot(sender.deliver(body).request()).await?;
    }
    worker.run_until_idle().await;
    let counts = queue.counts().await?;
    println!("{} completed, {} dead", counts.completed, counts.dead);

    // A page of the list, oldest first. `Page::after` gives the next one.
    let dead = Filter::all().state(EventState::Dead);
    let listed = queue.list(&dead, &Page::first(50)).await?;
    for event in &listed {
        // The list leaves out bodies and attempts. `get` has them.
        let Some(event) = queue.get(&event.key).await? else { continue };
        let body = event.request.map(|request| request.body).unwrap_or_default();
        println!("{}: {}, {} bytes", event.key.id(), event.summary.unwrap_or_default(), body.len());
    }

    // Discarding completes an event without running it: a duplicate still gets its 200.
    let first = Filter::one(listed[0].key.clone());
    println!("discarded {}", queue.discard(&first, Duration::from_secs(7 * 24 * 3600)).await?);

    // Requeuing runs it again, once the cause is mended.
    mended.store(true, Ordering::Relaxed);
    println!("requeued {}", queue.requeue(&dead, false).await?.events);
    worker.run_until_idle().await;

    // Forgetting deletes the record: if the sender delivers the event again, it runs again.
    println!("forgot {}", queue.forget(&Filter::all().state(EventState::Completed)).await?);
    Ok(())
}

async fn on_event(State(mended): State<Mended>, event: WebhookEvent) -> Result<(), HandlerError> {
    if event.event_type() == Some("refund") && !mended.load(Ordering::Relaxed) {
        // Permanent: no retry would help before somebody mends it.
        return Err(HandlerError::permanent("refunds are not implemented"));
    }
    Ok(())
}
