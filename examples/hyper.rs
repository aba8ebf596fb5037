//! The layer over a bare hyper server: no axum, no router, one tower service.
//!
//! ```text
//! cargo run --example hyper
//! cargo run --example send -- --url http://127.0.0.1:3001/ --duplicates 2        # handled once, 200 three times
//! cargo run --example send -- --url http://127.0.0.1:3001/ --event-type a.b      # given up for good: 200, remembered
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};
use tower_webhook::handler::Failure;
use tower_webhook::{WebhookEvent, WebhookLayer, scheme, store::MemoryStore};

/// Receives Stripe's webhooks with nothing but hyper and tower.
#[derive(Parser)]
struct Args {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:3001")]
    listen: SocketAddr,
    /// What the sender signs with. May be repeated: any of them is accepted.
    #[arg(long = "secret", default_value = "whsec_demo_secret")]
    secrets: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    // No router says what this route is called, so the endpoint is named here: the name is part of what the store
    // remembers events under.
    let layer = WebhookLayer::new(scheme::stripe(args.secrets)?, MemoryStore::new()).endpoint("stripe")?;
    let drain = layer.drain_handle();
    let service = TowerToHyperService::new(ServiceBuilder::new().layer(layer).service(service_fn(on_event)));

    let listener = TcpListener::bind(args.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let mut stop = pin!(tokio::signal::ctrl_c());
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            stopped = &mut stop => break stopped?,
        };
        let service = service.clone();
        tokio::spawn(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                eprintln!("a connection failed: {error}");
            }
        });
    }
    // A sender whose answer is cut off by the exit retries, and finds its event either done or released.
    let drained = drain.drain(Duration::from_secs(20)).await;
    println!("drained; {} deliveries were dropped", drained.dropped);
    Ok(())
}

/// The inner service: called once per event, with the signed bytes, after everything else was checked.
async fn on_event(request: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let event = request.extensions().get::<WebhookEvent>().expect("the layer puts it there");
    Ok(match event.event_type() {
        Some("invoice.paid") => {
            println!("{} was paid, {} bytes", event.id(), event.body().len());
            Response::default()
        }
        // Any status but a 2xx would make the sender retry, and the retry run.
        Some(other) => give_up(&format!("nothing handles events of type {other}")),
        None => give_up("the event has no type"),
    })
}

/// No retry will make it better: the layer answers 200 in place of this status, and the store remembers the reason.
fn give_up(reason: &str) -> Response<Full<Bytes>> {
    println!("giving up: {reason}");
    let mut response = Response::default();
    *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    response.extensions_mut().insert(Failure::permanent(reason));
    response
}
