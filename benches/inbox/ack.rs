//! How long a sender waits for its acknowledgement, while handlers are instant and while they are slow: the same load, over
//! sockets, on Postgres, with a worker in the same process.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tower_webhook::testing::TestSender;
use tower_webhook::{WebhookEvent, WebhookLayer, Worker, scheme};

use crate::Effort;
use crate::stores::Stores;
use crate::support::load::new_key;
use crate::support::report::{Report, median};

const SLOW: Duration = Duration::from_millis(200);
/// What 64 handlers of 200 ms can do is 320; the rest waits.
const PER_SECOND: u32 = 500;

pub(crate) async fn measure(report: &mut Report, effort: Effort, stores: &Stores) {
    let deliveries = (5_000.0 * effort.operations) as usize;
    let mut rounds = Vec::new();
    for _ in 0..effort.rounds {
        stores.empty().await;
        let instant = acknowledge(stores, Duration::ZERO, deliveries).await;
        stores.empty().await;
        let slow = acknowledge(stores, SLOW, deliveries).await;
        rounds.push((slow, instant));
    }
    println!("\npostgres, acknowledgements over sockets at {PER_SECOND} per second, p99");
    println!("  {:<34}{:>10.0} µs", "handlers take 200 ms", median(rounds.iter().map(|round| round.0)));
    println!("  {:<34}{:>10.0} µs", "handlers are instant", median(rounds.iter().map(|round| round.1)));
    report.number("ack_p99_slow_vs_instant", median(rounds.iter().map(|round| round.0 / round.1)));
}

/// The 99th percentile, in microseconds.
async fn acknowledge(stores: &Stores, time: Duration, deliveries: usize) -> f64 {
    let handlers = Router::new().route(
        "/webhooks",
        post(async move |_: WebhookEvent| {
            if !time.is_zero() {
                tokio::time::sleep(time).await;
            }
        }),
    );
    let scheme = scheme::timestamped("whsec_bench").expect("a secret");
    let app = handlers.clone().layer(WebhookLayer::inbox(scheme.clone(), stores.postgres.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url: Uri = format!("http://{}/webhooks", listener.local_addr().expect("an address")).parse().expect("a URL");
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(stores.postgres.clone(), handlers).grace(Duration::from_secs(60));
    let worker = tokio::spawn(worker.run(async { _ = stopped.await }));

    let (sender, client) = (TestSender::new(scheme), Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>());
    let mut ticks = interval(Duration::from_secs(1) / PER_SECOND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut sent = tokio::task::JoinSet::new();
    for _ in 0..deliveries {
        ticks.tick().await;
        let (request, client) = (request(&sender, &url), client.clone());
        sent.spawn(async move {
            let begun = Instant::now();
            let response = client.request(request.map(Full::new)).await.expect("an answer");
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.expect("its end");
            begun.elapsed()
        });
    }
    let mut times = sent.join_all().await;
    times.sort_unstable();
    drop(stop);
    worker.await.expect("no panic");
    server.abort();
    times[times.len() * 99 / 100].as_secs_f64() * 1e6
}

/// About 1 KiB.
fn request(sender: &TestSender, url: &Uri) -> Request<Bytes> {
    let key = new_key();
    let body = format!(r#"{{"id":"{}","type":"invoice.paid","data":"{}"}}"#, key.id(), "x".repeat(960));
    let mut request = sender.deliver(body).request_as::<Bytes>();
    *request.uri_mut() = url.clone();
    request
}
