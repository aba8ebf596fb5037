//! A token that does not hold the claim can change nothing.

use super::Harness;
use super::fixture::{COMPLETED, Caller, FRESH, Fixture, IN_FLIGHT, LONG};
use crate::store::{Hold, Store};

use Caller::{First, Second, Third};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness) {
    other_token_cannot_touch_a_running_claim(harness).await;
    other_token_cannot_touch_a_completed_event(harness).await;
    released_claim_is_lost(harness).await;
    completing_twice_is_held(harness).await;
    release_never_undoes_a_completion(harness).await;
    overtaken_holder_has_lost(harness).await;
    overtaken_holder_has_lost_after_the_completion(harness).await;
    token_that_cannot_release_cannot_complete(harness).await;
}

/// Another token's verbs are `Lost`, and the holder does not notice them.
pub async fn other_token_cannot_touch_a_running_claim(harness: &impl Harness) {
    let event = Fixture::new("other_token_cannot_touch_a_running_claim", harness).await;
    event.claims(First, FRESH).await;
    everything_is_lost(&event, Second).await;
    event.claims(Third, IN_FLIGHT).await;
    event.renews(LONG, First, Hold::Held).await;
    event.completes(First, Hold::Held).await;
}

/// Another token's verbs are `Lost` on a completed event, which stays completed.
pub async fn other_token_cannot_touch_a_completed_event(harness: &impl Harness) {
    let event = Fixture::new("other_token_cannot_touch_a_completed_event", harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    everything_is_lost(&event, Second).await;
    event.claims(Third, COMPLETED).await;
}

/// After its release a token cannot disturb the next holder.
pub async fn released_claim_is_lost(harness: &impl Harness) {
    let event = Fixture::new("released_claim_is_lost", harness).await;
    event.claims(First, FRESH).await;
    event.releases(First, Hold::Held).await;
    event.claims(Second, FRESH).await;
    everything_is_lost(&event, First).await;
    event.completes(Second, Hold::Held).await;
}

/// A completion whose reply was lost is repeated and must not look like a loss.
pub async fn completing_twice_is_held(harness: &impl Harness) {
    let event = Fixture::new("completing_twice_is_held", harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.completes(First, Hold::Held).await;
    event.completes(Second, Hold::Lost).await;
    event.claims(Third, COMPLETED).await;
}

/// A completed claim is over: its own token can neither release nor renew it.
pub async fn release_never_undoes_a_completion(harness: &impl Harness) {
    let event = Fixture::new("release_never_undoes_a_completion", harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.releases(First, Hold::Lost).await;
    event.renews(LONG, First, Hold::Lost).await;
    event.claims(Second, COMPLETED).await;
}

/// A holder that slept through its lease cannot disturb the one that took over.
pub async fn overtaken_holder_has_lost(harness: &impl Harness) {
    let event = Fixture::new("overtaken_holder_has_lost", harness).await;
    take_over(harness, &event).await;
    everything_is_lost(&event, First).await;
    event.claims(First, IN_FLIGHT).await;
    event.claims(Third, IN_FLIGHT).await;
    event.renews(LONG, Second, Hold::Held).await;
    event.completes(Second, Hold::Held).await;
}

/// A late completion is refused when the one that took over was faster.
pub async fn overtaken_holder_has_lost_after_the_completion(harness: &impl Harness) {
    let event = Fixture::new("overtaken_holder_has_lost_after_the_completion", harness).await;
    take_over(harness, &event).await;
    event.completes(Second, Hold::Held).await;
    everything_is_lost(&event, First).await;
    event.claims(Third, COMPLETED).await;
}

/// A store with an enlistment is asked by a release and then a completion whether a transaction was committed: a token
/// that neither holds nor has completed the event must not be answered that it has.
pub async fn token_that_cannot_release_cannot_complete(harness: &impl Harness) {
    let event = Fixture::new("token_that_cannot_release_cannot_complete", harness).await;
    if event.store.enlistment().is_none() {
        return;
    }
    take_over(harness, &event).await;
    event.releases(Second, Hold::Held).await;
    if event.released(First).await == Hold::Lost {
        event.completes(First, Hold::Lost).await;
    }
    event.claims(Third, FRESH).await;
}

async fn take_over<H: Harness>(harness: &H, event: &Fixture<H::Store>) {
    event.claims_for(harness.lease(), First, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, FRESH).await;
}

async fn everything_is_lost(event: &Fixture<impl Store>, caller: Caller) {
    event.renews(LONG, caller, Hold::Lost).await;
    event.completes(caller, Hold::Lost).await;
    event.releases(caller, Hold::Lost).await;
}
