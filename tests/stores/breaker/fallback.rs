//! Rows 41 and 44: what the fallback decides while the store is away.

use std::time::Duration;

use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::breaker::{CircuitState, FoundInStore};
use tower_webhook::store::{Hold, MemoryStore, Store, StoreErrorKind};

use super::fixture::{COMPLETED, COOL_DOWN, Event, FRESH, Fixture, IN_FLIGHT, LEASE, RETENTION};
use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Faulty, Verb, soon};
use crate::support::logs::Logs;

/// Two instances on one store run one event while it is away, and are told when it is back.
#[tokio::test(start_paused = true)]
async fn row_41_two_instances_may_both_run_an_event_and_the_conflict_is_found() {
    let (logs, _guard) = Logs::capture();
    let memory = MemoryStore::new();
    let fixtures =
        [(); 2].map(|()| Fixture::around(Faulty::new(memory.clone()), |builder| builder.fallback_may_double(10)));
    let receivers = fixtures
        .each_ref()
        .map(|fixture| ControlledReceiver::behind(fixture.breaker.clone(), fixture.store.clone(), |layer| layer));
    for fixture in &fixtures {
        fixture.outage().await;
    }
    for receiver in &receivers {
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "each knows what it did itself");
        assert_eq!(receiver.handler.runs(), 1);
    }
    assert_eq!(fixtures.each_ref().map(|fixture| fixture.breaker.stats().fallback_claims), [1, 1]);
    assert_eq!(logs.count("claimed on the local fallback"), 2);
    for fixture in &fixtures {
        fixture.recovery().await;
        fixture.reconciled().await;
    }
    assert_eq!(fixtures[0].conflicts(), [], "the first to come back was the first");
    let conflicts = fixtures[1].conflicts();
    assert_eq!(conflicts.len(), 1);
    assert_eq!(
        (conflicts[0].key.id(), conflicts[0].found, conflicts[0].same_body),
        ("evt_1", FoundInStore::Completed, true)
    );
    assert_eq!(conflicts[0].token, receivers[1].handler.started(1).await.token());
    assert_eq!(fixtures[1].breaker.stats().conflicts, 1);
    assert_eq!(logs.count("completed here while the store was away"), 1);
    assert_eq!((memory.stats().running, memory.stats().completed), (0, 1));
    for receiver in &receivers {
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    }
}

/// What this instance ran before the outage it does not run again, and a claim is settled where it was made.
#[tokio::test(start_paused = true)]
async fn what_this_instance_did_before_the_outage_is_remembered() {
    let fixture = Fixture::with_fallback();
    let (running, done, released) = (Event::new("running"), Event::new("done"), Event::new("released"));
    for event in [&running, &done, &released] {
        fixture.claims(event, FRESH).await;
    }
    fixture.completes(&done, Hold::Held).await;
    fixture.outage().await;
    fixture.claims(&running.again(), IN_FLIGHT).await;
    fixture.claims(&running, FRESH).await;
    fixture.claims(&done.again(), COMPLETED).await;
    fixture.breaker.release(&released.key, released.token).await.expect_err("it is the store's");
    fixture.claims(&released.again(), FRESH).await;
    fixture.breaker.complete(&running.request(), &done_for(RETENTION)).await.expect_err("it is the store's");
    fixture.claims(&running.again(), COMPLETED).await;
    assert_eq!(fixture.breaker.stats().unreconciled, 0);
}

/// A claim made on the fallback is settled there, in the outage and after it.
#[tokio::test(start_paused = true)]
async fn fallback_settles_what_it_gave() {
    let fixture = Fixture::with_fallback();
    fixture.outage().await;
    let (during, after, released) = (Event::new("during"), Event::new("after"), Event::new("released"));
    for event in [&during, &after, &released] {
        fixture.claims(event, FRESH).await;
        fixture.claims(&event.again(), IN_FLIGHT).await;
    }
    let asked = fixture.store.calls(Verb::Complete);
    fixture.completes(&during, Hold::Held).await;
    fixture.claims(&during.again(), COMPLETED).await;
    fixture.recovery().await;
    fixture.claims(&after.again(), IN_FLIGHT).await;
    assert_eq!(fixture.breaker.renew(&after.request()).await.ok(), Some(Hold::Held));
    assert_eq!(fixture.breaker.release(&released.key, released.token).await.ok(), Some(Hold::Held));
    fixture.completes(&after, Hold::Held).await;
    fixture.reconciled().await;
    assert_eq!(fixture.store.calls(Verb::Complete), asked + 2);
    for event in [&during, &after] {
        assert_eq!(fixture.inside(event).await, COMPLETED);
        fixture.claims(&event.again(), COMPLETED).await;
        fixture.completes(event, Hold::Held).await;
    }
    fixture.claims(&released.again(), FRESH).await;
    assert_eq!(fixture.store.held(), (1, 2), "and that one is in the store");
}

/// The claim that tries the store is answered whatever comes of it.
#[tokio::test(start_paused = true)]
async fn failing_probe_is_decided_by_the_fallback() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang, Fault::HoldReply] {
        let fixture = Fixture::with_fallback();
        fixture.outage().await;
        fixture.breaks_all(fault);
        tokio::time::sleep(COOL_DOWN).await;
        let (event, before) = (Event::new("evt_1"), fixture.store.calls(Verb::Claim));
        fixture.claims(&event, FRESH).await;
        assert_eq!(fixture.store.calls(Verb::Claim), before + 1, "{fault:?}: it was the probe");
        assert_eq!(fixture.circuit(), CircuitState::Open, "{fault:?}");
        fixture.completes(&event, Hold::Held).await;
        fixture.heal_all();
        fixture.reconciled().await;
        assert_eq!((fixture.inside(&event).await, fixture.conflicts().len()), (COMPLETED, 0), "{fault:?}: one token");
    }
}

/// The store has taken the probe for a claim, and nobody has heard of it: whoever is not given the claim has it released.
#[tokio::test(start_paused = true)]
async fn failing_probe_that_is_refused_leaves_no_claim_behind() {
    for fault in [Fault::LoseReply, Fault::HoldReply] {
        let fixture = Fixture::around(Faulty::new(MemoryStore::new()), |builder| builder.fallback_may_double(1));
        let receiver = ControlledReceiver::behind(fixture.breaker.clone(), fixture.store.clone(), |layer| layer);
        fixture.outage().await;
        fixture.claims(&Event::new("the only one that there is room for"), FRESH).await;
        fixture.heal_all();
        fixture.store.breaks(Verb::Claim, fault);
        tokio::time::sleep(COOL_DOWN).await;
        let before = fixture.store.calls(Verb::Claim);
        assert_eq!(receiver.deliver("evt_1").await.rejection(), Some(RejectionKind::StoreUnavailable), "{fault:?}");
        assert_eq!(fixture.store.calls(Verb::Claim), before + 1, "{fault:?}: it was the probe");
        assert_eq!(receiver.layer.drain_handle().drain(LEASE).await.dropped, 0, "{fault:?}");
        assert_eq!(fixture.store.held(), (0, 0), "{fault:?}: released");
    }
}

/// The same, when somebody else was given the claim while the probe was under way.
#[tokio::test(start_paused = true)]
async fn failing_probe_that_comes_second_leaves_no_claim_behind() {
    let fixture = Fixture::with_fallback();
    fixture.outage().await;
    fixture.heal_all();
    fixture.store.breaks(Verb::Claim, Fault::HoldReply);
    tokio::time::sleep(COOL_DOWN).await;
    let (event, before) = (Event::new("evt_1"), fixture.store.calls(Verb::Claim));
    let (breaker, late) = (fixture.breaker.clone(), event.again());
    let probe = tokio::spawn(async move { super::fixture::claim(&breaker, &late).await });
    fixture.store.called(Verb::Claim, before + 1).await;
    fixture.claims(&event, FRESH).await;
    assert_eq!(soon(probe).await.expect("no panic"), Ok(IN_FLIGHT));
    assert_eq!(fixture.store.held(), (0, 0), "what the store gave is given back");
}

/// The store accepts a claim whose reply comes late, after the event was claimed on the fallback.
#[tokio::test(start_paused = true)]
async fn late_answer_does_not_give_an_event_to_a_second_claimant() {
    let fixture = Fixture::with_fallback();
    let event = Event::new("evt_1");
    fixture.store.breaks(Verb::Claim, Fault::HoldReply);
    let (breaker, late) = (fixture.breaker.clone(), event.again());
    let waiting = tokio::spawn(async move { super::fixture::claim(&breaker, &late).await });
    fixture.store.called(Verb::Claim, 1).await;
    fixture.store.breaks(Verb::Complete, Fault::Fail);
    for _ in 0..3 {
        let _ = fixture.breaker.complete(&Event::new("other").request(), &done_for(RETENTION)).await;
    }
    assert_eq!(fixture.circuit(), CircuitState::Open);
    fixture.claims(&event, FRESH).await;
    fixture.heal_all();
    assert_eq!(soon(waiting).await.expect("no panic"), Ok(IN_FLIGHT));
    assert_eq!(fixture.store.held(), (0, 0), "what the store gave is given back");
    fixture.completes(&event, Hold::Held).await;
    fixture.reconciled().await;
    assert_eq!((fixture.inside(&event).await, fixture.conflicts().len()), (COMPLETED, 0));
}

/// Row 44: what the store must be told of, and what is running, is not forgotten to make room.
#[tokio::test(start_paused = true)]
async fn row_44_full_fallback_refuses_and_never_drops_a_live_claim() {
    let (logs, _guard) = Logs::capture();
    let store = Faulty::new(MemoryStore::new());
    let fixture = Fixture::around(store, |builder| builder.fallback_may_double(3));
    let receiver = ControlledReceiver::behind(fixture.breaker.clone(), fixture.store.clone(), |layer| layer);
    for number in 0..5 {
        assert_eq!(receiver.deliver(&format!("before_{number}")).await.outcome, Some(Outcome::Completed));
    }
    fixture.outage().await;
    assert_eq!(receiver.deliver("before_4").await.outcome, Some(Outcome::Duplicate), "the newest are remembered");
    assert_eq!(receiver.deliver("done").await.outcome, Some(Outcome::Completed));
    receiver.handler.hold();
    let running = [receiver.spawn("running_1"), receiver.spawn("running_2")];
    receiver.handler.started(8).await;
    for _ in 0..3 {
        tokio::time::sleep(LEASE).await;
        let refused = receiver.deliver("one_too_many").await;
        assert_eq!((refused.rejection(), refused.retry_after()), (Some(RejectionKind::StoreUnavailable), Some("5")));
        assert_eq!(receiver.deliver("done").await.outcome, Some(Outcome::Duplicate));
        assert_eq!(receiver.deliver("running_1").await.rejection(), Some(RejectionKind::InFlight));
    }
    // Perhaps the probe, which is released; the next one is not.
    assert_eq!(receiver.deliver("one_too_many").await.rejection(), Some(RejectionKind::StoreUnavailable));
    while receiver.layer.drain_handle().running() > running.len() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let releases = receiver.store.calls(Verb::Release);
    assert_eq!(receiver.deliver("one_too_many").await.rejection(), Some(RejectionKind::StoreUnavailable));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(receiver.store.calls(Verb::Release), releases, "what took no effect need not be released");
    assert_eq!(logs.count("the local fallback is full"), 1);
    receiver.handler.go();
    receiver.handler.go();
    for delivery in running {
        assert_eq!(delivery.await.expect("no panic").outcome, Some(Outcome::Completed));
    }
    fixture.fails(&Event::new("one_too_many"), StoreErrorKind::Full).await;
    assert_eq!(fixture.breaker.stats().unreconciled, 3);

    fixture.heal_all();
    fixture.reconciled().await;
    assert_eq!((receiver.store.held(), fixture.conflicts().len()), ((0, 8), 0));
    receiver.handler.hold_no_more();
    assert_eq!(receiver.deliver("one_too_many").await.outcome, Some(Outcome::Completed));
}

/// Row 44: work that was done on a claim from the store, which has not confirmed it. Once more than an hour the receiver does
/// not repeat its completion, so nobody else knows.
#[tokio::test(start_paused = true)]
async fn row_44_unconfirmed_work_is_not_forgotten_to_make_room() {
    let fixture = Fixture::around(Faulty::new(MemoryStore::new()), |builder| builder.fallback_may_double(3));
    let unconfirmed = [Event::new("unconfirmed_1"), Event::new("unconfirmed_2")];
    let confirmed = Event::new("confirmed");
    for event in unconfirmed.iter().chain([&confirmed]) {
        fixture.claims(event, FRESH).await;
    }
    fixture.completes(&confirmed, Hold::Held).await;
    fixture.outage().await;
    for event in &unconfirmed {
        fixture.breaker.complete(&event.request(), &done_for(2 * LEASE)).await.expect_err("it is the store's");
    }
    fixture.claims(&Event::new("in place of what the store knows"), FRESH).await;
    for number in 0..5 {
        fixture.fails(&Event::new(&format!("one_too_many_{number}")), StoreErrorKind::Full).await;
    }
    for event in &unconfirmed {
        fixture.claims(&event.again(), COMPLETED).await;
    }
    tokio::time::sleep(2 * LEASE).await;
    fixture.claims(&Event::new("in place of what is past its retention"), FRESH).await;
}

/// An event that was done twice, its retention over in between, takes one place and is not forgotten with its first time.
#[tokio::test(start_paused = true)]
async fn event_that_was_done_anew_is_remembered_like_any_other() {
    let fixture = Fixture::around(Faulty::new(MemoryStore::new()), |builder| builder.fallback_may_double(2));
    let (first, other) = (Event::new("evt_1"), Event::new("evt_2"));
    fixture.claims(&first, FRESH).await;
    assert_eq!(fixture.breaker.complete(&first.request(), &done_for(LEASE)).await.ok(), Some(Hold::Held));
    tokio::time::sleep(2 * LEASE).await;
    for event in [&first.again(), &other] {
        fixture.claims(event, FRESH).await;
        fixture.completes(event, Hold::Held).await;
    }
    fixture.outage().await;
    for event in [&first, &other] {
        fixture.claims(&event.again(), COMPLETED).await;
    }
}

/// A holder that is gone does not keep an event for ever.
#[tokio::test(start_paused = true)]
async fn lapsed_fallback_claim_can_be_taken_over_by_either_side() {
    for back in [false, true] {
        let fixture = Fixture::with_fallback();
        fixture.outage().await;
        let (first, second) = (Event::new("evt_1"), Event::new("evt_1"));
        fixture.claims(&first, FRESH).await;
        if back {
            fixture.recovery().await;
        }
        tokio::time::sleep(LEASE).await;
        fixture.claims(&second, FRESH).await;
        assert_eq!(fixture.store.held().0, usize::from(back), "taken from the store, if that is there");
        fixture.completes(&first, Hold::Lost).await;
        fixture.completes(&second, Hold::Held).await;
        fixture.heal_all();
        fixture.reconciled().await;
        assert_eq!((fixture.inside(&first).await, fixture.conflicts().len()), (COMPLETED, 0));
    }
}

fn done_for(retention: Duration) -> tower_webhook::store::Completion<'static> {
    tower_webhook::store::Completion::succeeded("200 OK", retention)
}
