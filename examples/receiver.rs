//! A working receiver with nothing to install: axum, the memory store, and a demo secret.
//!
//! `cargo run --example receiver` prints a signed request to paste into a shell. Paste it twice: the second delivery is
//! answered without running the handler again, unless the provider gives its events no id. `cargo run --example send` sends
//! many. `--help` lists the rest.
//!
//! ```text
//! cargo run --example receiver -- --list-schemes        # every provider, and how it signs
//! cargo run --example receiver -- --scheme discord      # each has a demo secret, and a signed request to paste
//! cargo run --example receiver --features sqlite -- --store sqlite:events.db
//! cargo run --example receiver --features sqlite -- --store sqlite:events.db --mode inbox --workers 2
//! cargo run --example receiver --features redis -- --store redis://127.0.0.1
//! cargo run --example receiver --features postgres -- --store postgres://me@localhost/mine
//! cargo run --example receiver --features postgres -- --store postgres://me@localhost:6432/mine --pooled
//! ```
//!
//! Any number of receivers on one store act as one. With `--mode inbox` events are acknowledged as soon as they are stored, and run by
//! workers, in this process or, with `--workers 0` here, in another.

mod support;

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::HeaderValue;
use axum::middleware::map_response;
use axum::response::Response;
use axum::{Router, routing::post};
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_webhook::queue::Queue;
use tower_webhook::scheme::Scheme;
use tower_webhook::testing::TestSender;
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{HandlerError, Outcome, WebhookEvent, WebhookLayer, Worker};

use self::support::paste::OUTCOME_HEADER;
use self::support::schemes::Given;
use self::support::{console, demo, events, listing, paste, schemes, stores};

/// A webhook receiver at POST /webhooks.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:3000")]
    listen: SocketAddr,
    /// A secret that deliveries may be signed with; repeatable, for rotation [default: the scheme's demo secret, such as
    /// whsec_demo_secret].
    #[arg(long = "secret")]
    secrets: Vec<String>,
    /// How deliveries are signed.
    #[arg(long, default_value = "stripe")]
    scheme: String,
    /// Prints all schemes and what is known of them, and exits.
    #[arg(long)]
    list_schemes: bool,
    /// This endpoint's URL as the provider knows it, for schemes that sign it: square, hubspot, hubspot-v2, twilio [default:
    /// http:// and the address that is listened on, /webhooks].
    #[arg(long)]
    url: Option<String>,
    /// What the provider shows when it validates the endpoint: meta.
    #[arg(long, default_value = "demo_verify_token")]
    verify_token: String,
    /// Where events are remembered: memory, sqlite:PATH, redis://…, postgres://…; all but the first need the feature of that
    /// name.
    #[arg(long, default_value = "memory")]
    store: String,
    /// The Postgres store goes through a pooler in transaction mode, such as PgBouncer.
    #[arg(long)]
    pooled: bool,
    /// Whether the sender waits for the handler, or only until the event is stored.
    #[arg(long, value_enum, default_value = "inline")]
    mode: Mode,
    /// How many workers run the events of an inbox, in this process.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// How often a worker tries an event before it is a dead letter.
    #[arg(long, default_value_t = 20)]
    attempts: u32,
    /// The longest that the first pause between two attempts may be, in seconds.
    #[arg(long, value_parser = seconds, default_value = "5")]
    retry_pause: Duration,
    /// How far a signed timestamp may be from now, in seconds.
    #[arg(long)]
    tolerance: Option<u64>,
    /// How long a claim holds without renewal, in seconds.
    #[arg(long, value_parser = seconds)]
    lease: Option<Duration>,
    /// How long a duplicate waits for the first delivery's outcome, in seconds.
    #[arg(long, value_parser = seconds)]
    wait: Option<Duration>,
    /// How long running handlers may take after SIGTERM, in seconds.
    #[arg(long, value_parser = seconds, default_value = "20")]
    grace: Duration,
    /// How long the handler takes.
    #[arg(long, default_value_t = 0)]
    handler_delay_ms: u64,
    /// How long the handler takes after its effect, the line in the ledger.
    #[arg(long, default_value_t = 0)]
    pause_after_ms: u64,
    /// How long an answer is held back when everything is done.
    #[arg(long, default_value_t = 0)]
    hold_reply_ms: u64,
    /// Appends one JSON line per handler run that has done its work.
    #[arg(long)]
    ledger: Option<PathBuf>,
    /// The handler answers 500 for event types that contain this, or match it where it has a `*`.
    #[arg(long)]
    fail: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Inline,
    Inbox,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    if options.list_schemes {
        print!("{}", listing::table()?);
        return Ok(());
    }
    console::print_deliveries();
    // Before the scheme, which may sign the address.
    let listener = TcpListener::bind(options.listen).await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let scheme = schemes::scheme(&options.scheme, given(&options, &origin))?;
    let store = stores::open(&options.store, options.pooled).await?;
    let layer = layer(&options, scheme.clone(), store.clone())?;
    let drain = layer.drain_handle();

    let handler = Handler::new(&options)?;
    let handlers = Router::new().route("/webhooks", post(on_event)).with_state(Arc::new(handler));
    let app = handlers.clone().layer(layer);
    let hold = Duration::from_millis(options.hold_reply_ms);
    let app = app.layer(map_response(move |response: Response| async move {
        tokio::time::sleep(hold).await;
        with_outcome(response)
    }));
    let terminated = Terminated::listen()?;
    println!("listening on {origin}");
    print_requests(&options, scheme, &origin);

    let mut workers = JoinSet::new();
    if options.mode == Mode::Inbox {
        for _ in 0..options.workers {
            workers.spawn(worker(&options, &store, &handlers)?.run(terminated.clone().wait()));
        }
    }
    let server = axum::serve(listener, app).with_graceful_shutdown(terminated.clone().wait());
    let server = tokio::spawn(server.into_future());
    terminated.wait().await;
    // The server waits for its connections; the drain also for handlers whose sender has hung up.
    let drained = drain.drain(options.grace).await;
    let put_back: usize = workers.join_all().await.iter().map(|drained| drained.dropped).sum();
    println!("drained, {} dropped", drained.dropped + put_back);
    // Answers are on their way; idle connections need not be waited for.
    let _ = tokio::time::timeout(Duration::from_secs(1), server).await;
    Ok(())
}

fn given(options: &Options, origin: &str) -> Given {
    Given {
        secrets: demo::secrets(&options.secrets, &options.scheme),
        tolerance: options.tolerance.map(|seconds| Duration::from_secs(seconds).into()),
        url: Some(options.url.clone().unwrap_or_else(|| format!("{origin}/webhooks"))),
        verify_token: Some(options.verify_token.clone()),
    }
}

fn layer(options: &Options, scheme: impl Scheme, store: Arc<dyn Queue>) -> Result<WebhookLayer, Box<dyn Error>> {
    let layer = match options.mode {
        Mode::Inline => WebhookLayer::new(scheme, store),
        Mode::Inbox => WebhookLayer::inbox(scheme, store),
    };
    let mut layer = layer.endpoint("receiver")?;
    if let Some(lease) = options.lease {
        layer = layer.lease(lease)?;
    }
    if let Some(wait) = options.wait {
        layer = layer.in_flight_wait(wait);
    }
    Ok(layer)
}

fn worker(options: &Options, store: &Arc<dyn Queue>, handlers: &Router) -> Result<Worker<Router>, Box<dyn Error>> {
    let retries = RetryPolicy::new().max_attempts(options.attempts).first_pause(options.retry_pause);
    let worker = Worker::new(store.clone(), handlers.clone()).retries(retries).grace(options.grace);
    Ok(match options.lease {
        Some(lease) => worker.lease(lease)?,
        None => worker,
    })
}

/// Tells `examples/send.rs` how the delivery ended. A real receiver keeps that to itself.
fn with_outcome(mut response: Response) -> Response {
    if let Some(outcome) = response.extensions().get::<Outcome>() {
        let outcome = HeaderValue::from_static(outcome.as_str());
        response.headers_mut().insert(OUTCOME_HEADER, outcome);
    }
    response
}

struct Handler {
    delay: Duration,
    pause: Duration,
    fail: Option<String>,
    ledger: Option<Mutex<File>>,
}

async fn on_event(State(handler): State<Arc<Handler>>, event: WebhookEvent) -> Result<(), HandlerError> {
    if !handler.delay.is_zero() {
        println!("handling {}", event.id());
        tokio::time::sleep(handler.delay).await;
    }
    if handler.fails(event.event_type().unwrap_or_default()) {
        return Err(HandlerError::transient("asked to fail by --fail"));
    }
    handler.record(&event)?;
    tokio::time::sleep(handler.pause).await;
    Ok(())
}

impl Handler {
    fn new(options: &Options) -> Result<Self, Box<dyn Error>> {
        let open = |path| OpenOptions::new().create(true).append(true).open(path).map(Mutex::new);
        Ok(Self {
            delay: Duration::from_millis(options.handler_delay_ms),
            pause: Duration::from_millis(options.pause_after_ms),
            fail: options.fail.clone(),
            ledger: options.ledger.as_ref().map(open).transpose()?,
        })
    }

    fn fails(&self, event_type: &str) -> bool {
        self.fail.as_deref().is_some_and(|pattern| matches(pattern, event_type))
    }

    /// The effect of this handler: a line in the ledger.
    fn record(&self, event: &WebhookEvent) -> std::io::Result<()> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let line = serde_json::json!({
            "id": event.id(),
            "token": event.token().to_string(),
            "attempt": event.attempt(),
            "time": SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        });
        let mut file = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        // One write: a line is there whole or not at all, whenever the process dies.
        file.write_all(format!("{line}\n").as_bytes())?;
        file.flush()
    }
}

/// Whether `text` contains `pattern`, or has the form of it where the pattern has a `*`.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text.contains(pattern) };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return text.ends_with(piece);
        }
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    true
}

/// What to paste into a shell.
fn print_requests(options: &Options, scheme: Arc<dyn Scheme>, origin: &str) {
    if !events::can_sign(&*scheme) {
        println!("\na public key cannot sign: there is no request to paste\n");
        return;
    }
    let tolerance = listing::tolerance(&scheme.profile());
    let sender = TestSender::new(scheme);
    println!("paste this into another terminal, twice:");
    println!("\n{}\n", paste::curl(&paste::event(&sender, &options.scheme), origin).join(" \\\n  "));
    if let Some(hurry) = paste::hurry(&options.scheme, tolerance) {
        println!("{hurry}\n");
    }
    if let Some(handshake) = paste::handshake(&sender, &options.scheme, &options.verify_token) {
        println!("How the endpoint is validated: {}\n", paste::curl(&handshake, origin).join(" "));
    }
}

/// SIGTERM or Ctrl-C, told to everybody who waits for it.
#[derive(Clone)]
struct Terminated(watch::Receiver<bool>);

impl Terminated {
    fn listen() -> std::io::Result<Self> {
        let (tell, told) = watch::channel(false);
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tell.send_replace(true);
        });
        Ok(Self(told))
    }

    async fn wait(mut self) {
        let _ = self.0.wait_for(|told| *told).await;
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
