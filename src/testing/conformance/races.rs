//! Many callers at once.
//!
//! Each check repeats its race for several keys, all callers starting together.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::Harness;
use super::fixture::{Caller, FRESH, Fixture, IN_FLIGHT, LONG, without_attempt};
use crate::EventKey;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, Store};

const CALLERS: usize = 64;
const ROUNDS: usize = 24;

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness) {
    concurrent_claims_have_one_winner(harness).await;
    concurrent_takeovers_have_one_winner(harness).await;
    completion_and_takeover_have_one_winner(harness).await;
}

/// Of 64 concurrent claims for one key exactly one is fresh; the others see it in flight.
pub async fn concurrent_claims_have_one_winner(harness: &impl Harness) {
    let fixture = Fixture::new("concurrent_claims_have_one_winner", harness).await;
    one_winner_per_event(&events(&fixture)).await;
}

/// Of 64 concurrent claims for one lapsed claim exactly one takes it over.
pub async fn concurrent_takeovers_have_one_winner(harness: &impl Harness) {
    let fixture = Fixture::new("concurrent_takeovers_have_one_winner", harness).await;
    let events = events(&fixture);
    for event in &events {
        event.claims_for(harness.lease(), Caller::First, FRESH).await;
    }
    harness.pass(harness.lease() * 2).await;
    one_winner_per_event(&events).await;
}

/// A lapsed holder completes while another takes over: either the work counts or the takeover does, never both.
pub async fn completion_and_takeover_have_one_winner(harness: &impl Harness) {
    let fixture = Fixture::new("completion_and_takeover_have_one_winner", harness).await;
    let events = events(&fixture);
    for event in &events {
        event.claims_for(harness.lease(), Caller::First, FRESH).await;
    }
    harness.pass(harness.lease() * 2).await;
    for event in &events {
        let (completed, claimed) = complete_against_claim(event).await;
        let expected = if completed == Hold::Held { Claim::Completed { same_body: true } } else { FRESH };
        if claimed != expected {
            event.fail(&format!("claim against a completion that was {completed:?}"), &expected, &claimed);
        }
    }
}

async fn one_winner_per_event<S: Store>(events: &[Fixture<S>]) {
    for event in events {
        let claims = together((0..CALLERS).map(|_| {
            let (store, key) = (Arc::clone(&event.store), event.key.clone());
            async move { store.claim(&ClaimRequest::new(&key, ClaimToken::random(), LONG)).await }
        }));
        let mut winners = 0;
        for claim in claims.await {
            match without_attempt(event.answered("claim", claim)) {
                FRESH => winners += 1,
                IN_FLIGHT => {}
                other => event.fail("concurrent claim", &"Fresh or InFlight with the same body", &other),
            }
        }
        if winners != 1 {
            event.fail(&format!("{CALLERS} concurrent claims"), &"one Fresh", &winners);
        }
    }
}

async fn complete_against_claim<S: Store>(event: &Fixture<S>) -> (Hold, Claim) {
    let start = Arc::new(Barrier::new(2));
    let completing = {
        let (store, key, start) = (Arc::clone(&event.store), event.key.clone(), Arc::clone(&start));
        tokio::spawn(async move {
            start.wait().await;
            let claim = ClaimRequest::new(&key, Caller::First.token(), LONG);
            store.complete(&claim, &Completion::succeeded("200", LONG)).await
        })
    };
    let request = ClaimRequest::new(&event.key, Caller::Second.token(), LONG);
    start.wait().await;
    let claimed = event.answered("claim", event.store.claim(&request).await);
    let completed = completing.await.unwrap_or_else(|panicked| event.fail("complete", &"an answer", &panicked));
    (event.answered("complete", completed), without_attempt(claimed))
}

/// Runs all `calls` as tasks that wait for one another before they start.
async fn together<F>(calls: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let start = Arc::new(Barrier::new(CALLERS));
    let mut tasks = JoinSet::new();
    for call in calls {
        let start = Arc::clone(&start);
        tasks.spawn(async move {
            start.wait().await;
            call.await
        });
    }
    tasks.join_all().await
}

fn events<S: Store>(fixture: &Fixture<S>) -> Vec<Fixture<S>> {
    (0..ROUNDS).map(|n| fixture.event(EventKey::new("/race", None, &n.to_string()))).collect()
}
