//! The answers to a claim.

use super::Harness;
use super::fixture::{COMPLETED, Caller, FRESH, Fixture, IN_FLIGHT, LONG};
use crate::store::{Claim, Completion, Fingerprint, Hold};

use Caller::{First, Second};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness) {
    first_claim_is_fresh(harness).await;
    second_claim_is_in_flight(harness).await;
    completed_event_is_completed(harness).await;
    failed_event_is_completed(harness).await;
    own_token_is_fresh_again(harness).await;
    own_token_sees_its_completion(harness).await;
    released_event_is_fresh_again(harness).await;
    other_body_is_noticed_in_flight(harness).await;
    other_body_is_noticed_when_completed(harness).await;
    attempts_are_counted_if_at_all(harness).await;
}

/// A key that was never claimed is free.
pub async fn first_claim_is_fresh(harness: &impl Harness) {
    let event = Fixture::new("first_claim_is_fresh", harness).await;
    event.claims(First, FRESH).await;
}

/// A key that another token holds is in flight, however often one asks.
pub async fn second_claim_is_in_flight(harness: &impl Harness) {
    let event = Fixture::new("second_claim_is_in_flight", harness).await;
    event.claims(First, FRESH).await;
    event.claims(Second, IN_FLIGHT).await;
    event.claims(Second, IN_FLIGHT).await;
    event.completes(First, Hold::Held).await;
}

/// A completed key is completed to every other token.
pub async fn completed_event_is_completed(harness: &impl Harness) {
    let event = Fixture::new("completed_event_is_completed", harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
    event.claims(Second, COMPLETED).await;
}

/// An event that was given up must not run again either.
pub async fn failed_event_is_completed(harness: &impl Harness) {
    let event = Fixture::new("failed_event_is_completed", harness).await;
    event.claims(First, FRESH).await;
    event.completes_with(&Completion::failed("no such account: \"☃\"", LONG), First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
}

/// A claim whose reply was lost is repeated under its token, and must not lock itself out.
pub async fn own_token_is_fresh_again(harness: &impl Harness) {
    let event = Fixture::new("own_token_is_fresh_again", harness).await;
    event.claims(First, FRESH).await;
    event.claims(First, FRESH).await;
    event.claims(Second, IN_FLIGHT).await;
    event.completes(First, Hold::Held).await;
}

/// A completed event is completed even to the token that completed it.
pub async fn own_token_sees_its_completion(harness: &impl Harness) {
    let event = Fixture::new("own_token_sees_its_completion", harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.claims(First, COMPLETED).await;
}

/// A release frees the key, for the same token too.
pub async fn released_event_is_fresh_again(harness: &impl Harness) {
    let event = Fixture::new("released_event_is_fresh_again", harness).await;
    event.claims(First, FRESH).await;
    event.releases(First, Hold::Held).await;
    event.claims(Second, FRESH).await;
    event.releases(Second, Hold::Held).await;
    event.claims(Second, FRESH).await;
    event.claims(First, IN_FLIGHT).await;
}

/// `same_body` compares with the body of the running claim.
pub async fn other_body_is_noticed_in_flight(harness: &impl Harness) {
    let event = Fixture::new("other_body_is_noticed_in_flight", harness).await;
    let [one, other] = bodies(&event);
    event.claims_body(one, First, FRESH).await;
    event.claims_body(one, Second, IN_FLIGHT).await;
    event.claims_body(other, Second, Claim::InFlight { same_body: false }).await;

    event.releases(First, Hold::Held).await;
    event.claims_body(other, Second, FRESH).await;
    event.claims_body(other, First, IN_FLIGHT).await;
    event.claims_body(one, First, Claim::InFlight { same_body: false }).await;
}

/// `same_body` compares with the body that was completed.
pub async fn other_body_is_noticed_when_completed(harness: &impl Harness) {
    let event = Fixture::new("other_body_is_noticed_when_completed", harness).await;
    let [one, other] = bodies(&event);
    event.claims_body(one, First, FRESH).await;
    event.completes_body(one, First, Hold::Held).await;
    event.claims_body(one, Second, COMPLETED).await;
    event.claims_body(other, Second, Claim::Completed { same_body: false }).await;
}

/// A store that counts attempts starts at one, counts takeovers, and does not count a repeated claim twice. One that
/// does not count says `None`.
pub async fn attempts_are_counted_if_at_all(harness: &impl Harness) {
    let event = Fixture::new("attempts_are_counted_if_at_all", harness).await;
    let lease = harness.lease();
    for (caller, expected) in [(First, 1), (First, 1), (Second, 2)] {
        if caller == Second {
            harness.pass(lease * 2).await;
        }
        let came = event.attempts(lease, caller).await;
        if came.is_some_and(|attempt| attempt != expected) {
            event.fail(&format!("attempt by {caller:?}"), &expected, &came);
        }
    }
}

fn bodies<S>(event: &Fixture<S>) -> [Fingerprint; 2] {
    [b"one", b"two"].map(|body| Fingerprint::of(&event.key, body))
}
