//! Whole deliveries over sockets: signed, sent, verified, claimed, run, completed, answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{Router, routing::post};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tower_webhook::store::IntoStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{WebhookEvent, WebhookLayer, scheme};

use crate::Effort;
use crate::support::load::{Load, new_key};

const CONCURRENCY: usize = 16;

pub(crate) async fn measure<S: IntoStore + Clone>(name: &str, effort: Effort, store: &S) {
    let layer = WebhookLayer::new(scheme::timestamped("whsec_bench").expect("a secret"), store.clone());
    let app = Router::new().route("/webhooks", post(|event: WebhookEvent| async move { drop(event) })).layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/webhooks", listener.local_addr().expect("an address"));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let operations = (20_000.0 * effort.operations) as usize;
    let ids: Vec<String> = (0..operations).map(|_| new_key().id().to_owned()).collect();
    println!("\n{name}, whole deliveries over sockets, {CONCURRENCY} at a time");
    for what in ["fresh", "duplicate"] {
        let load = deliver(&url, &ids).await;
        println!(
            "  {what:<14}{:>10.0} per second, p50 {:>6.0} µs, p99 {:>6.0} µs",
            load.per_second,
            load.percentile(0.5),
            load.percentile(0.99)
        );
    }
    server.abort();
}

/// Delivers every event once.
async fn deliver(url: &str, ids: &[String]) -> Load {
    let sender = TestSender::new(scheme::timestamped("whsec_bench").expect("a secret"));
    let requests: Vec<_> = ids.iter().map(|id| request(&sender, url, id)).collect();
    let (requests, next) = (Arc::new(requests), Arc::new(AtomicUsize::new(0)));
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    Load::run(CONCURRENCY, ids.len(), move || {
        let (requests, next, client) = (requests.clone(), next.clone(), client.clone());
        async move {
            let request = requests[next.fetch_add(1, Ordering::Relaxed)].clone();
            let response = client.request(request.map(Full::new)).await.expect("an answer");
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.expect("its end");
        }
    })
    .await
}

/// About 1 KiB.
fn request(sender: &TestSender, url: &str, id: &str) -> Request<Bytes> {
    let body = format!(r#"{{"id":"{id}","type":"invoice.paid","data":"{}"}}"#, "x".repeat(960));
    let mut request = sender.deliver(body).request_as::<Bytes>();
    *request.uri_mut() = url.parse::<Uri>().expect("a URL");
    request
}
