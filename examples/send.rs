//! Plays the provider: signs events and sends them to a receiver, once or many times over.
//!
//! ```text
//! cargo run --example receiver                                          # in one terminal
//! cargo run --example send -- --count 1000 --duplicates 3               # in another: 4,000 deliveries of 1,000 events
//! cargo run --example send -- --tamper                                  # 401
//! cargo run --example send -- --age 301                                 # 401: five minutes are tolerated
//! cargo run --example send -- --secret whsec_new --secret whsec_old     # signed with both, as during a rotation
//! cargo run --example send -- --scheme github                           # as GitHub would; to `receiver --scheme github`
//! ```
//!
//! On stdout is how often each status came and how long the answers took. The `receiver` example says how each delivery
//! ended, so below a status is how many were fresh (`completed`) and how many `duplicate`. The exit code is 0 if every
//! delivery was answered, whatever the answer.

mod support;

use std::collections::BTreeMap;
use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;
use tower_webhook::testing::TestSender;

use self::support::paste::OUTCOME_HEADER;
use self::support::{demo, events, listing, schemes};

type HttpClient = Client<HttpConnector, Full<Bytes>>;
type AnyError = Box<dyn Error + Send + Sync>;

/// Signs events and sends them to a webhook receiver.
#[derive(Clone, Parser)]
struct Args {
    /// Where to send to; plain http only.
    #[arg(long, default_value = "http://127.0.0.1:3000/webhooks", value_parser = plain_http)]
    url: Uri,
    /// The receiver's URL as the provider knows it, for schemes that sign it [default: the one that is sent to].
    #[arg(long)]
    public_url: Option<String>,
    /// What to sign with. May be repeated: each delivery is then signed with every secret that the scheme has room for
    /// [default: the scheme's demo secret, such as whsec_demo_secret].
    #[arg(long = "secret")]
    secrets: Vec<String>,
    /// How to sign, and whose events to send.
    #[arg(long, default_value = "stripe")]
    scheme: String,
    /// Prints all schemes and what is known of them, and exits.
    #[arg(long)]
    list_schemes: bool,
    /// How many events to send.
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// How many more times each event is sent: with the same id, signed anew, in no particular order.
    #[arg(long, default_value_t = 0)]
    duplicates: usize,
    /// How many deliveries are on their way at once.
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    concurrency: usize,
    /// Pretends to have signed this many seconds ago.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    age: u64,
    /// Alters the body after signing it.
    #[arg(long)]
    tamper: bool,
    /// The events' type [default: one that the provider has, such as invoice.paid].
    #[arg(long)]
    event_type: Option<String>,
    /// What the events' ids begin with (default: `evt_` and a random number, so that every run sends new events).
    #[arg(long)]
    id: Option<String>,
    /// How many seconds to wait for an answer.
    #[arg(long, default_value_t = 30)]
    timeout: u64,
}

#[tokio::main]
async fn main() -> Result<ExitCode, AnyError> {
    let args = Args::parse();
    if args.list_schemes {
        print!("{}", listing::table()?);
        return Ok(ExitCode::SUCCESS);
    }
    let provider = Arc::new(Provider::new(args.clone())?);
    let mut events: Vec<usize> = std::iter::repeat_n(1..=args.count, args.duplicates + 1).flatten().collect();
    events.sort_by_cached_key(|_| random());

    // It shows itself on stderr, and only if that is a terminal.
    let progress = ProgressBar::new(events.len() as u64)
        .with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len}  {per_sec}  {eta} left")?);
    let queue = Arc::new(Mutex::new(events.into_iter()));
    let started = Instant::now();
    let mut lanes = JoinSet::new();
    for _ in 0..args.concurrency {
        lanes.spawn(send_queued(provider.clone(), queue.clone(), progress.clone()));
    }
    let mut tally = Tally::default();
    while let Some(lane) = lanes.join_next().await {
        tally.merge(lane?);
    }
    progress.finish_and_clear();
    tally.print(started.elapsed());
    Ok(if tally.unanswered == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sends what is queued, one delivery after the other.
async fn send_queued(
    provider: Arc<Provider>,
    queue: Arc<Mutex<impl Iterator<Item = usize>>>,
    progress: ProgressBar,
) -> Tally {
    let next = || queue.lock().expect("no lane panics while it holds the lock").next();
    let mut tally = Tally::default();
    while let Some(number) = next() {
        let request = provider.deliver(number);
        let started = Instant::now();
        match provider.send(request).await {
            Ok(answer) => tally.answered(answer, started.elapsed()),
            Err(error) => tally.failed(&*error),
        }
        progress.inc(1);
    }
    tally
}

struct Provider {
    args: Args,
    sender: TestSender,
    client: HttpClient,
    id_prefix: String,
}

impl Provider {
    fn new(args: Args) -> Result<Self, AnyError> {
        let given = schemes::Given {
            secrets: demo::secrets(&args.secrets, &args.scheme),
            url: Some(args.public_url.clone().unwrap_or_else(|| args.url.to_string())),
            ..Default::default()
        };
        let scheme = schemes::scheme(&args.scheme, given)?;
        if !events::can_sign(&*scheme) {
            return Err("a public key cannot sign: give the private one".into());
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Ok(Self {
            sender: TestSender::new(scheme).uri(&args.url.to_string()),
            client: Client::builder(TokioExecutor::new()).pool_max_idle_per_host(args.concurrency).build(connector),
            id_prefix: args.id.clone().unwrap_or_else(|| format!("evt_{:016x}", random())),
            args,
        })
    }

    /// A delivery of event `number`, signed now: a retry is the same event under another signature.
    fn deliver(&self, number: usize) -> Request<Full<Bytes>> {
        let id = format!("{}_{number}", self.id_prefix);
        let mut delivery = events::deliver(&self.sender, &self.args.scheme, &id, self.args.event_type.as_deref())
            .aged(Duration::from_secs(self.args.age));
        if self.args.tamper {
            delivery = delivery.tampered();
        }
        delivery.request()
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, AnyError> {
        let answer = async {
            let response = self.client.request(request).await?;
            let outcome = response.headers().get(OUTCOME_HEADER).and_then(|value| value.to_str().ok());
            let answer = Answer { status: response.status(), outcome: outcome.map(str::to_owned) };
            // A connection can carry the next delivery only once its answer has been read to the end.
            response.into_body().collect().await?;
            Ok(answer)
        };
        tokio::time::timeout(Duration::from_secs(self.args.timeout), answer).await?
    }
}

/// What came back of one delivery.
struct Answer {
    status: StatusCode,
    /// How it ended, if the receiver says so.
    outcome: Option<String>,
}

/// What came back of all of them.
#[derive(Default)]
struct Tally {
    statuses: BTreeMap<u16, Statuses>,
    latencies: Vec<Duration>,
    unanswered: usize,
    first_error: Option<String>,
}

/// The answers with one status.
#[derive(Default)]
struct Statuses {
    count: usize,
    outcomes: BTreeMap<String, usize>,
}

impl Tally {
    fn answered(&mut self, answer: Answer, latency: Duration) {
        let statuses = self.statuses.entry(answer.status.as_u16()).or_default();
        statuses.count += 1;
        if let Some(outcome) = answer.outcome {
            *statuses.outcomes.entry(outcome).or_default() += 1;
        }
        self.latencies.push(latency);
    }

    fn failed(&mut self, error: &dyn Error) {
        self.unanswered += 1;
        self.first_error.get_or_insert_with(|| with_causes(error));
    }

    fn merge(&mut self, other: Self) {
        for (status, of_it) in other.statuses {
            let statuses = self.statuses.entry(status).or_default();
            statuses.count += of_it.count;
            for (outcome, count) in of_it.outcomes {
                *statuses.outcomes.entry(outcome).or_default() += count;
            }
        }
        self.latencies.extend(other.latencies);
        self.unanswered += other.unanswered;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    fn print(&mut self, elapsed: Duration) {
        for (status, Statuses { count, outcomes }) in &self.statuses {
            println!("{status}  {count}");
            for (outcome, count) in outcomes {
                println!("  {outcome}  {count}");
            }
        }
        if let Some(error) = &self.first_error {
            println!("connection errors  {}", self.unanswered);
            eprintln!("the first of them: {error}");
        }
        self.latencies.sort_unstable();
        if let (Some(p50), Some(p99)) = (self.percentile(50), self.percentile(99)) {
            let seconds = elapsed.as_secs_f64();
            let rate = self.latencies.len() as f64 / seconds;
            println!("p50 {p50:.1} ms  p99 {p99:.1} ms  in {seconds:.2} s  ({rate:.0} /s)");
        }
    }

    /// In milliseconds, by nearest rank; `latencies` must be sorted.
    fn percentile(&self, percent: usize) -> Option<f64> {
        let rank = (self.latencies.len() * percent).div_ceil(100);
        self.latencies.get(rank.checked_sub(1)?).map(|latency| latency.as_secs_f64() * 1000.0)
    }
}

fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn plain_http(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
    match uri.scheme_str() {
        Some("http") => Ok(uri),
        Some("https") => Err("this example has no TLS: send to the plain http port behind the proxy".to_owned()),
        _ => Err("write it in full, as in http://127.0.0.1:3000/webhooks".to_owned()),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing would be sent".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Good enough to shuffle with and to name a run: every `RandomState` has other keys.
fn random() -> u64 {
    RandomState::new().hash_one(())
}
