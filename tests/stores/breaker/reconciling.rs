//! Row 42: the journal is told to the store when that is back, and overwrites nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tower_webhook::EventKey;
use tower_webhook::store::breaker::{BreakerStore, CircuitState, FoundInStore};
use tower_webhook::store::{
    Claim, ClaimRequest, Completion, Ending, Fingerprint, Hold, MemoryStore, Store, StoreError, StoreErrorKind,
    StoreFuture,
};

use super::fixture::{COMPLETED, COOL_DOWN, Event, FRESH, Fixture, LEASE, RETENTION, claim};
use crate::support::faulty::{Fault, Faulty, Verb, soon};
use crate::support::logs::Logs;

/// `event` is completed on the fallback.
async fn complete_locally(fixture: &Fixture, event: &Event) {
    fixture.claims(event, FRESH).await;
    fixture.completes(event, Hold::Held).await;
}

/// `event` is claimed by another instance, which has the store.
async fn claim_elsewhere(fixture: &Fixture, event: &Event) -> Event {
    let other = event.again();
    assert_eq!(claim(&fixture.store.inner, &other).await, Ok(FRESH));
    other
}

async fn complete_elsewhere(fixture: &Fixture, other: &Event) {
    let done = Completion::failed("no such account", RETENTION);
    assert_eq!(fixture.store.inner.complete(&other.request(), &done).await.ok(), Some(Hold::Held));
}

#[tokio::test(start_paused = true)]
async fn row_42_event_that_was_done_elsewhere_is_not_overwritten() {
    let (logs, _guard) = Logs::capture();
    let fixture = Fixture::with_fallback();
    fixture.outage().await;
    let (event, plain) = (Event::new("evt_1"), Event::new("evt_2"));
    complete_locally(&fixture, &event).await;
    complete_locally(&fixture, &plain).await;
    let other = claim_elsewhere(&fixture, &event).await;
    complete_elsewhere(&fixture, &other).await;
    fixture.heal_all();
    fixture.reconciled().await;
    let conflicts = fixture.conflicts();
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!(
        (&conflicts[0].key, conflicts[0].token, conflicts[0].found),
        (&event.key, event.token, FoundInStore::Completed)
    );
    assert_eq!(logs.count(&event.token.to_string()), 1, "logged, under its token");
    let failure = fixture.store.inner.failure(&event.key);
    assert_eq!(failure.as_deref(), Some("no such account"), "what the other one wrote");
    fixture.claims(&event.again(), COMPLETED).await;
    assert_eq!((fixture.inside(&plain).await, fixture.store.held()), (COMPLETED, (0, 2)));
}

/// Somebody else's claim may be one that nobody settles, so the journal waits for its end; and all the while the event
/// is completed to whoever asks here.
#[tokio::test(start_paused = true)]
async fn claim_elsewhere_that_ends_by_itself_is_no_conflict() {
    let fixture = Fixture::with_fallback();
    fixture.outage().await;
    let event = Event::new("evt_1");
    complete_locally(&fixture, &event).await;
    claim_elsewhere(&fixture, &event).await;
    fixture.recovery().await;
    for _ in 0..10 {
        fixture.claims(&event.again(), COMPLETED).await;
        assert_eq!(fixture.breaker.stats().unreconciled, 1);
        tokio::time::sleep(LEASE / 20).await;
    }
    fixture.reconciled().await;
    assert_eq!((fixture.conflicts().len(), fixture.store.held()), (0, (0, 1)));
}

#[tokio::test(start_paused = true)]
async fn claim_elsewhere_that_is_renewed_is_a_conflict_and_told_once() {
    for completes in [true, false] {
        let fixture = Fixture::with_fallback();
        fixture.outage().await;
        let event = Event::new("evt_1");
        complete_locally(&fixture, &event).await;
        let other = claim_elsewhere(&fixture, &event).await;
        fixture.recovery().await;
        for _ in 0..10 {
            tokio::time::sleep(LEASE / 3).await;
            assert_eq!(fixture.store.inner.renew(&other.request()).await.ok(), Some(Hold::Held), "left to its holder");
            fixture.claims(&event.again(), COMPLETED).await;
        }
        let found: Vec<_> = fixture.conflicts().iter().map(|conflict| conflict.found).collect();
        assert_eq!(found, [FoundInStore::InFlight]);
        match completes {
            true => complete_elsewhere(&fixture, &other).await,
            false => assert!(fixture.store.inner.release(&other.key, other.token).await.is_ok()),
        }
        fixture.reconciled().await;
        assert_eq!(
            (fixture.conflicts().len(), fixture.store.held()),
            (1, (0, 1)),
            "the event is done, once and for all"
        );
    }
}

/// There is no moment at which an event that was completed here is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn completed_event_is_completed_all_the_way() {
    let clock = tower_webhook::testing::ManualClock::at_unix(1_700_000_000);
    let store = Faulty::new(MemoryStore::new());
    let fixture = Fixture::around(store, |builder| builder.clock(clock.clone()).fallback_may_double(1_000));
    fixture.outage().await;
    let events: Vec<_> = (0..200).map(|number| Event::new(&format!("evt_{number}"))).collect();
    for event in &events {
        complete_locally(&fixture, event).await;
    }
    let mut askers = tokio::task::JoinSet::new();
    for part in events.chunks(25).map(<[Event]>::to_vec) {
        let fixture = fixture.clone();
        askers.spawn(async move {
            loop {
                let is_over = fixture.breaker.stats().unreconciled == 0;
                for event in &part {
                    fixture.claims(&event.again(), COMPLETED).await;
                }
                if is_over {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    fixture.heal_all();
    clock.advance(COOL_DOWN);
    fixture.reconciled().await;
    while let Some(asker) = soon(askers.join_next()).await {
        asker.expect("completed, whenever it was asked");
    }
    assert_eq!((fixture.store.held(), fixture.conflicts().len()), ((0, 200), 0));
}

/// Nobody delivers anything: the journal itself finds out that the store is back.
#[tokio::test(start_paused = true)]
async fn journal_needs_no_traffic_to_get_through() {
    let fixture = Fixture::with_fallback();
    fixture.outage().await;
    let events: Vec<_> = (0..100).map(|number| Event::new(&format!("evt_{number}"))).collect();
    for event in &events {
        complete_locally(&fixture, event).await;
    }
    let before = fixture.store.calls(Verb::Claim);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let probes = fixture.store.calls(Verb::Claim) - before;
    assert!((60..=250).contains(&probes), "{probes}: one at a time, and not too often");
    assert_eq!((fixture.breaker.stats().unreconciled, fixture.circuit()), (100, CircuitState::Open));
    fixture.heal_all();
    fixture.reconciled().await;
    assert_eq!((fixture.store.held(), fixture.circuit()), ((0, 100), CircuitState::Closed));
}

/// The store goes away again and again while it is told, in every way.
#[tokio::test(start_paused = true)]
async fn outage_while_reconciling_is_taken_up_later() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang, Fault::HoldReply] {
        let fixture = Fixture::with_fallback();
        fixture.outage().await;
        let events: Vec<_> = (0..100).map(|number| Event::new(&format!("evt_{number}"))).collect();
        for event in &events {
            complete_locally(&fixture, event).await;
        }
        for verb in [Verb::Claim, Verb::Complete, Verb::Claim, Verb::Complete] {
            let before = fixture.store.calls(verb);
            fixture.heal_all();
            fixture.store.breaks(verb, fault);
            fixture.store.called(verb, before + 7).await;
            for event in &events {
                // What is in the store already, the store has to say.
                let answer =
                    tokio::time::timeout(Duration::from_millis(1), claim(&fixture.breaker, &event.again())).await;
                assert!(!matches!(answer, Ok(Ok(FRESH | Claim::InFlight { .. }))), "{fault:?}: {answer:?}");
            }
        }
        fixture.heal_all();
        fixture.reconciled().await;
        assert_eq!((fixture.store.held(), fixture.conflicts().len()), ((0, 100), 0), "{fault:?}");
    }
}

/// A store that is away, and then back but for one event.
struct Picky {
    memory: MemoryStore,
    away: AtomicBool,
}

impl Picky {
    fn pass(&self, key: &EventKey) -> Result<&MemoryStore, StoreError> {
        let refused = self.away.load(Ordering::SeqCst) || key.id() == "poison";
        if refused { Err(StoreError::unavailable("not this one")) } else { Ok(&self.memory) }
    }
}

impl Store for Picky {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move { self.pass(request.key)?.claim(request).await })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move { self.pass(claim.key)?.renew(claim).await })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            match ending {
                Ending::Complete(completion) => {
                    let completion = &completion;
                    self.pass(claim.key)?.complete(claim, completion).await
                }
                _ => {
                    let key = claim.key;
                    let token = claim.token;
                    self.pass(key)?.release(key, token).await
                }
            }
        })
    }
}

/// Not even when it is the first, and so the one to try the store with.
#[tokio::test(start_paused = true)]
async fn event_that_the_store_cannot_take_does_not_keep_the_others_from_it() {
    let store = Arc::new(Picky { memory: MemoryStore::new(), away: AtomicBool::new(true) });
    let breaker = BreakerStore::builder(store.clone() as Arc<dyn Store>).failures(1).fallback_may_double(100).build();
    assert_eq!(claim(&breaker, &Event::new("opens it")).await, Err(StoreErrorKind::Unavailable));
    let done = Completion::succeeded("200 OK", RETENTION);
    for id in ["poison".to_owned()].into_iter().chain((0..40).map(|number| number.to_string())) {
        let event = Event::new(&id);
        assert_eq!(claim(&breaker, &event).await, Ok(FRESH));
        assert_eq!(breaker.complete(&event.request(), &done).await.ok(), Some(Hold::Held));
    }
    store.away.store(false, Ordering::SeqCst);
    soon(async {
        while breaker.stats().unreconciled > 1 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    assert_eq!(store.memory.stats().completed, 40);
    assert_eq!(claim(&breaker, &Event::new("poison")).await, Ok(COMPLETED), "it is still known here");
}

#[tokio::test(start_paused = true)]
async fn what_the_store_is_told_is_what_happened_here() {
    let fixture = Fixture::with_fallback();
    fixture.outage().await;
    let event = Event::new("evt_1");
    let body = Fingerprint::of(&event.key, b"the body");
    let request = event.request().fingerprint(body);
    assert!(matches!(fixture.breaker.claim(&request).await, Ok(Claim::Fresh { .. })));
    let done = Completion::failed("no such account", 2 * LEASE);
    assert_eq!(fixture.breaker.complete(&request, &done).await.ok(), Some(Hold::Held));
    tokio::time::sleep(LEASE).await;
    fixture.heal_all();
    fixture.reconciled().await;
    assert_eq!(fixture.store.inner.failure(&event.key).as_deref(), Some("no such account"));
    let again = event.again();
    let same = ClaimRequest::new(&again.key, again.token, LEASE).fingerprint(body);
    assert!(matches!(fixture.store.inner.claim(&same).await, Ok(Claim::Completed { same_body: true })));
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    assert!(
        matches!(fixture.store.inner.claim(&same).await, Ok(Claim::Fresh { .. })),
        "the retention counts from the completion, and not from the recovery"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_past_its_retention_is_not_told() {
    let fixture = Fixture::with_fallback();
    fixture.outage().await;
    let event = Event::new("evt_1");
    fixture.claims(&event, FRESH).await;
    let brief = Completion::succeeded("200 OK", LEASE);
    assert_eq!(fixture.breaker.complete(&event.request(), &brief).await.ok(), Some(Hold::Held));
    tokio::time::sleep(2 * LEASE).await;
    fixture.reconciled().await;
    assert_eq!(fixture.circuit(), CircuitState::Open, "there is nothing to wait for");
    fixture.claims(&event.again(), FRESH).await;
}

/// A callback that panics costs its own conflict a hearing, and nothing else.
#[tokio::test(start_paused = true)]
async fn panicking_callback_does_not_stop_the_journal() {
    let store = Faulty::new(MemoryStore::new());
    let fixture = Fixture::around(store, |builder| {
        builder.fallback_may_double(100).on_conflict(|_| std::panic::resume_unwind(Box::new("as the test said")))
    });
    fixture.outage().await;
    for number in 0..10 {
        let event = Event::new(&format!("evt_{number}"));
        complete_locally(&fixture, &event).await;
        let other = claim_elsewhere(&fixture, &event).await;
        complete_elsewhere(&fixture, &other).await;
    }
    fixture.heal_all();
    fixture.reconciled().await;
    assert_eq!(fixture.breaker.stats().conflicts, 10);
}

/// A runtime that ends takes its task along; the next one takes the journal up.
#[test]
fn journal_outlives_its_runtime() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    let (fixture, event) = (Fixture::with_fallback(), Event::new("evt_1"));
    runtime().block_on(async {
        fixture.outage().await;
        complete_locally(&fixture, &event).await;
        tokio::time::sleep(COOL_DOWN).await;
    });
    fixture.heal_all();
    runtime().block_on(async {
        tokio::time::sleep(COOL_DOWN).await;
        fixture.reconciled().await;
        assert_eq!(fixture.inside(&event).await, COMPLETED);
    });
}
