//! Enqueued events, and the answers that other callers get.

use std::time::Duration;

use super::fixture::{COMPLETED, FRESH, IN_FLIGHT, LONG};
use super::queue_fixture::{ACCEPTED, NewEvent, QueueFixture};
use super::suite::{Case, Harness, cases};
use crate::store::queue::{EventState, Queue};
use crate::store::{Claim, ClaimToken, Completion, Hold, Store};

pub(super) fn cases<H: Harness<Store: Queue>>() -> Vec<Case<H>> {
    cases![
        enqueued_event_is_accepted,
        own_token_is_fresh_again,
        leased_event_is_accepted_even_when_its_lease_has_lapsed,
        finished_event_is_completed,
        expired_event_is_enqueued_anew,
        inline_claim_is_in_flight,
        inline_completion_is_completed,
        released_or_lapsed_inline_claim_is_enqueued,
        other_body_is_noticed,
        enqueued_event_comes_back_as_it_was,
        peek_answers_as_enqueue_and_stores_nothing,
    ]
}

/// In every state of the event, peek answers as enqueue would.
async fn peek_answers_as_enqueue_and_stores_nothing(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = NewEvent::new("evt_1");
    queue.peeks(&event, None).await;
    queue.peeks(&event, None).await;
    queue.leases_nothing().await;
    queue.adds(event.clone()).await;
    queue.peeks(&event, Some(ACCEPTED)).await;
    let mut changed = event.clone();
    changed.request.body = "other bytes".into();
    queue.peeks(&changed, Some(Claim::Accepted { same_body: false })).await;
    let leased = queue.leases(&event).await;
    queue.peeks(&event, Some(ACCEPTED)).await;
    queue.completes_for(harness.retention(), &leased, Hold::Held).await;
    queue.peeks(&event, Some(COMPLETED)).await;
    harness.pass(harness.retention() * 2).await;
    queue.peeks(&event, None).await;

    let inline = NewEvent::new("inline");
    let token = queue.claims_for(harness.lease(), &inline, FRESH).await;
    queue.peeks(&inline, Some(IN_FLIGHT)).await;
    let released = queue.store.release(&inline.key, token).await;
    queue.verify("release", queue.answered("release", released), Hold::Held);
    queue.peeks(&inline, None).await;
    queue.claims_for(harness.lease(), &inline, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    queue.peeks(&inline, None).await;
}

/// A queued event is accepted to claims and to further deliveries.
async fn enqueued_event_is_accepted(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    queue.enqueues(&event, ACCEPTED).await;
    queue.claims(&event, ACCEPTED).await;
    queue.is_in(&event, EventState::Waiting).await;
    queue.enqueues(&NewEvent::new("evt_2"), FRESH).await;
}

/// An enqueue whose reply was lost is repeated under its token, and stores the event once.
async fn own_token_is_fresh_again(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let (event, token) = (NewEvent::new("evt_1"), ClaimToken::random());
    queue.enqueues_by(token, &event, FRESH).await;
    queue.enqueues_by(token, &event, FRESH).await;
    queue.leases(&event).await;
    queue.leases_nothing().await;
}

/// An event that a worker has leased is going to be run, even if that worker is gone.
async fn leased_event_is_accepted_even_when_its_lease_has_lapsed(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    queue.leases_for(harness.lease(), &event).await;
    queue.claims(&event, ACCEPTED).await;
    harness.pass(harness.lease() * 2).await;
    queue.claims(&event, ACCEPTED).await;
    queue.enqueues(&event, ACCEPTED).await;
}

/// A completed or dead event is not run again.
async fn finished_event_is_completed(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let done = queue.adds(NewEvent::new("done")).await;
    queue.completes(&queue.leases(&done).await, Hold::Held).await;
    let dead = queue.adds(NewEvent::new("dead")).await;
    queue.buries(&queue.leases(&dead).await, "no use", Hold::Held).await;
    for event in [&done, &dead] {
        queue.claims(event, COMPLETED).await;
        queue.enqueues(event, COMPLETED).await;
    }
    queue.leases_nothing().await;
}

/// After its retention a completed event is as if it had never been.
async fn expired_event_is_enqueued_anew(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    queue.completes_for(harness.retention(), &queue.leases(&event).await, Hold::Held).await;
    queue.enqueues(&event, COMPLETED).await;
    harness.pass(harness.retention() * 2).await;
    queue.enqueues(&event, FRESH).await;
    let again = queue.leases(&event).await;
    queue.verify("attempt", again.attempt, 1);
}

/// An event that an inline receiver runs is not queued: it may still fail.
async fn inline_claim_is_in_flight(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = NewEvent::new("evt_1");
    queue.claims(&event, FRESH).await;
    queue.enqueues(&event, IN_FLIGHT).await;
    queue.leases_nothing().await;
}

/// An event that an inline receiver has completed is completed for the queue, too.
async fn inline_completion_is_completed(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = NewEvent::new("evt_1");
    let token = queue.claims(&event, FRESH).await;
    let done = Completion::succeeded("200 OK", LONG);
    let came = queue.store.complete(&event.claim(token, LONG), &done).await;
    queue.verify("complete", queue.answered("complete", came), Hold::Held);
    queue.enqueues(&event, COMPLETED).await;
    queue.leases_nothing().await;
}

/// An event that an inline receiver has released, or whose claim lapsed, can be enqueued.
async fn released_or_lapsed_inline_claim_is_enqueued(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let (released, lapsed) = (NewEvent::new("released"), NewEvent::new("lapsed"));
    let token = queue.claims(&released, FRESH).await;
    let came = queue.store.release(&released.key, token).await;
    queue.verify("release", queue.answered("release", came), Hold::Held);
    queue.enqueues(&released, FRESH).await;
    queue.leases(&released).await;

    let overtaken = queue.claims_for(harness.lease(), &lapsed, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    queue.enqueues(&lapsed, FRESH).await;
    let came = queue.store.complete(&lapsed.claim(overtaken, LONG), &Completion::succeeded("200 OK", LONG)).await;
    queue.verify("the overtaken holder's complete", queue.answered("complete", came), Hold::Lost);
    let leased = queue.leases(&lapsed).await;
    queue.completes(&leased, Hold::Held).await;
}

/// `same_body` compares with the body that was enqueued.
async fn other_body_is_noticed(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let mut other = event.clone();
    other.request.body = "another body".into();
    queue.enqueues(&other, Claim::Accepted { same_body: false }).await;
    queue.claims(&other, Claim::Accepted { same_body: false }).await;
    queue.completes(&queue.leases(&event).await, Hold::Held).await;
    queue.enqueues(&other, Claim::Completed { same_body: false }).await;
}

/// A lease returns every byte of the request, the type, and the key in its parts.
async fn enqueued_event_comes_back_as_it_was(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let mut every_byte = NewEvent::new("日本 🦀 'x\"");
    every_byte.request.body = (0..=255).cycle().take(70_000).collect::<Vec<u8>>().into();
    let mut bare = NewEvent::new("bare");
    (bare.request.head, bare.request.body, bare.event_type) = ("".into(), "".into(), None);
    for draft in [every_byte, bare] {
        let event = queue.adds(draft).await;
        let leased = queue.leases(&event).await;
        queue.verify("key", &leased.key, &event.key);
        queue.verify("tenant", leased.key.tenant(), event.key.tenant());
        queue.verify("type", leased.event_type.as_deref(), event.event_type);
        queue.verify("request", &leased.request, &event.request);
        queue.verify("body", &leased.request.body, &event.request.body);
        queue.verify("fingerprint", leased.claim(LONG).fingerprint, event.claim(leased.token, LONG).fingerprint);
        queue.verify("attempt", (leased.attempt, leased.superseded), (1, false));
        queue.completes_for(Duration::from_secs(3600), &leased, Hold::Held).await;
        let kept = queue.gets(&event).await;
        queue.verify("kept request", kept.request.as_ref(), Some(&event.request));
    }
}
