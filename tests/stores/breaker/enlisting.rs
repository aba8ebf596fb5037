//! Claims of the fallback whose handlers put the completion into a transaction of their own. The transaction is played: the
//! test "commits" by completing in the store behind the breaker's back.

use axum::http::StatusCode;
use tokio::task::JoinHandle;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{ClaimRequest, Completion, Dialect, Enlistment, Hold, MemoryStore, Store};
use tower_webhook::{Outcome, WebhookEvent};

use super::fixture::{COOL_DOWN, Fixture, LEASE, RETENTION};
use crate::support::Answer;
use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Faulty, Verb, soon};

/// A delivery that was the probe of an outage, and whose claim is the fallback's: its handler has enlisted the completion and
/// does not go on yet.
struct Enlisted {
    fixture: Fixture,
    receiver: ControlledReceiver,
    event: WebhookEvent,
    delivery: JoinHandle<Answer>,
}

impl Enlisted {
    async fn after(fault: Fault) -> Self {
        let store = Faulty::new(MemoryStore::new()).lends(Enlistment::new(Dialect::Postgres, "UPDATE …"));
        let fixture = Fixture::around(store, |builder| builder.fallback_may_double(10));
        let receiver = ControlledReceiver::behind(fixture.breaker.clone(), fixture.store.clone(), |layer| layer);
        receiver.handler.hold();
        fixture.outage().await;
        fixture.heal_all();
        fixture.store.breaks(Verb::Claim, fault);
        tokio::time::sleep(COOL_DOWN).await;
        let delivery = receiver.spawn("evt_1");
        let event = receiver.handler.started(1).await;
        assert_eq!(fixture.breaker.stats().fallback_claims, 1);
        event.enlist().await.expect("the store lends a statement");
        Self { fixture, receiver, event, delivery }
    }

    /// What the transaction does to the row when it is committed.
    async fn commit(&self) {
        let claim = ClaimRequest::new(self.event.key(), self.event.token(), LEASE);
        let committed = Completion::succeeded("by the transaction", RETENTION);
        assert_eq!(self.fixture.store.inner.complete(&claim, &committed).await.ok(), Some(Hold::Held));
    }

    async fn ends(&mut self, status: u16) -> Answer {
        self.receiver.handler.answers(status);
        self.receiver.handler.go();
        soon(&mut self.delivery).await.expect("no panic")
    }
}

/// The probe had left a row, under the same token.
#[tokio::test(start_paused = true)]
async fn committed_transaction_of_a_claim_in_doubt_is_completed() {
    for (fault, status) in [(Fault::LoseReply, 200), (Fault::HoldReply, 200), (Fault::LoseReply, 500)] {
        let mut enlisted = Enlisted::after(fault).await;
        enlisted.commit().await;
        let answer = enlisted.ends(status).await;
        assert_eq!((answer.status.as_u16(), answer.outcome), (status, Some(Outcome::Completed)), "{fault:?}");
        enlisted.fixture.recovery().await;
        assert_eq!(enlisted.receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "{fault:?}");
        assert_eq!((enlisted.receiver.handler.runs(), enlisted.fixture.conflicts().len()), (1, 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rolled_back_transaction_of_a_claim_in_doubt_leaves_no_claim_behind() {
    let mut enlisted = Enlisted::after(Fault::HoldReply).await;
    let answer = enlisted.ends(200).await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Released)));
    assert_eq!(enlisted.fixture.store.held(), (0, 0), "the retry need not wait for the lease");
}

/// There is no row, and so nothing can have been committed.
#[tokio::test(start_paused = true)]
async fn claim_that_never_reached_the_store_is_not_taken_for_committed() {
    for fault in [Fault::Fail, Fault::Hang] {
        let mut enlisted = Enlisted::after(fault).await;
        let answer = enlisted.ends(200).await;
        assert!(!answer.status.is_success(), "{fault:?}: {answer:?}");
        enlisted.fixture.recovery().await;
        enlisted.receiver.handler.hold_no_more();
        assert_eq!(
            enlisted.receiver.deliver("evt_1").await.outcome,
            Some(Outcome::Completed),
            "{fault:?}: the retry runs"
        );
    }
}

/// Nobody can say whether it was committed, so it is not acknowledged.
#[tokio::test(start_paused = true)]
async fn transaction_that_still_holds_its_row_is_a_503() {
    let mut enlisted = Enlisted::after(Fault::LoseReply).await;
    enlisted.fixture.store.breaks(Verb::Release, Fault::Locked);
    assert_eq!(enlisted.ends(200).await.rejection(), Some(RejectionKind::StoreUnavailable));
}

/// The store is away again when it is asked: the fallback's own answer, and the retry finds what was committed.
#[tokio::test(start_paused = true)]
async fn committed_transaction_is_found_by_the_retry() {
    let mut enlisted = Enlisted::after(Fault::LoseReply).await;
    enlisted.commit().await;
    enlisted.fixture.breaks_all(Fault::Hang);
    assert_eq!(enlisted.ends(200).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    enlisted.fixture.recovery().await;
    assert_eq!(enlisted.receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!(enlisted.receiver.handler.runs(), 1);
}
