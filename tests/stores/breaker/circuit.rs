//! Rows 40 and 43: when the circuit opens, whom it refuses, and how it closes.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::Instant;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::breaker::CircuitState;
use tower_webhook::store::{BreakerStore, Dialect, Enlistment, MemoryStore, Store, StoreErrorKind};

use super::fixture::{COMPLETED, COOL_DOWN, Event, FAILURES, FRESH, Fixture, IN_FLIGHT};
use crate::support::Answer;
use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Faulty, Verb, soon};
use crate::support::logs::Logs;

const HOUR: Duration = Duration::from_secs(3600);

fn assert_unavailable(answer: &Answer) {
    assert_eq!((answer.status, answer.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")));
    assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable));
}

/// The store hangs, which is the worst that it can do; once that is noticed, nobody waits for it.
#[tokio::test(start_paused = true)]
async fn row_40_open_circuit_without_a_fallback_is_a_503_at_once() {
    for fault in [Fault::Fail, Fault::Hang, Fault::HoldReply] {
        let fixture = Fixture::around(Faulty::new(MemoryStore::new()), |builder| builder.cool_down(HOUR, HOUR));
        let receiver = ControlledReceiver::behind(fixture.breaker.clone(), fixture.store.clone(), |layer| layer);
        fixture.breaks_all(fault);
        for number in 0..FAILURES {
            assert_unavailable(&receiver.deliver(&format!("evt_{number}")).await);
        }
        assert_eq!(fixture.circuit(), CircuitState::Open, "{fault:?}");
        while receiver.layer.drain_handle().running() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (claims, releases) = (receiver.store.calls(Verb::Claim), receiver.store.calls(Verb::Release));
        let asked = Instant::now();
        for number in 0..100 {
            assert_unavailable(&receiver.deliver(&format!("evt_{number}")).await);
        }
        assert_eq!(asked.elapsed(), Duration::ZERO, "{fault:?}: nothing was waited for");
        tokio::task::yield_now().await;
        assert_eq!(receiver.store.calls(Verb::Claim), claims, "{fault:?}: the store was left alone");
        assert_eq!(receiver.store.calls(Verb::Release), releases, "{fault:?}: what was not asked need not be released");
        assert_eq!(receiver.handler.runs(), 0, "{fault:?}");

        fixture.heal_all();
        tokio::time::sleep(HOUR).await;
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed), "{fault:?}");
        assert_eq!(fixture.circuit(), CircuitState::Closed, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn open_circuit_says_what_to_look_for() {
    let fixture = Fixture::new();
    fixture.outage().await;
    let error = fixture.breaker.claim(&Event::new("evt_1").request()).await.expect_err("the circuit is open");
    assert_eq!(error.kind(), StoreErrorKind::CircuitOpen);
    assert!(error.to_string().contains("the circuit breaker is open"), "{error}");
}

/// Once with a store that hangs while they come, once with one that answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_43_half_open_circuit_sends_one_probe_for_a_thousand_waiters() {
    for held in [true, false] {
        let clock = tower_webhook::testing::ManualClock::at_unix(1_700_000_000);
        let store = Faulty::new(MemoryStore::new());
        let fixture = Fixture::around(store, |builder| builder.clock(clock.clone()));
        fixture.outage().await;
        clock.advance(COOL_DOWN);
        let before = fixture.store.calls(Verb::Claim);
        fixture.heal_all();
        if held {
            fixture.store.breaks(Verb::Claim, Fault::HoldReply);
        } else {
            fixture.store.breaks(Verb::Claim, Fault::Fail);
        }
        let mut waiters = tokio::task::JoinSet::new();
        for number in 0..1_000 {
            let breaker = fixture.breaker.clone();
            waiters.spawn(async move { breaker.claim(&Event::new(&number.to_string()).request()).await.is_ok() });
        }
        for _ in 0..999 {
            assert!(!waiters.join_next().await.expect("a waiter").expect("no panic"), "refused at once");
        }
        assert_eq!(fixture.store.calls(Verb::Claim), before + 1, "one probe; held: {held}");
        fixture.store.heal(Verb::Claim);
        let answered = waiters.join_next().await.expect("the last").expect("no panic");
        assert_eq!(answered, held, "the probe is the only one to be answered");
        let state = if held { CircuitState::Closed } else { CircuitState::Open };
        assert_eq!(fixture.circuit(), state);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_probe_reopens_the_circuit() {
    let fixture = Fixture::new();
    fixture.outage().await;
    for _ in 0..4 {
        tokio::time::sleep(COOL_DOWN).await;
        let before = fixture.store.calls(Verb::Claim);
        fixture.fails(&Event::new("evt_1"), StoreErrorKind::Unavailable).await;
        fixture.fails(&Event::new("evt_1"), StoreErrorKind::CircuitOpen).await;
        assert_eq!(fixture.store.calls(Verb::Claim), before + 1);
    }
    fixture.recovery().await;
}

/// The caller of the probe was cancelled before the store could have answered.
#[tokio::test(start_paused = true)]
async fn dropped_probe_does_not_wedge_the_circuit() {
    let fixture = Fixture::new();
    fixture.outage().await;
    fixture.heal_all();
    fixture.store.breaks(Verb::Claim, Fault::Hang);
    tokio::time::sleep(COOL_DOWN).await;
    for probes in 1..=10 {
        let before = fixture.store.calls(Verb::Claim);
        let event = Event::new("evt_1");
        let request = event.request();
        let given_up = tokio::time::timeout(Duration::from_millis(10), fixture.breaker.claim(&request)).await;
        assert!(given_up.is_err(), "the store hangs");
        assert_eq!(fixture.circuit(), CircuitState::Open);
        assert_eq!(fixture.store.calls(Verb::Claim), before + 1, "probe {probes} was let through at once");
    }
    fixture.store.heal(Verb::Claim);
    fixture.claims(&Event::new("evt_2"), FRESH).await;
    assert_eq!(fixture.circuit(), CircuitState::Closed);
}

/// A probe whose caller never gives up, on a store that never answers.
#[tokio::test(start_paused = true)]
async fn endless_probe_does_not_wedge_the_circuit() {
    let fixture = Fixture::new();
    fixture.outage().await;
    fixture.heal_all();
    tokio::time::sleep(COOL_DOWN).await;
    fixture.store.breaks(Verb::Claim, Fault::Hang);
    let breaker = fixture.breaker.clone();
    let before = fixture.store.calls(Verb::Claim);
    let endless = tokio::spawn(async move { breaker.claim(&Event::new("evt_1").request()).await.is_ok() });
    fixture.store.called(Verb::Claim, before + 1).await;
    fixture.fails(&Event::new("evt_2"), StoreErrorKind::CircuitOpen).await;
    tokio::time::sleep(COOL_DOWN).await;
    fixture.store.breaks(Verb::Claim, Fault::Fail);
    fixture.fails(&Event::new("evt_2"), StoreErrorKind::Unavailable).await;
    fixture.store.heal(Verb::Claim);
    assert!(soon(endless).await.expect("no panic"));
    assert_eq!(fixture.circuit(), CircuitState::Closed, "it answered in the end");
}

/// A store that hangs shows in nothing but calls that their callers give up.
#[tokio::test(start_paused = true)]
async fn hanging_store_opens_the_circuit_and_impatient_callers_do_not() {
    let fixture = Fixture::new();
    fixture.store.breaks(Verb::Claim, Fault::Hang);
    let event = Event::new("evt_1");
    let request = event.request();
    for _ in 0..100 {
        let _ = tokio::time::timeout(Duration::from_millis(499), fixture.breaker.claim(&request)).await;
    }
    assert_eq!(fixture.circuit(), CircuitState::Closed);
    for _ in 0..FAILURES {
        assert_eq!(fixture.circuit(), CircuitState::Closed);
        let _ = tokio::time::timeout(Duration::from_millis(500), fixture.breaker.claim(&request)).await;
    }
    assert_eq!(fixture.circuit(), CircuitState::Open);
}

#[tokio::test(start_paused = true)]
async fn answers_are_not_failures() {
    let fixture = Fixture::around(Faulty::new(MemoryStore::builder().capacity(2).build()), |builder| builder);
    let (running, done) = (Event::new("running"), Event::new("done"));
    fixture.claims(&running, FRESH).await;
    fixture.claims(&done, FRESH).await;
    fixture.completes(&done, tower_webhook::store::Hold::Held).await;
    for _ in 0..10 {
        fixture.claims(&running.again(), IN_FLIGHT).await;
        fixture.claims(&done.again(), COMPLETED).await;
        fixture.completes(&running.again(), tower_webhook::store::Hold::Lost).await;
        fixture.fails(&Event::new("one too many"), StoreErrorKind::Full).await;
    }
    fixture.store.breaks(Verb::Claim, Fault::Locked);
    for _ in 0..10 {
        fixture.fails(&Event::new("held by a transaction"), StoreErrorKind::Locked).await;
    }
    assert_eq!(fixture.circuit(), CircuitState::Closed);
}

/// What a handler puts into its transaction is the inner store's.
#[test]
fn statement_of_the_inner_store_is_passed_on() {
    let lending = Faulty::new(MemoryStore::new()).lends(Enlistment::new(Dialect::Postgres, "UPDATE …"));
    let breaker = BreakerStore::new(lending);
    assert_eq!(breaker.enlistment().expect("a statement").sql(), "UPDATE …");
    assert!(BreakerStore::new(MemoryStore::new()).enlistment().is_none());
}

/// Out of memory, a store may release claims and yet take none.
#[tokio::test(start_paused = true)]
async fn settlements_that_succeed_do_not_hide_claims_that_fail() {
    let fixture = Fixture::new();
    let running = Event::new("running");
    fixture.claims(&running, FRESH).await;
    fixture.store.breaks(Verb::Claim, Fault::Fail);
    for _ in 0..FAILURES {
        fixture.fails(&Event::new("evt_1"), StoreErrorKind::Unavailable).await;
        assert!(fixture.breaker.renew(&running.request()).await.is_ok());
    }
    assert_eq!(fixture.circuit(), CircuitState::Open);
    tokio::time::sleep(COOL_DOWN).await;
    assert!(fixture.breaker.renew(&running.request()).await.is_ok());
    assert_eq!(fixture.circuit(), CircuitState::Open, "only a claim can tell");
}

#[tokio::test(start_paused = true)]
async fn operators_are_told_once_of_every_change() {
    let (logs, _guard) = Logs::capture();
    let fixture = Fixture::new();
    fixture.outage().await;
    for _ in 0..100 {
        fixture.fails(&Event::new("evt_1"), StoreErrorKind::CircuitOpen).await;
    }
    tokio::time::sleep(COOL_DOWN).await;
    fixture.fails(&Event::new("evt_1"), StoreErrorKind::Unavailable).await;
    fixture.recovery().await;
    let told = ["its circuit is open", "its circuit stays open", "circuit is half open", "its circuit is closed"];
    assert_eq!(told.map(|text| logs.count(text)), [1, 1, 2, 1], "{:?}", logs.lines());
}
