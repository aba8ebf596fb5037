//! The conformance suite catches stores that break the contract, and names the check.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tower_webhook::EventKey;
use tower_webhook::clock::Clock;
use tower_webhook::store::{
    Claim, ClaimRequest, ClaimToken, Ending, Hold, MemoryStore, Store, StoreError, StoreFuture,
};
use tower_webhook::testing::ManualClock;
use tower_webhook::testing::conformance::{self, Case, Harness};

use super::memory::claims::Memory;

/// A mistake that a store could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// Looks first and claims in a second step.
    ClaimsInTwoSteps,
    /// Answers a repeated claim as if it were somebody else's.
    IgnoresOwnToken,
    /// Goes by the clock: what has lapsed cannot be renewed.
    RefusesLapsed,
    /// Says that it renewed, and does not.
    NeverRenews,
    /// Frees a failed event for the next delivery.
    ReleasesFailed,
    /// Folds case.
    FoldsCase,
    /// Compares no bodies.
    IgnoresBodies,
    /// Fails.
    Unavailable,
}

/// A good store with one mistake.
struct Faulty {
    mistake: Mistake,
    store: MemoryStore,
    clock: ManualClock,
    /// When the lease of every token that ever won a claim ends, for those mistakes that need it.
    leases: Mutex<HashMap<ClaimToken, Instant>>,
}

impl Faulty {
    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn key(&self, key: &EventKey) -> EventKey {
        let id = if self.makes(Mistake::FoldsCase) { key.id().to_lowercase() } else { key.id().to_owned() };
        EventKey::new(key.endpoint(), key.tenant(), &id)
    }

    /// Notes a won claim; whether the token had won one before.
    fn won(&self, request: &ClaimRequest<'_>) -> bool {
        let end = self.clock.monotonic() + request.lease;
        self.leases.lock().expect("no panic under the lock").insert(request.token, end).is_some()
    }

    fn has_lapsed(&self, token: ClaimToken) -> bool {
        let leases = self.leases.lock().expect("no panic under the lock");
        leases.get(&token).is_some_and(|end| *end <= self.clock.monotonic())
    }

    async fn claim_in_two_steps(&self, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        let seen = self.store.claim(request).await?;
        if matches!(seen, Claim::Fresh { .. }) {
            let _ = self.store.release(request.key, request.token).await?;
            tokio::task::yield_now().await;
            self.store.claim(request).await?;
            return Ok(Claim::Fresh { attempt: None });
        }
        Ok(seen)
    }
}

impl Store for Faulty {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let key = self.key(request.key);
            let mut asked = ClaimRequest::new(&key, request.token, request.lease);
            match self.mistake {
                Mistake::Unavailable => return Err(StoreError::unavailable("connection refused")),
                Mistake::ClaimsInTwoSteps => return self.claim_in_two_steps(request).await,
                Mistake::IgnoresBodies => {}
                _ => asked = asked.fingerprint(request.fingerprint),
            }
            let claim = self.store.claim(&asked).await?;
            let again = matches!(claim, Claim::Fresh { .. }) && self.won(request);
            let ignored = again && self.makes(Mistake::IgnoresOwnToken);
            Ok(if ignored { Claim::InFlight { same_body: true } } else { claim })
        })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            let lease = if self.makes(Mistake::NeverRenews) { Duration::ZERO } else { claim.lease };
            if self.makes(Mistake::RefusesLapsed) && self.has_lapsed(claim.token) {
                return Ok(Hold::Lost);
            }
            self.store.renew(&ClaimRequest::new(&self.key(claim.key), claim.token, lease)).await
        })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            match ending {
                Ending::Complete(completion) => {
                    let completion = &completion;
                    if self.makes(Mistake::ReleasesFailed) && completion.failed {
                        return self.store.release(claim.key, claim.token).await;
                    }
                    self.store
                        .complete(&ClaimRequest::new(&self.key(claim.key), claim.token, claim.lease), completion)
                        .await
                }
                _ => {
                    let key = claim.key;
                    let token = claim.token;
                    self.store.release(&self.key(key), token).await
                }
            }
        })
    }
}

struct Factory {
    clock: ManualClock,
    mistake: Mistake,
}

impl Factory {
    fn new(mistake: Mistake) -> Self {
        Self { clock: ManualClock::at_unix(1_700_000_000), mistake }
    }
}

impl Harness for Factory {
    type Store = Faulty;

    async fn store(&self) -> Faulty {
        let store = MemoryStore::builder().clock(self.clock.clone()).build();
        Faulty { mistake: self.mistake, store, clock: self.clock.clone(), leases: Mutex::default() }
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

/// The message that the whole suite fails with.
async fn verdict(mistake: Mistake) -> String {
    let failed = tokio::spawn(async move { conformance::store().run(&Factory::new(mistake)).await }).await;
    let panic = failed.expect_err("the suite must fail").into_panic();
    panic.downcast_ref::<String>().expect("a message").clone()
}

#[tokio::test]
async fn every_mistake_is_caught_by_the_check_for_it() {
    for (mistake, check) in [
        (Mistake::ClaimsInTwoSteps, "concurrent_claims_have_one_winner"),
        (Mistake::IgnoresOwnToken, "own_token_is_fresh_again"),
        (Mistake::RefusesLapsed, "lapsed_claim_can_still_be_renewed"),
        (Mistake::NeverRenews, "lapsed_claim_can_still_be_renewed"),
        (Mistake::ReleasesFailed, "failed_event_is_completed"),
        (Mistake::FoldsCase, "odd_ids_are_kept_apart"),
        (Mistake::IgnoresBodies, "other_body_is_noticed_in_flight"),
        (Mistake::Unavailable, "first_claim_is_fresh"),
    ] {
        let said = verdict(mistake).await;
        assert!(said.contains(&format!("`{check}`")), "{mistake:?}: {said}");
    }
}

#[tokio::test]
async fn the_verdict_says_what_was_expected_and_what_came() {
    let said = verdict(Mistake::IgnoresBodies).await;
    assert!(said.contains("claim by Second"), "{said}");
    assert!(said.contains("expected InFlight { same_body: false }, got InFlight { same_body: true }"), "{said}");
    assert!(verdict(Mistake::Unavailable).await.contains("connection refused"));
}

#[tokio::test]
async fn the_model_alone_finds_what_the_checks_find_and_tells_the_seed() {
    for mistake in [Mistake::RefusesLapsed, Mistake::NeverRenews, Mistake::ReleasesFailed, Mistake::IgnoresBodies] {
        let task = tokio::spawn(async move { conformance::model(&Factory::new(mistake), 7, 200).await });
        let panic = task.await.expect_err("the model must differ").into_panic();
        let said = panic.downcast_ref::<String>().expect("a message");
        assert!(said.contains("seed 7, sequence"), "{mistake:?}: {said}");
    }
}

#[tokio::test]
async fn suite_runs_on_after_a_case_that_failed_and_names_each() {
    let said = verdict(Mistake::NeverRenews).await;
    for case in ["lapsed_claim_can_still_be_renewed", "renewal_extends_the_lease", "extreme_leases_work"] {
        assert!(said.contains(&format!("`{case}`")), "{said}");
    }
    let count = conformance::store::<Factory>().cases().len();
    assert!(said.contains(&format!("of {count} store cases failed")), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_case_can_be_a_test_of_its_own() {
    let mut failed = BTreeSet::new();
    for case in conformance::store::<Factory>().cases() {
        let run = case.clone();
        let outcome = tokio::spawn(async move { run.run(&Factory::new(Mistake::ReleasesFailed)).await }).await;
        if let Err(panic) = outcome {
            let said = panic.into_panic().downcast_ref::<String>().expect("a message").clone();
            assert!(said.contains(&format!("`{}`", case.name())), "{said}");
            failed.insert(case.name());
        }
    }
    assert_eq!(failed, BTreeSet::from(["failed_event_is_completed", "model"]));
}

#[test]
fn no_two_cases_of_a_suite_have_one_name() {
    fn names<H: Harness>(cases: &[Case<H>]) -> BTreeSet<&'static str> {
        let names: BTreeSet<_> = cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), cases.len());
        names
    }
    assert!(names(conformance::store::<Memory>().cases()).contains("concurrent_claims_have_one_winner"));
    assert!(names(conformance::queue::<Memory>().cases()).contains("concurrent_workers_keep_the_order"));
    let bodies = conformance::completed_bodies::<Memory>(Duration::ZERO);
    assert_eq!(
        names(bodies.cases()),
        BTreeSet::from(["bodies_that_are_still_needed_stay", "completed_body_goes_before_its_record"])
    );
}
