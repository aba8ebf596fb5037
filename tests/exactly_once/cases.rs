//! What becomes of an enlisted completion, on any database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use tokio::sync::{Mutex, Semaphore};
use tower_webhook::enlist::EnlistErrorKind;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken};
use tower_webhook::{HandlerError, Outcome, WebhookEvent};

use super::ledger::{Ledger, Transaction};
use super::receiver::{Receiver, key};

/// What the first run does; later ones pay and commit.
fn first_then_pay<L, H, F>(database: &L, first: H) -> (Receiver, Arc<AtomicUsize>)
where
    L: Ledger,
    H: Fn(L, WebhookEvent) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let (runs, own) = (Arc::new(AtomicUsize::new(0)), database.clone());
    let counter = runs.clone();
    let receiver = Receiver::new(database.store(), move |event: WebhookEvent| {
        let (database, first, run) = (own.clone(), first.clone(), counter.fetch_add(1, Ordering::SeqCst));
        async move {
            match run {
                0 => first(database, event).await,
                _ => Ok(database.pay(&event).await?.commit().await?),
            }
        }
    });
    (receiver, runs)
}

pub(crate) async fn effect_and_completion_are_committed_together<L: Ledger>() {
    let database = L::fresh().await;
    let (receiver, runs) = first_then_pay(&database, |database: L, event: WebhookEvent| async move {
        let tx = database.pay(&event).await?;
        assert_eq!(database.effects("evt_1").await, 0, "not before the commit");
        Ok(tx.commit().await?)
    });
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    for _ in 0..3 {
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    }
    assert_eq!((database.effects("evt_1").await, runs.load(Ordering::SeqCst)), (1, 1));
}

pub(crate) async fn rollback_takes_the_completion_back_and_the_retry_runs<L: Ledger>() {
    let database = L::fresh().await;
    let (receiver, _) = first_then_pay(&database, |database: L, event: WebhookEvent| async move {
        database.pay(&event).await?.rollback().await?;
        Err(HandlerError::transient("changed its mind"))
    });
    let answer = receiver.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Released)));
    assert_eq!(database.effects("evt_1").await, 0);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(database.effects("evt_1").await, 1);
}

pub(crate) async fn forgotten_commit_is_a_500_and_the_retry_runs<L: Ledger>() {
    let database = L::fresh().await;
    let (receiver, _) = first_then_pay(&database, |database: L, event: WebhookEvent| async move {
        drop(database.pay(&event).await?);
        Ok(())
    });
    // A dropped transaction is rolled back a moment later, which is waited for.
    let answer = receiver.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Released)));
    assert_eq!(database.effects("evt_1").await, 0);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(database.effects("evt_1").await, 1);
}

pub(crate) async fn success_after_a_rollback_is_a_500<L: Ledger>() {
    let database = L::fresh().await;
    let (receiver, _) = first_then_pay(&database, |database: L, event: WebhookEvent| async move {
        Ok(database.pay(&event).await?.rollback().await?)
    });
    let answer = receiver.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Released)));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(database.effects("evt_1").await, 1);
}

/// Whether it will be committed nobody knows yet.
pub(crate) async fn transaction_that_is_still_open_makes_it_a_503<L: Ledger>() {
    let database = L::fresh().await;
    let leaked = Arc::new(Mutex::new(None));
    let (receiver, runs) = first_then_pay(&database, {
        let leaked = leaked.clone();
        move |database: L, event: WebhookEvent| {
            let leaked = leaked.clone();
            async move {
                *leaked.lock().await = Some(database.pay(&event).await?);
                Ok(())
            }
        }
    });
    let answer = receiver.deliver("evt_1").await;
    assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable), "{answer:?}");
    let tx: L::Transaction = leaked.lock().await.take().expect("the handler left it");
    tx.commit().await.expect("a commit");
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!((database.effects("evt_1").await, runs.load(Ordering::SeqCst)), (1, 1));
}

pub(crate) async fn failure_after_the_commit_is_passed_on_and_the_retry_is_a_duplicate<L: Ledger>() {
    let database = L::fresh().await;
    let (receiver, runs) = first_then_pay(&database, |database: L, event: WebhookEvent| async move {
        database.pay(&event).await?.commit().await?;
        Err(HandlerError::transient("the mail could not be sent"))
    });
    let answer = receiver.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Completed)));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!((database.effects("evt_1").await, runs.load(Ordering::SeqCst)), (1, 1));
}

pub(crate) async fn panic_in_the_transaction_leaves_nothing_behind<L: Ledger>() {
    let database = L::fresh().await;
    let (receiver, _) = first_then_pay(&database, |database: L, event: WebhookEvent| async move {
        let _tx = database.pay(&event).await?;
        panic!("asked to");
    });
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Panicked));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(database.effects("evt_1").await, 1);
}

pub(crate) async fn completion_can_be_enlisted_again_after_a_rollback<L: Ledger>() {
    let database = L::fresh().await;
    let (receiver, runs) = first_then_pay(&database, |database: L, event: WebhookEvent| async move {
        database.pay(&event).await?.rollback().await?;
        Ok(database.pay(&event).await?.commit().await?)
    });
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!((database.effects("evt_1").await, runs.load(Ordering::SeqCst)), (1, 1));
}

/// One run has one transaction: a second one would have nothing to complete.
pub(crate) async fn completion_cannot_be_enlisted_again_after_the_commit<L: Ledger>() {
    let database = L::fresh().await;
    let (receiver, _) = first_then_pay(&database, |database: L, event: WebhookEvent| async move {
        database.pay(&event).await?.commit().await?;
        let error = database.enlist(&event).await.expect_err("it is completed");
        assert_eq!(error.kind(), EnlistErrorKind::ClaimLost);
        Ok(())
    });
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(database.effects("evt_1").await, 1);
}

pub(crate) async fn permanent_failure_after_a_rollback_is_remembered<L: Ledger>() {
    let database = L::fresh().await;
    let (receiver, runs) = first_then_pay(&database, |database: L, event: WebhookEvent| async move {
        database.pay(&event).await?.rollback().await?;
        Err(HandlerError::permanent("no such account"))
    });
    let answer = receiver.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Failed)));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!((database.effects("evt_1").await, runs.load(Ordering::SeqCst)), (0, 1));
}

/// Row 16: it slept through its lease before its transaction, and somebody else has paid.
pub(crate) async fn zombie_cannot_enlist_and_its_client_gets_a_503<L: Ledger>() {
    let database = L::fresh().await;
    let (asleep, wake) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (receiver, _) = first_then_pay(&database, {
        let (asleep, wake) = (asleep.clone(), wake.clone());
        move |database: L, event: WebhookEvent| {
            let (asleep, wake) = (asleep.clone(), wake.clone());
            async move {
                asleep.add_permits(1);
                wake.acquire().await?.forget();
                let error = database.enlist(&event).await.expect_err("the claim is another's");
                assert_eq!(error.kind(), EnlistErrorKind::ClaimLost);
                assert!(!event.is_held());
                Err(error.into())
            }
        }
    });
    let zombie = receiver.spawn("evt_1");
    asleep.acquire().await.expect("never closed").forget();
    database.lapse().await;
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed), "taken over");
    wake.add_permits(1);
    let answer = zombie.await.expect("no panic");
    assert_eq!(answer.rejection(), Some(RejectionKind::ClaimLost), "{answer:?}");
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(database.effects("evt_1").await, 1);
}

/// While the transaction is open it holds the event, even after the lease.
pub(crate) async fn open_transaction_holds_the_event_after_the_lease<L: Ledger>() {
    let database = L::fresh().await;
    let (inside, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (receiver, runs) = first_then_pay(&database, {
        let (inside, go_on) = (inside.clone(), go_on.clone());
        move |database: L, event: WebhookEvent| {
            let (inside, go_on) = (inside.clone(), go_on.clone());
            async move {
                database.lapse().await;
                let tx = database.pay(&event).await?;
                inside.add_permits(1);
                go_on.acquire().await?.forget();
                Ok(tx.commit().await?)
            }
        }
    });
    let first = receiver.spawn("evt_1");
    inside.acquire().await.expect("never closed").forget();
    let (id, token) = (key("evt_1"), ClaimToken::random());
    let other = database.store().claim(&ClaimRequest::new(&id, token, std::time::Duration::from_secs(30))).await;
    assert!(!matches!(other, Ok(Claim::Fresh { .. } | Claim::Completed { .. })), "{other:?}");
    go_on.add_permits(1);
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!((database.effects("evt_1").await, runs.load(Ordering::SeqCst)), (1, 1));
}
