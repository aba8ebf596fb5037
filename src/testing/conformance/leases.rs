//! How long a running claim holds.

use std::time::Duration;

use super::Harness;
use super::fixture::{COMPLETED, Caller, FRESH, Fixture, IN_FLIGHT, LONG};
use crate::store::{Completion, Hold};

use Caller::{First, Second};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness) {
    lapsed_claim_can_be_taken_over(harness).await;
    lapsed_claim_can_still_be_renewed(harness).await;
    lapsed_claim_can_still_be_completed(harness).await;
    lapsed_claim_can_still_be_released(harness).await;
    renewal_extends_the_lease(harness).await;
    renewal_counts_from_now(harness).await;
    repeated_claim_extends_the_lease(harness).await;
    completion_outlives_the_lease(harness).await;
    extreme_leases_work(harness).await;
}

/// Once the lease is over the next claim is fresh.
pub async fn lapsed_claim_can_be_taken_over(harness: &impl Harness) {
    let event = Fixture::new("lapsed_claim_can_be_taken_over", harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    event.claims(Second, IN_FLIGHT).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, FRESH).await;
    event.claims(First, IN_FLIGHT).await;
}

/// The token decides and not the clock: until another token takes over, a renewal brings the claim back.
pub async fn lapsed_claim_can_still_be_renewed(harness: &impl Harness) {
    let event = Fixture::new("lapsed_claim_can_still_be_renewed", harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    event.renews(LONG, First, Hold::Held).await;
    event.claims(Second, IN_FLIGHT).await;
}

/// The token decides and not the clock: until another token takes over, a completion counts.
pub async fn lapsed_claim_can_still_be_completed(harness: &impl Harness) {
    let event = Fixture::new("lapsed_claim_can_still_be_completed", harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    event.completes(First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
}

/// The token decides and not the clock: until another token takes over, the claim can be released.
pub async fn lapsed_claim_can_still_be_released(harness: &impl Harness) {
    let event = Fixture::new("lapsed_claim_can_still_be_released", harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    event.releases(First, Hold::Held).await;
    event.claims(Second, FRESH).await;
}

/// A renewed claim holds beyond its first lease.
pub async fn renewal_extends_the_lease(harness: &impl Harness) {
    let event = Fixture::new("renewal_extends_the_lease", harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    event.renews(harness.lease() * 8, First, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, IN_FLIGHT).await;
}

/// A renewal sets the lease anew, to `lease` from now: the rest of the old lease does not count.
pub async fn renewal_counts_from_now(harness: &impl Harness) {
    let event = Fixture::new("renewal_counts_from_now", harness).await;
    event.claims(First, FRESH).await;
    event.renews(harness.lease(), First, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, FRESH).await;
}

/// Claiming again under the same token starts a new lease.
pub async fn repeated_claim_extends_the_lease(harness: &impl Harness) {
    let event = Fixture::new("repeated_claim_extends_the_lease", harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    event.claims_for(harness.lease() * 8, First, FRESH).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, IN_FLIGHT).await;
}

/// A completed event is kept for its retention, whatever the lease was.
pub async fn completion_outlives_the_lease(harness: &impl Harness) {
    let event = Fixture::new("completion_outlives_the_lease", harness).await;
    event.claims_for(harness.lease(), First, FRESH).await;
    event.completes(First, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    event.claims(Second, COMPLETED).await;
    event.completes(First, Hold::Held).await;
}

/// A lease of a millisecond and one of ten years are leases like any other.
pub async fn extreme_leases_work(harness: &impl Harness) {
    let event = Fixture::new("extreme_leases_work", harness).await;
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
