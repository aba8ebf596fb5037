//! An open circuit holds back claims and nothing else.

use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::Outcome;
use tower_webhook::store::breaker::CircuitState;
use tower_webhook::store::{ClaimToken, Hold, Store};

use super::bench::{Bench, COMPLETED, COOL_DOWN, Event, FRESH, LEASE};
use crate::support::faulty::{Fault, Verb, soon};
use crate::support::rig::Rig;

const RUNNING: usize = 20;

/// The outage begins while handlers run, and lasts longer than their leases: every completion ends up in the store.
#[tokio::test(start_paused = true)]
async fn completions_of_an_outage_reach_the_store() {
    for (bench, fault) in [
        (Bench::new(), Fault::Fail),
        (Bench::new(), Fault::Hang),
        (Bench::with_fallback(), Fault::Fail),
        (Bench::with_fallback(), Fault::Hang),
    ] {
        let rig = Rig::behind(bench.breaker.clone(), bench.store.clone(), |layer| layer);
        rig.handler.hold();
        let deliveries: Vec<_> = (0..RUNNING).map(|number| rig.spawn(&format!("evt_{number}"))).collect();
        rig.handler.started(RUNNING).await;
        bench.outage().await;
        bench.breaks_all(fault);
        (0..RUNNING).for_each(|_| rig.handler.go());
        for delivery in deliveries {
            let answer = delivery.await.expect("no panic");
            assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::CompletionPending)));
        }
        for _ in 0..3 {
            tokio::time::sleep(LEASE).await;
            let duplicate = rig.deliver("evt_0").await;
            assert_eq!(duplicate.outcome, Some(Outcome::Duplicate), "{fault:?}: it is done, and this process knows");
        }
        bench.heal_all();
        assert_eq!(rig.layer.drain_handle().drain(LEASE).await.dropped, 0, "{fault:?}");
        assert_eq!((rig.handler.runs(), rig.store.held()), (RUNNING, (0, RUNNING)), "{fault:?}");
    }
}

/// The same for a receiver that is asked nothing else: the circuit is still open when the completion gets through.
#[tokio::test(start_paused = true)]
async fn settlements_go_through_an_open_circuit() {
    for bench in [Bench::new(), Bench::with_fallback()] {
        let (completed, released, renewed) = (Event::new("completed"), Event::new("released"), Event::new("renewed"));
        for event in [&completed, &released, &renewed] {
            bench.claims(event, FRESH).await;
        }
        bench.outage().await;
        bench.heal_all();
        bench.completes(&completed, Hold::Held).await;
        assert_eq!(bench.breaker.release(&released.key, released.token).await.ok(), Some(Hold::Held));
        assert_eq!(bench.breaker.renew(&renewed.request()).await.ok(), Some(Hold::Held));
        assert_eq!(bench.circuit(), CircuitState::Open);
        assert_eq!(bench.store.held(), (1, 1));
        assert_eq!(bench.inside(&completed).await, COMPLETED);
    }
}

/// Without a fallback nobody answers for the store: what it cannot say is an error, for the receiver to ask again.
#[tokio::test(start_paused = true)]
async fn settlements_fail_with_the_store_and_not_with_the_circuit() {
    let bench = Bench::new();
    let event = Event::new("evt_1");
    bench.claims(&event, FRESH).await;
    bench.outage().await;
    let before = bench.store.calls(Verb::Renew);
    for _ in 0..10 {
        bench.breaker.renew(&event.request()).await.expect_err("the store is away");
    }
    assert_eq!(bench.store.calls(Verb::Renew), before + 10, "asked every time");
    assert!(bench.breaker.release(&event.key, ClaimToken::random()).await.is_err());
}

/// Handlers that run through an outage keep their claims, if nobody took them meanwhile.
#[tokio::test(start_paused = true)]
async fn handler_keeps_its_claim_through_an_outage() {
    for fault in [Fault::Fail, Fault::Hang] {
        let bench = Bench::with_fallback();
        let rig = Rig::behind(bench.breaker.clone(), bench.store.clone(), |layer| layer);
        rig.handler.hold();
        let first = rig.spawn("evt_1");
        let event = rig.handler.started(1).await;
        bench.outage().await;
        bench.breaks_all(fault);
        for _ in 0..5 {
            tokio::time::sleep(LEASE).await;
            assert!(event.is_held(), "{fault:?}");
            let duplicate = rig.deliver("evt_1").await;
            assert_eq!(duplicate.status, StatusCode::SERVICE_UNAVAILABLE, "{fault:?}: it is still running");
        }
        bench.recovery().await;
        // The lease has long lapsed there, and nobody may profit from that in this process.
        let duplicate = rig.deliver("evt_1").await;
        assert_eq!(duplicate.status, StatusCode::SERVICE_UNAVAILABLE, "{fault:?}");
        tokio::time::sleep(LEASE).await;
        rig.handler.go();
        assert_eq!(soon(first).await.expect("no panic").outcome, Some(Outcome::Completed), "{fault:?}");
        assert_eq!((rig.handler.runs(), rig.store.held()), (1, (0, 1)), "{fault:?}");
    }
}

/// Renewals alone notice the outage: with nothing else going on, the handler does not lose its claim either.
#[tokio::test(start_paused = true)]
async fn renewals_alone_open_the_circuit() {
    let bench = Bench::with_fallback();
    let rig = Rig::behind(bench.breaker.clone(), bench.store.clone(), |layer| layer);
    rig.handler.hold();
    let first = rig.spawn("evt_1");
    let event = rig.handler.started(1).await;
    bench.breaks_all(Fault::Hang);
    tokio::time::sleep(10 * LEASE).await;
    assert!(event.is_held());
    assert_eq!(bench.circuit(), CircuitState::Open);
    bench.heal_all();
    tokio::time::sleep(COOL_DOWN + Duration::from_secs(10)).await;
    rig.handler.go();
    assert_eq!(soon(first).await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(rig.store.held(), (0, 1));
}
