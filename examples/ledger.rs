//! A ledger of payments whose balance stays exact: effect and completion are committed in one transaction.
//!
//! ```text
//! cargo run --example ledger --features postgres,sqlite                            # ledger.db, in the working directory
//! cargo run --example ledger --features postgres,sqlite -- --database postgres://me@localhost/mine
//! cargo run --example send -- --url http://127.0.0.1:3001/webhooks --count 1000 --duplicates 3
//! curl http://127.0.0.1:3001/balance
//! cargo run --example ledger --features postgres,sqlite -- --inbox                  # acknowledged at once, paid by a worker
//! ```
//!
//! Deliver an event as often as you like, kill the process wherever you like, stop it for longer than its lease and let it go
//! on, run two of them on one database: every acknowledged payment is in the balance, and none is in it twice. Nothing in the
//! tables prevents that; the claim does. The pauses are there to be killed in.

mod support;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use serde::Deserialize;
use tokio::net::TcpListener;
use tower_webhook::queue::Queue;
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, Worker, scheme};

use self::support::books::Books;
use self::support::console;

/// A ledger of payments at POST /webhooks, and its balance at GET /balance.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:3001")]
    listen: SocketAddr,
    /// What deliveries are signed with.
    #[arg(long, default_value = "whsec_demo_secret")]
    secret: String,
    /// Where the ledger and the events are: sqlite:PATH or postgres://…
    #[arg(long, default_value = "sqlite:ledger.db")]
    database: String,
    /// Acknowledges payments as soon as they are stored, and has a worker pay them.
    #[arg(long)]
    inbox: bool,
    /// How often that worker tries a payment before it is a dead letter. An attempt in which it was killed counts.
    #[arg(long, default_value_t = 20)]
    attempts: u32,
    /// How long a claim holds without renewal.
    #[arg(long, value_parser = milliseconds, default_value = "30000")]
    lease_ms: Duration,
    /// How long a duplicate waits for the first delivery's outcome.
    #[arg(long, value_parser = milliseconds, default_value = "5000")]
    wait_ms: Duration,
    /// How long the handler takes before its transaction.
    #[arg(long, value_parser = milliseconds, default_value = "0")]
    pause_before_ms: Duration,
    /// How long its transaction takes.
    #[arg(long, value_parser = milliseconds, default_value = "0")]
    pause_inside_ms: Duration,
    /// How long it takes after its transaction.
    #[arg(long, value_parser = milliseconds, default_value = "0")]
    pause_after_ms: Duration,
}

#[derive(Deserialize)]
struct Payment {
    /// What is missing is one: so `examples/send.rs` can pay.
    #[serde(default = "one")]
    amount: i64,
}

struct Ledger {
    options: Options,
    books: Books,
    store: Arc<dyn Queue>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    console::print_deliveries();
    let options = Options::parse();
    let (books, store) = Books::open(&options.database).await?;
    let scheme = scheme::stripe(&*options.secret)?;
    let layer = match options.inbox {
        false => WebhookLayer::new(scheme, store.clone()),
        true => WebhookLayer::inbox(scheme, store.clone()),
    };
    let layer = layer.endpoint("ledger")?.lease(options.lease_ms)?.in_flight_wait(options.wait_ms);
    let listener = TcpListener::bind(options.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let (inbox, lease, attempts) = (options.inbox, options.lease_ms, options.attempts);
    let ledger = Arc::new(Ledger { options, books, store: store.clone() });
    let payments = Router::new().route("/webhooks", post(on_payment)).with_state(ledger.clone());
    if inbox {
        let retries = RetryPolicy::new().max_attempts(attempts).first_pause(Duration::from_millis(100));
        let worker = Worker::new(store, payments.clone()).lease(lease)?.retries(retries);
        tokio::spawn(worker.poll_every(Duration::from_millis(50))?.run(std::future::pending()));
    }
    let app = payments
        .layer(layer)
        .merge(Router::new().route("/balance", get(balance)).route("/unfinished", get(unfinished)).with_state(ledger));
    axum::serve(listener, app).await?;
    Ok(())
}

async fn on_payment(State(ledger): State<Arc<Ledger>>, event: WebhookEvent<Payment>) -> Result<(), HandlerError> {
    let Ledger { options, books, .. } = &*ledger;
    if !options.pause_before_ms.is_zero() {
        println!("handling {}", event.id());
        tokio::time::sleep(options.pause_before_ms).await;
    }
    books.pay(&event, event.data().amount, options.pause_inside_ms).await?;
    tokio::time::sleep(options.pause_after_ms).await;
    Ok(())
}

/// How many payments are acknowledged and not paid: yet, or at all.
async fn unfinished(State(ledger): State<Arc<Ledger>>) -> Result<Json<u64>, HandlerError> {
    let counts = ledger.store.counts().await?;
    Ok(Json(counts.waiting + counts.running + counts.dead))
}

async fn balance(State(ledger): State<Arc<Ledger>>) -> Result<Json<i64>, HandlerError> {
    Ok(Json(ledger.books.balance().await?))
}

fn one() -> i64 {
    1
}

fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}
