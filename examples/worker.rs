//! A receiver and a worker as two processes that share one SQLite file, an alert for dead letters, and a requeue.
//!
//! ```text
//! cargo run --example worker --features sqlite -- receive       # acknowledges events as soon as they are on disk
//! cargo run --example worker --features sqlite -- work          # runs them, in another terminal
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks --count 3
//! cargo run --example send -- --url http://127.0.0.1:3000/webhooks --event-type refund.failed    # becomes a dead letter
//! cargo run --example worker --features sqlite -- requeue       # once the cause is mended
//! ```
//!
//! Stop the worker, or kill it: what was acknowledged waits in `events.db` until a worker runs again.

use std::error::Error;
use std::time::Duration;

use axum::{Router, routing::post};
use tower_webhook::queue::{EventState, Filter, Queue};
use tower_webhook::store::SqliteStore;
use tower_webhook::worker::{DeadLetter, RetryPolicy};
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, Worker, scheme};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::var("DATABASE").unwrap_or_else(|_| "events.db".to_owned());
    let queue = SqliteStore::open(path).await?;
    match std::env::args().nth(1).as_deref() {
        Some("receive") => receive(queue).await,
        Some("work") => work(queue).await,
        Some("requeue") => requeue(queue).await,
        _ => Err("say what to do: receive, work or requeue".into()),
    }
}

/// The same router for both processes: the worker finds the handler by the path, as the server does.
fn handlers() -> Router {
    Router::new().route("/webhooks", post(on_event))
}

async fn receive(queue: SqliteStore) -> Result<(), Box<dyn Error>> {
    let stripe = scheme::stripe("whsec_demo_secret")?;
    // The layer answers, and calls no handler here.
    let app = handlers().layer(WebhookLayer::inbox(stripe, queue));
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn work(queue: SqliteStore) -> Result<(), Box<dyn Error>> {
    // Three quick attempts, to show what happens after the last one. The default is twenty within about five hours.
    let retries = RetryPolicy::new().max_attempts(3).first_pause(Duration::from_millis(100));
    let worker = Worker::new(queue, handlers()).retries(retries).on_dead_letter(alert);
    println!("working");
    worker.run(async { tokio::signal::ctrl_c().await.expect("a signal handler") }).await;
    Ok(())
}

/// Stands for a page or a message to the people who can mend it. It must not block the worker.
fn alert(letter: &DeadLetter<'_>) {
    println!("dead letter {} after {} attempts: {}", letter.key.id(), letter.attempt, letter.reason);
}

async fn requeue(queue: SqliteStore) -> Result<(), Box<dyn Error>> {
    let again = queue.requeue(&Filter::all().state(EventState::Dead), false).await?;
    println!("requeued {}", again.events);
    Ok(())
}

async fn on_event(event: WebhookEvent) -> Result<(), HandlerError> {
    if event.event_type() == Some("refund.failed") && std::env::var_os("MENDED").is_none() {
        return Err(HandlerError::transient("the ledger does not know this account"));
    }
    println!("handled {}, attempt {}", event.id(), event.attempt().unwrap_or(1));
    Ok(())
}
