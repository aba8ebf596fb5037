//! How long a completed event is remembered.

use std::time::Duration;

use super::Harness;
use super::fixture::{COMPLETED, Caller, FRESH, Fixture, IN_FLIGHT, LONG};
use crate::EventKey;
use crate::store::{Completion, Hold};

use Caller::{First, Second};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness) {
    expired_event_is_fresh_again(harness).await;
    retention_counts_from_the_completion(harness).await;
    completing_again_does_not_change_the_retention(harness).await;
    retentions_may_differ(harness).await;
    extreme_retentions_work(harness).await;
}

/// After its retention a completed event can be claimed again.
pub async fn expired_event_is_fresh_again(harness: &impl Harness) {
    let event = Fixture::new("expired_event_is_fresh_again", harness).await;
    event.claims(First, FRESH).await;
    event.completes_with(&brief(harness), First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
    harness.pass(harness.retention() * 2).await;
    event.claims(Second, FRESH).await;
    event.claims(First, IN_FLIGHT).await;
    event.completes(Second, Hold::Held).await;
    event.claims(First, COMPLETED).await;
}

/// The retention starts with the completion and not with the claim.
pub async fn retention_counts_from_the_completion(harness: &impl Harness) {
    let event = Fixture::new("retention_counts_from_the_completion", harness).await;
    event.claims(First, FRESH).await;
    harness.pass(harness.retention() * 2).await;
    event.completes_with(&brief(harness), First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
}

/// Completing again under the same token is harmless: the first completion's retention stands.
pub async fn completing_again_does_not_change_the_retention(harness: &impl Harness) {
    let event = Fixture::new("completing_again_does_not_change_the_retention", harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.completes_with(&brief(harness), First, Hold::Held).await;
    harness.pass(harness.retention() * 2).await;
    event.claims(Second, COMPLETED).await;
}

/// Each event is kept for its own retention, whatever the order of the completions.
pub async fn retentions_may_differ(harness: &impl Harness) {
    let fixture = Fixture::new("retentions_may_differ", harness).await;
    let events: Vec<_> = (0..12).map(|n| fixture.event(EventKey::new("/hook", None, &n.to_string()))).collect();
    for (n, event) in events.iter().enumerate() {
        event.claims(First, FRESH).await;
        let kept = if n % 3 == 0 { Completion::succeeded("200", LONG) } else { brief(harness) };
        event.completes_with(&kept, First, Hold::Held).await;
    }
    harness.pass(harness.retention() * 2).await;
    for (n, event) in events.iter().enumerate() {
        event.claims(Second, if n % 3 == 0 { COMPLETED } else { FRESH }).await;
    }
}

/// A retention of a millisecond and one of ten years are retentions like any other.
pub async fn extreme_retentions_work(harness: &impl Harness) {
    let fixture = Fixture::new("extreme_retentions_work", harness).await;
    let decade = Duration::from_secs(10 * 365 * 24 * 3600);
    for (retention, then) in [(Duration::from_millis(1), FRESH), (decade, COMPLETED)] {
        let event = fixture.event(EventKey::new("/hook", None, &format!("{retention:?}")));
        event.claims(First, FRESH).await;
        event.completes_with(&Completion::succeeded("200", retention), First, Hold::Held).await;
        harness.pass(harness.retention()).await;
        event.claims(Second, then).await;
    }
}

fn brief(harness: &impl Harness) -> Completion<'static> {
    Completion::succeeded("200 OK", harness.retention())
}
