//! Slow handlers, instant acknowledgements: a sender, a receiver with an inbox and a worker in one process, and a line that tells
//! how deep the inbox is.
//!
//! ```text
//! cargo run --example inbox                                              # in memory
//! cargo run --example inbox --features sqlite -- --store sqlite:inbox.db
//! cargo run --example inbox -- --handler-ms 1000 --rate 100 --concurrency 50    # falls behind, and catches up
//! ```

mod support;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tower::ServiceExt;
use tower_webhook::testing::TestSender;
use tower_webhook::{WebhookEvent, WebhookLayer, Worker, scheme};

use self::support::stores;

/// A receiver whose handlers are slow, and whose sender does not notice.
#[derive(Parser)]
struct Options {
    /// Where events are kept: memory, sqlite:PATH, redis://…, postgres://…
    #[arg(long, default_value = "memory")]
    store: String,
    /// How long each handler takes.
    #[arg(long, default_value_t = 200)]
    handler_ms: u64,
    /// How many of them run at once.
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
    /// Events per second.
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// How long events are sent; afterwards the inbox is emptied.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let inbox = stores::open(&options.store, false).await?;
    let handled = Arc::new(AtomicU64::new(0));
    let handlers = Router::new()
        .route("/webhooks", post(on_event))
        .with_state((Duration::from_millis(options.handler_ms), handled.clone()));
    let scheme = scheme::timestamped("whsec_demo_secret")?;
    let app = handlers.clone().layer(WebhookLayer::inbox(scheme.clone(), inbox.clone()));
    let worker = Worker::new(inbox.clone(), handlers).concurrency(options.concurrency)?;

    let sent = Arc::new(Mutex::new(Vec::new()));
    let sending = tokio::spawn(send(app, TestSender::new(scheme), options.rate, options.seconds, sent.clone()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.run(async { _ = stopped.await }));

    let line = ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg}")?);
    let (mut ticks, mut before) = (interval(Duration::from_millis(250)), 0);
    loop {
        ticks.tick().await;
        let (counts, now) = (inbox.counts().await?, handled.load(Ordering::Relaxed));
        let acknowledged = Summary::of(&sent.lock().await);
        let oldest = counts.oldest_waiting.unwrap_or_default();
        line.set_message(format!(
            "{acknowledged} · {} waiting, {} running · {}/s done · oldest {:.1} s",
            counts.waiting,
            counts.running,
            (now - before) * 4,
            oldest.as_secs_f64(),
        ));
        line.tick();
        before = now;
        if sending.is_finished() && counts.waiting + counts.running == 0 {
            break;
        }
    }
    line.finish();
    drop(stop);
    working.await?;
    println!("{}; {} handled", Summary::of(&sent.lock().await), handled.load(Ordering::Relaxed));
    Ok(())
}

async fn on_event(State((time, handled)): State<(Duration, Arc<AtomicU64>)>, _: WebhookEvent) {
    tokio::time::sleep(time).await;
    handled.fetch_add(1, Ordering::Relaxed);
}

/// Sends events at a steady rate, and notes down how long each acknowledgement took.
async fn send(app: Router, sender: TestSender, rate: u64, seconds: u64, sent: Arc<Mutex<Vec<Duration>>>) {
    let run = std::process::id();
    let mut deliveries = tokio::task::JoinSet::new();
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(rate.max(1)).unwrap_or(u32::MAX));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for n in 0..rate * seconds {
        ticks.tick().await;
        let delivery = sender.deliver(format!(r#"{{"id":"evt_{run}_{n}","type":"demo"}}"#));
        let (app, sent) = (app.clone(), sent.clone());
        deliveries.spawn(async move {
            let began = Instant::now();
            let answer = app.oneshot(delivery.request()).await.expect("a router cannot fail");
            assert_eq!(answer.status(), StatusCode::OK);
            sent.lock().await.push(began.elapsed());
        });
    }
    deliveries.join_all().await;
}

/// How long acknowledgements took.
struct Summary {
    count: usize,
    half: Duration,
    most: Duration,
}

impl Summary {
    fn of(times: &[Duration]) -> Self {
        let mut times = times.to_vec();
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        Self { count: times.len(), half: at(50), most: at(99) }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} acknowledged, p50 {:.1?}, p99 {:.1?}", self.count, self.half, self.most)
    }
}
