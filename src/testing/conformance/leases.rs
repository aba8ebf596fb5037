//! How long a running claim holds, and that a token that does not hold it can change nothing.

use std::time::Duration;

use super::fixture::{COMPLETED, Caller, FRESH, Fixture, IN_FLIGHT, LONG};
use super::suite::{Case, Harness, cases};
use crate::store::{Completion, Hold, Store};

use Caller::{First, Second, Third};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![
        lapsed_claim_can_be_taken_over,
        lapsed_claim_can_still_be_renewed,
        lapsed_claim_can_still_be_completed,
        lapsed_claim_can_still_be_released,
        renewal_extends_the_lease,
        renewal_counts_from_now,
        repeated_claim_extends_the_lease,
        completion_outlives_the_lease,
        extreme_leases_work,
        other_token_cannot_touch_a_running_claim,
        other_token_cannot_touch_a_completed_event,
        released_claim_is_lost,
        completing_twice_is_held,
        release_never_undoes_a_completion,
        overtaken_holder_has_lost,
        overtaken_holder_has_lost_after_the_completion,
        token_that_cannot_release_cannot_complete,
    ]
}

/// Once the lease is over the next claim is fresh.
async fn lapsed_claim_can_be_taken_over(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    event.claims(Second, IN_FLIGHT).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, FRESH).await;
    event.claims(First, IN_FLIGHT).await;
}

/// The token decides and not the clock: until another token takes over, a renewal brings the claim back.
async fn lapsed_claim_can_still_be_renewed(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    event.renews(LONG, First, Hold::Held).await;
    event.claims(Second, IN_FLIGHT).await;
}

/// The token decides and not the clock: until another token takes over, a completion counts.
async fn lapsed_claim_can_still_be_completed(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    event.completes(First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
}

/// The token decides and not the clock: until another token takes over, the claim can be released.
async fn lapsed_claim_can_still_be_released(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    event.releases(First, Hold::Held).await;
    event.claims(Second, FRESH).await;
}

/// A renewed claim holds beyond its first lease.
async fn renewal_extends_the_lease(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    event.renews(harness.lease() * 8, First, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, IN_FLIGHT).await;
}

/// A renewal sets the lease anew, to `lease` from now: the rest of the old lease does not count.
async fn renewal_counts_from_now(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.renews(harness.lease(), First, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, FRESH).await;
}

/// Claiming again under the same token starts a new lease.
async fn repeated_claim_extends_the_lease(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    event.claims_for(harness.lease() * 8, First, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, IN_FLIGHT).await;
}

/// A completed event is kept for its retention, whatever the lease was.
async fn completion_outlives_the_lease(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    event.completes(First, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, COMPLETED).await;
    event.completes(First, Hold::Held).await;
}

/// A lease of a millisecond and one of ten years are leases like any other.
async fn extreme_leases_work(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    let millisecond = Duration::from_millis(1);
    event.claims_for(millisecond, First, FRESH).await;
    event.renews(millisecond, First, Hold::Held).await;
    harness.pass(harness.lease()).await;
    event.claims_for(YEAR * 10, Second, FRESH).await;
    event.renews(YEAR * 10, Second, Hold::Held).await;
    harness.pass(harness.lease()).await;
    event.claims(First, IN_FLIGHT).await;
    event.completes_with(&Completion::succeeded("", YEAR * 10), Second, Hold::Held).await;
    event.claims(First, COMPLETED).await;
}

/// Another token's verbs are `Lost`, and the holder does not notice them.
async fn other_token_cannot_touch_a_running_claim(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    everything_is_lost(&event, Second).await;
    event.claims(Third, IN_FLIGHT).await;
    event.renews(LONG, First, Hold::Held).await;
    event.completes(First, Hold::Held).await;
}

/// Another token's verbs are `Lost` on a completed event, which stays completed.
async fn other_token_cannot_touch_a_completed_event(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    everything_is_lost(&event, Second).await;
    event.claims(Third, COMPLETED).await;
}

/// After its release a token cannot disturb the next holder.
async fn released_claim_is_lost(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.releases(First, Hold::Held).await;
    event.claims(Second, FRESH).await;
    everything_is_lost(&event, First).await;
    event.completes(Second, Hold::Held).await;
}

/// A completion whose reply was lost is repeated and must not look like a loss.
async fn completing_twice_is_held(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.completes(First, Hold::Held).await;
    event.completes(Second, Hold::Lost).await;
    event.claims(Third, COMPLETED).await;
}

/// A completed claim is over: its own token can neither release nor renew it.
async fn release_never_undoes_a_completion(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.releases(First, Hold::Lost).await;
    event.renews(LONG, First, Hold::Lost).await;
    event.claims(Second, COMPLETED).await;
}

/// A holder that slept through its lease cannot disturb the one that took over.
async fn overtaken_holder_has_lost(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    take_over(harness, &event).await;
    everything_is_lost(&event, First).await;
    event.claims(First, IN_FLIGHT).await;
    event.claims(Third, IN_FLIGHT).await;
    event.renews(LONG, Second, Hold::Held).await;
    event.completes(Second, Hold::Held).await;
}

/// A late completion is refused when the one that took over was faster.
async fn overtaken_holder_has_lost_after_the_completion(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    take_over(harness, &event).await;
    event.completes(Second, Hold::Held).await;
    everything_is_lost(&event, First).await;
    event.claims(Third, COMPLETED).await;
}

/// A store with an enlistment is asked by a release and then a completion whether a transaction was committed: a token
/// that neither holds nor has completed the event must not be answered that it has.
async fn token_that_cannot_release_cannot_complete(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
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
