//! Rows 41 and 44: what the fallback decides while the store is away.

use std::time::Duration;

use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::breaker::{CircuitState, FoundInStore};
use tower_webhook::store::{Hold, MemoryStore, Store, StoreErrorKind};

use super::bench::{Bench, COMPLETED, COOL_DOWN, Event, FRESH, IN_FLIGHT, LEASE, RETENTION};
use crate::support::faulty::{Fault, Faulty, Verb, soon};
use crate::support::logs::Logs;
use crate::support::rig::Rig;

/// Two instances on one store run one event while it is away, and are told when it is back.
#[tokio::test(start_paused = true)]
async fn row_41_two_instances_may_both_run_an_event_and_it_comes_out() {
    let (logs, _guard) = Logs::capture();
    let memory = MemoryStore::new();
    let benches =
        [(); 2].map(|()| Bench::around(Faulty::new(memory.clone()), |builder| builder.fallback_may_double(10)));
    let rigs = benches.each_ref().map(|bench| Rig::behind(bench.breaker.clone(), bench.store.clone(), |layer| layer));
    for bench in &benches {
        bench.outage().await;
    }
    for rig in &rigs {
        assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Completed));
        assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "each knows what it did itself");
        assert_eq!(rig.handler.runs(), 1);
    }
    assert_eq!(benches.each_ref().map(|bench| bench.breaker.stats().fallback_claims), [1, 1]);
    assert_eq!(logs.count("claimed on the local fallback"), 2);
    for bench in &benches {
        bench.recovery().await;
        bench.reconciled().await;
    }
    assert_eq!(benches[0].conflicts(), [], "the first to come back was the first");
    let conflicts = benches[1].conflicts();
    assert_eq!(conflicts.len(), 1);
    assert_eq!(
        (conflicts[0].key.id(), conflicts[0].found, conflicts[0].same_body),
        ("evt_1", FoundInStore::Completed, true)
    );
    assert_eq!(conflicts[0].token, rigs[1].handler.started(1).await.token());
    assert_eq!(benches[1].breaker.stats().conflicts, 1);
    assert_eq!(logs.count("completed here while the store was away"), 1);
    assert_eq!((memory.stats().running, memory.stats().completed), (0, 1));
    for rig in &rigs {
        assert_eq!(rig.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    }
}

/// What this instance ran before the outage it does not run again, and a claim is settled where it was made.
#[tokio::test(start_paused = true)]
async fn what_this_instance_did_before_the_outage_is_remembered() {
    let bench = Bench::with_fallback();
    let (running, done, released) = (Event::new("running"), Event::new("done"), Event::new("released"));
    for event in [&running, &done, &released] {
        bench.claims(event, FRESH).await;
    }
    bench.completes(&done, Hold::Held).await;
    bench.outage().await;
    bench.claims(&running.again(), IN_FLIGHT).await;
    bench.claims(&running, FRESH).await;
    bench.claims(&done.again(), COMPLETED).await;
    bench.breaker.release(&released.key, released.token).await.expect_err("it is the store's");
    bench.claims(&released.again(), FRESH).await;
    bench.breaker.complete(&running.request(), &done_for(RETENTION)).await.expect_err("it is the store's");
    bench.claims(&running.again(), COMPLETED).await;
    assert_eq!(bench.breaker.stats().unreconciled, 0);
}

/// A claim made on the fallback is settled there, in the outage and after it.
#[tokio::test(start_paused = true)]
async fn fallback_settles_what_it_gave() {
    let bench = Bench::with_fallback();
    bench.outage().await;
    let (during, after, released) = (Event::new("during"), Event::new("after"), Event::new("released"));
    for event in [&during, &after, &released] {
        bench.claims(event, FRESH).await;
        bench.claims(&event.again(), IN_FLIGHT).await;
    }
    let asked = bench.store.calls(Verb::Complete);
    bench.completes(&during, Hold::Held).await;
    bench.claims(&during.again(), COMPLETED).await;
    bench.recovery().await;
    bench.claims(&after.again(), IN_FLIGHT).await;
    assert_eq!(bench.breaker.renew(&after.request()).await.ok(), Some(Hold::Held));
    assert_eq!(bench.breaker.release(&released.key, released.token).await.ok(), Some(Hold::Held));
    bench.completes(&after, Hold::Held).await;
    bench.reconciled().await;
    assert_eq!(bench.store.calls(Verb::Complete), asked + 2);
    for event in [&during, &after] {
        assert_eq!(bench.inside(event).await, COMPLETED);
        bench.claims(&event.again(), COMPLETED).await;
        bench.completes(event, Hold::Held).await;
    }
    bench.claims(&released.again(), FRESH).await;
    assert_eq!(bench.store.held(), (1, 2), "and that one is in the store");
}

/// The claim that tries the store is answered whatever comes of it.
#[tokio::test(start_paused = true)]
async fn failing_probe_is_decided_by_the_fallback() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang, Fault::HoldReply] {
        let bench = Bench::with_fallback();
        bench.outage().await;
        bench.breaks_all(fault);
        tokio::time::sleep(COOL_DOWN).await;
        let (event, before) = (Event::new("evt_1"), bench.store.calls(Verb::Claim));
        bench.claims(&event, FRESH).await;
        assert_eq!(bench.store.calls(Verb::Claim), before + 1, "{fault:?}: it was the probe");
        assert_eq!(bench.circuit(), CircuitState::Open, "{fault:?}");
        bench.completes(&event, Hold::Held).await;
        bench.heal_all();
        bench.reconciled().await;
        assert_eq!((bench.inside(&event).await, bench.conflicts().len()), (COMPLETED, 0), "{fault:?}: one token");
    }
}

/// The store has taken the probe for a claim, and nobody has heard of it: whoever is not given the claim has it released.
#[tokio::test(start_paused = true)]
async fn failing_probe_that_is_refused_leaves_no_claim_behind() {
    for fault in [Fault::LoseReply, Fault::HoldReply] {
        let bench = Bench::around(Faulty::new(MemoryStore::new()), |builder| builder.fallback_may_double(1));
        let rig = Rig::behind(bench.breaker.clone(), bench.store.clone(), |layer| layer);
        bench.outage().await;
        bench.claims(&Event::new("the only one that there is room for"), FRESH).await;
        bench.heal_all();
        bench.store.breaks(Verb::Claim, fault);
        tokio::time::sleep(COOL_DOWN).await;
        let before = bench.store.calls(Verb::Claim);
        assert_eq!(rig.deliver("evt_1").await.rejection(), Some(RejectionKind::StoreUnavailable), "{fault:?}");
        assert_eq!(bench.store.calls(Verb::Claim), before + 1, "{fault:?}: it was the probe");
        assert_eq!(rig.layer.drain_handle().drain(LEASE).await.dropped, 0, "{fault:?}");
        assert_eq!(bench.store.held(), (0, 0), "{fault:?}: released");
    }
}

/// The same, when somebody else was given the claim while the probe was under way.
#[tokio::test(start_paused = true)]
async fn failing_probe_that_comes_second_leaves_no_claim_behind() {
    let bench = Bench::with_fallback();
    bench.outage().await;
    bench.heal_all();
    bench.store.breaks(Verb::Claim, Fault::HoldReply);
    tokio::time::sleep(COOL_DOWN).await;
    let (event, before) = (Event::new("evt_1"), bench.store.calls(Verb::Claim));
    let (breaker, late) = (bench.breaker.clone(), event.again());
    let probe = tokio::spawn(async move { super::bench::claim(&breaker, &late).await });
    bench.store.called(Verb::Claim, before + 1).await;
    bench.claims(&event, FRESH).await;
    assert_eq!(soon(probe).await.expect("no panic"), Ok(IN_FLIGHT));
    assert_eq!(bench.store.held(), (0, 0), "what the store gave is given back");
}

/// The store accepts a claim whose reply comes late, after the event was claimed on the fallback.
#[tokio::test(start_paused = true)]
async fn late_answer_does_not_give_an_event_to_a_second_claimant() {
    let bench = Bench::with_fallback();
    let event = Event::new("evt_1");
    bench.store.breaks(Verb::Claim, Fault::HoldReply);
    let (breaker, late) = (bench.breaker.clone(), event.again());
    let waiting = tokio::spawn(async move { super::bench::claim(&breaker, &late).await });
    bench.store.called(Verb::Claim, 1).await;
    bench.store.breaks(Verb::Complete, Fault::Fail);
    for _ in 0..3 {
        let _ = bench.breaker.complete(&Event::new("other").request(), &done_for(RETENTION)).await;
    }
    assert_eq!(bench.circuit(), CircuitState::Open);
    bench.claims(&event, FRESH).await;
    bench.heal_all();
    assert_eq!(soon(waiting).await.expect("no panic"), Ok(IN_FLIGHT));
    assert_eq!(bench.store.held(), (0, 0), "what the store gave is given back");
    bench.completes(&event, Hold::Held).await;
    bench.reconciled().await;
    assert_eq!((bench.inside(&event).await, bench.conflicts().len()), (COMPLETED, 0));
}

/// Row 44: what the store must be told of, and what is running, is not forgotten to make room.
#[tokio::test(start_paused = true)]
async fn row_44_full_fallback_refuses_and_never_drops_a_live_claim() {
    let (logs, _guard) = Logs::capture();
    let store = Faulty::new(MemoryStore::new());
    let bench = Bench::around(store, |builder| builder.fallback_may_double(3));
    let rig = Rig::behind(bench.breaker.clone(), bench.store.clone(), |layer| layer);
    for number in 0..5 {
        assert_eq!(rig.deliver(&format!("before_{number}")).await.outcome, Some(Outcome::Completed));
    }
    bench.outage().await;
    assert_eq!(rig.deliver("before_4").await.outcome, Some(Outcome::Duplicate), "the newest are remembered");
    assert_eq!(rig.deliver("done").await.outcome, Some(Outcome::Completed));
    rig.handler.hold();
    let running = [rig.spawn("running_1"), rig.spawn("running_2")];
    rig.handler.started(8).await;
    for _ in 0..3 {
        tokio::time::sleep(LEASE).await;
        let refused = rig.deliver("one_too_many").await;
        assert_eq!((refused.rejection(), refused.retry_after()), (Some(RejectionKind::StoreUnavailable), Some("5")));
        assert_eq!(rig.deliver("done").await.outcome, Some(Outcome::Duplicate));
        assert_eq!(rig.deliver("running_1").await.rejection(), Some(RejectionKind::InFlight));
    }
    // Perhaps the probe, which is released; the next one is not.
    assert_eq!(rig.deliver("one_too_many").await.rejection(), Some(RejectionKind::StoreUnavailable));
    while rig.layer.drain_handle().running() > running.len() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let releases = rig.store.calls(Verb::Release);
    assert_eq!(rig.deliver("one_too_many").await.rejection(), Some(RejectionKind::StoreUnavailable));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.store.calls(Verb::Release), releases, "what took no effect need not be released");
    assert_eq!(logs.count("the local fallback is full"), 1);
    rig.handler.go();
    rig.handler.go();
    for delivery in running {
        assert_eq!(delivery.await.expect("no panic").outcome, Some(Outcome::Completed));
    }
    bench.fails(&Event::new("one_too_many"), StoreErrorKind::Full).await;
    assert_eq!(bench.breaker.stats().unreconciled, 3);

    bench.heal_all();
    bench.reconciled().await;
    assert_eq!((rig.store.held(), bench.conflicts().len()), ((0, 8), 0));
    rig.handler.hold_no_more();
    assert_eq!(rig.deliver("one_too_many").await.outcome, Some(Outcome::Completed));
}

/// Row 44: work that was done on a claim from the store, which has not confirmed it. Once more than an hour the receiver does
/// not repeat its completion, so nobody else knows.
#[tokio::test(start_paused = true)]
async fn row_44_unconfirmed_work_is_not_forgotten_to_make_room() {
    let bench = Bench::around(Faulty::new(MemoryStore::new()), |builder| builder.fallback_may_double(3));
    let unconfirmed = [Event::new("unconfirmed_1"), Event::new("unconfirmed_2")];
    let confirmed = Event::new("confirmed");
    for event in unconfirmed.iter().chain([&confirmed]) {
        bench.claims(event, FRESH).await;
    }
    bench.completes(&confirmed, Hold::Held).await;
    bench.outage().await;
    for event in &unconfirmed {
        bench.breaker.complete(&event.request(), &done_for(2 * LEASE)).await.expect_err("it is the store's");
    }
    bench.claims(&Event::new("in place of what the store knows"), FRESH).await;
    for number in 0..5 {
        bench.fails(&Event::new(&format!("one_too_many_{number}")), StoreErrorKind::Full).await;
    }
    for event in &unconfirmed {
        bench.claims(&event.again(), COMPLETED).await;
    }
    tokio::time::sleep(2 * LEASE).await;
    bench.claims(&Event::new("in place of what is past its retention"), FRESH).await;
}

/// An event that was done twice, its retention over in between, takes one place and is not forgotten with its first time.
#[tokio::test(start_paused = true)]
async fn event_that_was_done_anew_is_remembered_like_any_other() {
    let bench = Bench::around(Faulty::new(MemoryStore::new()), |builder| builder.fallback_may_double(2));
    let (first, other) = (Event::new("evt_1"), Event::new("evt_2"));
    bench.claims(&first, FRESH).await;
    assert_eq!(bench.breaker.complete(&first.request(), &done_for(LEASE)).await.ok(), Some(Hold::Held));
    tokio::time::sleep(2 * LEASE).await;
    for event in [&first.again(), &other] {
        bench.claims(event, FRESH).await;
        bench.completes(event, Hold::Held).await;
    }
    bench.outage().await;
    for event in [&first, &other] {
        bench.claims(&event.again(), COMPLETED).await;
    }
}

/// A holder that is gone does not keep an event for ever.
#[tokio::test(start_paused = true)]
async fn lapsed_fallback_claim_can_be_taken_over_by_either_side() {
    for back in [false, true] {
        let bench = Bench::with_fallback();
        bench.outage().await;
        let (first, second) = (Event::new("evt_1"), Event::new("evt_1"));
        bench.claims(&first, FRESH).await;
        if back {
            bench.recovery().await;
        }
        tokio::time::sleep(LEASE).await;
        bench.claims(&second, FRESH).await;
        assert_eq!(bench.store.held().0, usize::from(back), "taken from the store, if that is there");
        bench.completes(&first, Hold::Lost).await;
        bench.completes(&second, Hold::Held).await;
        bench.heal_all();
        bench.reconciled().await;
        assert_eq!((bench.inside(&first).await, bench.conflicts().len()), (COMPLETED, 0));
    }
}

fn done_for(retention: Duration) -> tower_webhook::store::Completion<'static> {
    tower_webhook::store::Completion::succeeded("200 OK", retention)
}
