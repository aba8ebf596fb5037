//! Rows 7 to 10: clients that go away, over real sockets.

use std::net::SocketAddr;

use axum::body::Body;
use axum::http::Request;
use tokio::io::AsyncWriteExt;
use tower_webhook::Outcome;

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb};
use crate::support::socket::{PATIENCE, RawClient, raw, serve};

/// Turns a hang into a failure.
async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("something that should have happened long ago")
}

async fn send(address: SocketAddr, request: Request<Body>) -> RawClient {
    let (head, body) = raw(request).await;
    let mut client = RawClient::connect(address).await;
    client.write(format!("{head}content-length: {}\r\n\r\n", body.len())).await;
    client.write(body).await;
    client
}

/// A reset, not an orderly close.
fn reset(client: RawClient) {
    client.0.set_zero_linger().expect("a socket option");
    drop(client);
}

async fn status(client: &mut RawClient) -> String {
    client.read_head().await.lines().next().unwrap_or_default().to_owned()
}

/// What is left running, detached, comes to its end.
async fn settled(receiver: &ControlledReceiver) {
    let drain = receiver.layer.drain_handle();
    soon(async {
        while drain.running() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn row_7_reset_mid_handler_leaves_the_handler_running() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let address = serve(receiver.app.clone()).await;
    let client = send(address, receiver.event("evt_1").request_as()).await;
    soon(receiver.handler.started(1)).await;
    reset(client);
    soon(receiver.requests.dropped(1)).await;
    assert_eq!((receiver.handler.dropped_so_far(), receiver.store.held()), (0, (1, 0)));

    receiver.handler.go();
    settled(&receiver).await;
    assert_eq!(receiver.store.held(), (0, 1), "completed, though nobody was there to be told");
    let mut retry = send(address, receiver.event("evt_1").request_as()).await;
    assert_eq!(status(&mut retry).await, "HTTP/1.1 200 OK");
    assert_eq!(receiver.handler.runs(), 1);
}

#[tokio::test]
async fn row_8_half_close_mid_handler_leaves_the_handler_running() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let address = serve(receiver.app.clone()).await;
    let mut client = send(address, receiver.event("evt_1").request_as()).await;
    soon(receiver.handler.started(1)).await;
    client.0.shutdown().await.expect("a half-closed connection");
    soon(receiver.requests.dropped(1)).await;

    receiver.handler.go();
    settled(&receiver).await;
    assert_eq!((receiver.handler.dropped_so_far(), receiver.store.held()), (0, (0, 1)));
    let mut retry = send(address, receiver.event("evt_1").request_as()).await;
    assert_eq!(status(&mut retry).await, "HTTP/1.1 200 OK");
    assert_eq!(receiver.handler.runs(), 1);
}

/// Rows 7 and 8 for a handler that then fails: the retry runs it again.
#[tokio::test]
async fn row_7_detached_handler_that_fails_releases() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let address = serve(receiver.app.clone()).await;
    let client = send(address, receiver.event("evt_1").request_as()).await;
    soon(receiver.handler.started(1)).await;
    reset(client);
    soon(receiver.requests.dropped(1)).await;
    receiver.handler.answers(500);
    receiver.handler.go();
    settled(&receiver).await;
    assert_eq!(receiver.store.held(), (0, 0));
    receiver.handler.answers(200);
    receiver.handler.go();
    let mut retry = send(address, receiver.event("evt_1").request_as()).await;
    assert_eq!(status(&mut retry).await, "HTTP/1.1 200 OK");
    assert_eq!(receiver.handler.runs(), 2);
}

#[tokio::test]
async fn row_9_disconnect_mid_body_touches_nothing() {
    let receiver = ControlledReceiver::new();
    let address = serve(receiver.app.clone()).await;
    for (n, orderly) in [(1, true), (2, false)] {
        let (head, body) = raw(receiver.event("evt_1").request_as()).await;
        let mut client = RawClient::connect(address).await;
        client.write(format!("{head}content-length: {}\r\n\r\n", body.len())).await;
        client.write(&body[..body.len() - 1]).await;
        soon(receiver.requests.begun(n)).await;
        if orderly {
            client.0.shutdown().await.expect("a half-closed connection");
            let answer = client.read_to_end().await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
        } else {
            reset(client);
        }
        soon(receiver.requests.ended(n)).await;
        assert_eq!((receiver.handler.runs(), receiver.store.held()), (0, (0, 0)));
        assert!(receiver.store.keys().is_empty(), "the store was not even asked");
    }
    let mut retry = send(address, receiver.event("evt_1").request_as()).await;
    assert_eq!(status(&mut retry).await, "HTTP/1.1 200 OK");
    assert_eq!(receiver.handler.runs(), 1);
}

#[tokio::test]
async fn row_10_disconnect_while_the_claim_is_in_flight_completes_detached() {
    for fault in [Fault::Hang, Fault::HoldReply] {
        let receiver = ControlledReceiver::configured(|layer| layer.claim_deadline(PATIENCE).expect("a deadline"));
        let address = serve(receiver.app.clone()).await;
        receiver.store.breaks(Verb::Claim, fault);
        let client = send(address, receiver.event("evt_1").request_as()).await;
        soon(receiver.store.called(Verb::Claim, 1)).await;
        reset(client);
        soon(receiver.requests.dropped(1)).await;
        receiver.store.heal(Verb::Claim);
        settled(&receiver).await;
        assert_eq!((receiver.handler.runs(), receiver.store.held()), (1, (0, 1)), "{fault:?}");
        let mut retry = send(address, receiver.event("evt_1").request_as()).await;
        assert_eq!(status(&mut retry).await, "HTTP/1.1 200 OK");
        assert_eq!(receiver.handler.runs(), 1);
    }
}

#[tokio::test]
async fn row_10_disconnect_while_the_claim_is_in_flight_releases_where_nothing_detaches() {
    let receiver = ControlledReceiver::configured(|layer| {
        layer.cancel_on_disconnect().claim_deadline(PATIENCE).expect("a deadline")
    });
    let address = serve(receiver.app.clone()).await;
    receiver.store.breaks(Verb::Claim, Fault::HoldReply);
    let client = send(address, receiver.event("evt_1").request_as()).await;
    soon(receiver.store.called(Verb::Claim, 1)).await;
    assert_eq!(receiver.store.held(), (1, 0), "the store has it, and nobody knows yet");
    reset(client);
    soon(receiver.requests.dropped(1)).await;
    soon(receiver.store.called(Verb::Release, 1)).await;
    receiver.store.heal(Verb::Claim);
    assert_eq!((receiver.handler.runs(), receiver.store.held()), (0, (0, 0)), "released by token");
    let mut retry = send(address, receiver.event("evt_1").request_as()).await;
    assert_eq!(status(&mut retry).await, "HTTP/1.1 200 OK");
}

/// A client that goes away while it waits for the first delivery's outcome takes nothing along.
#[tokio::test]
async fn disconnect_while_waiting_for_the_first_delivery_changes_nothing() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let address = serve(receiver.app.clone()).await;
    let mut first = send(address, receiver.event("evt_1").request_as()).await;
    soon(receiver.handler.started(1)).await;
    let waiting = send(address, receiver.event("evt_1").request_as()).await;
    soon(receiver.store.called(Verb::Claim, 3)).await;
    reset(waiting);
    soon(receiver.requests.dropped(1)).await;
    assert_eq!(receiver.layer.drain_handle().running(), 1, "only the first");
    receiver.handler.go();
    assert_eq!(status(&mut first).await, "HTTP/1.1 200 OK");
    assert_eq!(receiver.handler.runs(), 1);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
}
