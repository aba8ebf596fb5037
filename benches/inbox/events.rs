//! Events to accept.

use std::time::SystemTime;

use bytes::Bytes;
use tower_webhook::queue::{Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken};

use crate::support::load::{LEASE, Load, new_key};

/// About 1 KiB, behind a head as the layer writes it.
fn stored_request() -> StoredRequest {
    let head = Bytes::from_static(
        b"POST /webhooks\n1700000000000 604800000 1 1 1 1\n\ncontent-type: application/json\nuser-agent: bench\n",
    );
    StoredRequest::new(head, Bytes::from_static(&[b'x'; 1024]), SystemTime::now())
}

/// Accepts an event that nobody has seen.
pub(crate) async fn accept_new(inbox: &impl Queue) {
    let key = new_key();
    let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE).event_type(Some("invoice.paid"));
    let answer = inbox.enqueue(&claim, &stored_request()).await;
    assert!(matches!(answer, Ok(Claim::Fresh { .. })), "{answer:?}");
}

/// Acceptances of new events.
pub(crate) async fn accepts<I: Queue + Clone>(inbox: &I, concurrency: usize, operations: usize) -> Load {
    let inbox = inbox.clone();
    Load::run(concurrency, operations, move || {
        let inbox = inbox.clone();
        async move { accept_new(&inbox).await }
    })
    .await
}
