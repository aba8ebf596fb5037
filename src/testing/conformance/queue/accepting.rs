//! What is accepted, and what everybody else is told of it.

use std::time::Duration;

use super::super::Harness;
use super::super::bench::{COMPLETED, FRESH, IN_FLIGHT, LONG};
use super::bench::{ACCEPTED, Desk, Draft};
use crate::store::queue::{EventState, Queue};
use crate::store::{Claim, ClaimToken, Completion, Hold, Store};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    accepted_event_is_accepted_to_everybody(harness).await;
    own_token_is_fresh_again(harness).await;
    leased_event_is_accepted_even_when_its_lease_has_lapsed(harness).await;
    finished_event_is_completed(harness).await;
    expired_event_is_accepted_anew(harness).await;
    inline_claim_is_in_flight(harness).await;
    inline_completion_is_completed(harness).await;
    released_or_lapsed_inline_claim_is_accepted(harness).await;
    other_body_is_noticed(harness).await;
    what_was_accepted_comes_back_as_it_was(harness).await;
    peeking_tells_what_is_known_and_keeps_nothing(harness).await;
}

/// As accepting would be answered, in every state.
pub async fn peeking_tells_what_is_known_and_keeps_nothing(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("peeking_tells_what_is_known_and_keeps_nothing", harness).await;
    let event = Draft::new("evt_1");
    desk.peeks(&event, None).await;
    desk.peeks(&event, None).await;
    desk.leases_nothing().await;
    desk.keeps(event.clone()).await;
    desk.peeks(&event, Some(ACCEPTED)).await;
    let mut changed = event.clone();
    changed.request.body = "other bytes".into();
    desk.peeks(&changed, Some(Claim::Accepted { same_body: false })).await;
    let leased = desk.leases(&event).await;
    desk.peeks(&event, Some(ACCEPTED)).await;
    desk.completes_for(harness.retention(), &leased, Hold::Held).await;
    desk.peeks(&event, Some(COMPLETED)).await;
    harness.pass(harness.retention() * 2).await;
    desk.peeks(&event, None).await;

    let inline = Draft::new("inline");
    let token = desk.claims_for(harness.lease(), &inline, FRESH).await;
    desk.peeks(&inline, Some(IN_FLIGHT)).await;
    let released = desk.inbox.release(&inline.key, token).await;
    desk.verify("release", desk.answered("release", released), Hold::Held);
    desk.peeks(&inline, None).await;
    desk.claims_for(harness.lease(), &inline, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    desk.peeks(&inline, None).await;
}

/// Once accepted, an event is queued to claims and to further deliveries.
pub async fn accepted_event_is_accepted_to_everybody(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("accepted_event_is_accepted_to_everybody", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    desk.accepts(&event, ACCEPTED).await;
    desk.claims(&event, ACCEPTED).await;
    desk.is_in(&event, EventState::Waiting).await;
    desk.accepts(&Draft::new("evt_2"), FRESH).await;
}

/// An acceptance whose reply was lost is repeated, and is still one.
pub async fn own_token_is_fresh_again(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("own_token_is_fresh_again", harness).await;
    let (event, token) = (Draft::new("evt_1"), ClaimToken::random());
    desk.accepts_by(token, &event, FRESH).await;
    desk.accepts_by(token, &event, FRESH).await;
    desk.leases(&event).await;
    desk.leases_nothing().await;
}

/// An event that a worker runs is going to be run, whatever becomes of that worker.
pub async fn leased_event_is_accepted_even_when_its_lease_has_lapsed(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("leased_event_is_accepted_even_when_its_lease_has_lapsed", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    desk.leases_for(harness.lease(), &event).await;
    desk.claims(&event, ACCEPTED).await;
    harness.pass(harness.lease() * 2).await;
    desk.claims(&event, ACCEPTED).await;
    desk.accepts(&event, ACCEPTED).await;
}

/// Completed or dead, it is not to be run again.
pub async fn finished_event_is_completed(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("finished_event_is_completed", harness).await;
    let done = desk.keeps(Draft::new("done")).await;
    desk.completes(&desk.leases(&done).await, Hold::Held).await;
    let dead = desk.keeps(Draft::new("dead")).await;
    desk.buries(&desk.leases(&dead).await, "no use", Hold::Held).await;
    for event in [&done, &dead] {
        desk.claims(event, COMPLETED).await;
        desk.accepts(event, COMPLETED).await;
    }
    desk.leases_nothing().await;
}

/// After its retention a completed event is as if it had never been.
pub async fn expired_event_is_accepted_anew(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("expired_event_is_accepted_anew", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    desk.completes_for(harness.retention(), &desk.leases(&event).await, Hold::Held).await;
    desk.accepts(&event, COMPLETED).await;
    harness.pass(harness.retention() * 2).await;
    desk.accepts(&event, FRESH).await;
    let again = desk.leases(&event).await;
    desk.verify("attempt", again.attempt, 1);
}

/// What an inline receiver runs is not queued: it may still fail.
pub async fn inline_claim_is_in_flight(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("inline_claim_is_in_flight", harness).await;
    let event = Draft::new("evt_1");
    desk.claims(&event, FRESH).await;
    desk.accepts(&event, IN_FLIGHT).await;
    desk.leases_nothing().await;
}

/// What an inline receiver has completed is completed.
pub async fn inline_completion_is_completed(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("inline_completion_is_completed", harness).await;
    let event = Draft::new("evt_1");
    let token = desk.claims(&event, FRESH).await;
    let done = Completion::succeeded("200 OK", LONG);
    let came = desk.inbox.complete(&event.claim(token, LONG), &done).await;
    desk.verify("complete", desk.answered("complete", came), Hold::Held);
    desk.accepts(&event, COMPLETED).await;
    desk.leases_nothing().await;
}

/// What an inline receiver has given up is free to take.
pub async fn released_or_lapsed_inline_claim_is_accepted(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("released_or_lapsed_inline_claim_is_accepted", harness).await;
    let (released, lapsed) = (Draft::new("released"), Draft::new("lapsed"));
    let token = desk.claims(&released, FRESH).await;
    let came = desk.inbox.release(&released.key, token).await;
    desk.verify("release", desk.answered("release", came), Hold::Held);
    desk.accepts(&released, FRESH).await;
    desk.leases(&released).await;

    let zombie = desk.claims_for(harness.lease(), &lapsed, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    desk.accepts(&lapsed, FRESH).await;
    let came = desk.inbox.complete(&lapsed.claim(zombie, LONG), &Completion::succeeded("200 OK", LONG)).await;
    desk.verify("the zombie's complete", desk.answered("complete", came), Hold::Lost);
    let leased = desk.leases(&lapsed).await;
    desk.completes(&leased, Hold::Held).await;
}

/// `same_body` compares with the body that was accepted.
pub async fn other_body_is_noticed(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("other_body_is_noticed", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let mut other = event.clone();
    other.request.body = "another body".into();
    desk.accepts(&other, Claim::Accepted { same_body: false }).await;
    desk.claims(&other, Claim::Accepted { same_body: false }).await;
    desk.completes(&desk.leases(&event).await, Hold::Held).await;
    desk.accepts(&other, Claim::Completed { same_body: false }).await;
}

/// Every byte of the request, the type, and the key in its parts.
pub async fn what_was_accepted_comes_back_as_it_was(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("what_was_accepted_comes_back_as_it_was", harness).await;
    let mut every_byte = Draft::new("日本 🦀 'x\"");
    every_byte.request.body = (0..=255).cycle().take(70_000).collect::<Vec<u8>>().into();
    let mut bare = Draft::new("bare");
    (bare.request.head, bare.request.body, bare.event_type) = ("".into(), "".into(), None);
    for draft in [every_byte, bare] {
        let event = desk.keeps(draft).await;
        let leased = desk.leases(&event).await;
        desk.verify("key", &leased.key, &event.key);
        desk.verify("tenant", leased.key.tenant(), event.key.tenant());
        desk.verify("type", leased.event_type.as_deref(), event.event_type);
        desk.verify("request", &leased.request, &event.request);
        desk.verify("body", &leased.request.body, &event.request.body);
        desk.verify("fingerprint", leased.claim(LONG).fingerprint, event.claim(leased.token, LONG).fingerprint);
        desk.verify("attempt", (leased.attempt, leased.superseded), (1, false));
        desk.completes_for(Duration::from_secs(3600), &leased, Hold::Held).await;
        let kept = desk.kept(&event).await;
        desk.verify("kept request", kept.request.as_ref(), Some(&event.request));
    }
}
