//! An open circuit holds back claims and nothing else.

use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::Outcome;
use tower_webhook::store::breaker::CircuitState;
use tower_webhook::store::{ClaimToken, Hold, Store};

use super::fixture::{COMPLETED, COOL_DOWN, Event, FRESH, Fixture, LEASE};
use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb, soon};

const RUNNING: usize = 20;

/// The outage begins while handlers run, and lasts longer than their leases: every completion ends up in the store.
#[tokio::test(start_paused = true)]
async fn completions_of_an_outage_reach_the_store() {
    for (fixture, fault) in [
        (Fixture::new(), Fault::Fail),
        (Fixture::new(), Fault::Hang),
        (Fixture::with_fallback(), Fault::Fail),
        (Fixture::with_fallback(), Fault::Hang),
    ] {
        let receiver = ControlledReceiver::behind(fixture.breaker.clone(), fixture.store.clone(), |layer| layer);
        receiver.handler.hold();
        let deliveries: Vec<_> = (0..RUNNING).map(|number| receiver.spawn(&format!("evt_{number}"))).collect();
        receiver.handler.started(RUNNING).await;
        fixture.outage().await;
        fixture.breaks_all(fault);
        (0..RUNNING).for_each(|_| receiver.handler.go());
        for delivery in deliveries {
            let answer = delivery.await.expect("no panic");
            assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::CompletionPending)));
        }
        for _ in 0..3 {
            tokio::time::sleep(LEASE).await;
            let duplicate = receiver.deliver("evt_0").await;
            assert_eq!(duplicate.outcome, Some(Outcome::Duplicate), "{fault:?}: it is done, and this process knows");
        }
        fixture.heal_all();
        assert_eq!(receiver.layer.drain_handle().drain(LEASE).await.dropped, 0, "{fault:?}");
        assert_eq!((receiver.handler.runs(), receiver.store.held()), (RUNNING, (0, RUNNING)), "{fault:?}");
    }
}

/// The same for a receiver that is asked nothing else: the circuit is still open when the completion gets through.
#[tokio::test(start_paused = true)]
async fn settlements_go_through_an_open_circuit() {
    for fixture in [Fixture::new(), Fixture::with_fallback()] {
        let (completed, released, renewed) = (Event::new("completed"), Event::new("released"), Event::new("renewed"));
        for event in [&completed, &released, &renewed] {
            fixture.claims(event, FRESH).await;
        }
        fixture.outage().await;
        fixture.heal_all();
        fixture.completes(&completed, Hold::Held).await;
        assert_eq!(fixture.breaker.release(&released.key, released.token).await.ok(), Some(Hold::Held));
        assert_eq!(fixture.breaker.renew(&renewed.request()).await.ok(), Some(Hold::Held));
        assert_eq!(fixture.circuit(), CircuitState::Open);
        assert_eq!(fixture.store.held(), (1, 1));
        assert_eq!(fixture.inside(&completed).await, COMPLETED);
    }
}

/// Without a fallback nobody answers for the store: what it cannot say is an error, for the receiver to ask again.
#[tokio::test(start_paused = true)]
async fn settlements_fail_with_the_store_and_not_with_the_circuit() {
    let fixture = Fixture::new();
    let event = Event::new("evt_1");
    fixture.claims(&event, FRESH).await;
    fixture.outage().await;
    let before = fixture.store.calls(Verb::Renew);
    for _ in 0..10 {
        fixture.breaker.renew(&event.request()).await.expect_err("the store is away");
    }
    assert_eq!(fixture.store.calls(Verb::Renew), before + 10, "asked every time");
    assert!(fixture.breaker.release(&event.key, ClaimToken::random()).await.is_err());
}

/// Handlers that run through an outage keep their claims, if nobody took them meanwhile.
#[tokio::test(start_paused = true)]
async fn handler_keeps_its_claim_through_an_outage() {
    for fault in [Fault::Fail, Fault::Hang] {
        let fixture = Fixture::with_fallback();
        let receiver = ControlledReceiver::behind(fixture.breaker.clone(), fixture.store.clone(), |layer| layer);
        receiver.handler.hold();
        let first = receiver.spawn("evt_1");
        let event = receiver.handler.started(1).await;
        fixture.outage().await;
        fixture.breaks_all(fault);
        for _ in 0..5 {
            tokio::time::sleep(LEASE).await;
            assert!(event.is_held(), "{fault:?}");
            let duplicate = receiver.deliver("evt_1").await;
            assert_eq!(duplicate.status, StatusCode::SERVICE_UNAVAILABLE, "{fault:?}: it is still running");
        }
        fixture.recovery().await;
        // The lease has long lapsed there, and nobody may profit from that in this process.
        let duplicate = receiver.deliver("evt_1").await;
        assert_eq!(duplicate.status, StatusCode::SERVICE_UNAVAILABLE, "{fault:?}");
        tokio::time::sleep(LEASE).await;
        receiver.handler.go();
        assert_eq!(soon(first).await.expect("no panic").outcome, Some(Outcome::Completed), "{fault:?}");
        assert_eq!((receiver.handler.runs(), receiver.store.held()), (1, (0, 1)), "{fault:?}");
    }
}

/// Renewals alone notice the outage: with nothing else going on, the handler does not lose its claim either.
#[tokio::test(start_paused = true)]
async fn renewals_alone_open_the_circuit() {
    let fixture = Fixture::with_fallback();
    let receiver = ControlledReceiver::behind(fixture.breaker.clone(), fixture.store.clone(), |layer| layer);
    receiver.handler.hold();
    let first = receiver.spawn("evt_1");
    let event = receiver.handler.started(1).await;
    fixture.breaks_all(Fault::Hang);
    tokio::time::sleep(10 * LEASE).await;
    assert!(event.is_held());
    assert_eq!(fixture.circuit(), CircuitState::Open);
    fixture.heal_all();
    tokio::time::sleep(COOL_DOWN + Duration::from_secs(10)).await;
    receiver.handler.go();
    assert_eq!(soon(first).await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(receiver.store.held(), (0, 1));
}
