//! Callers that leave before they are answered.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tower_webhook::store::{ClaimRequest, ClaimToken, Hold, SqliteStore, Store};

use crate::sqlite::fixture::{DAY, Fixture, claim, eventually, is_fresh, key};

/// Claims, and leaves after some turns of the runtime or some hundred microseconds: before, during or after its batch. Whether it was answered.
async fn claim_and_leave(store: &SqliteStore, request: &ClaimRequest<'_>, n: u32) -> bool {
    let mut claiming = pin!(store.claim(request));
    let leaving = async {
        match n % 2 {
            0 => {
                for _ in 0..n / 2 % 20 {
                    tokio::task::yield_now().await;
                }
            }
            _ => std::thread::sleep(Duration::from_micros(u64::from(n) * 2)),
        }
    };
    let mut leaving = pin!(leaving);
    std::future::poll_fn(|context| {
        let answered = claiming.as_mut().poll(context).is_ready();
        let left = leaving.as_mut().poll(context).is_ready();
        if answered || left { std::task::Poll::Ready(answered) } else { std::task::Poll::Pending }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_whose_caller_left_is_released() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    let mut left = Vec::new();
    for n in 0..300 {
        let key = key(&n.to_string());
        let request = ClaimRequest::new(&key, ClaimToken::random(), DAY);
        if !claim_and_leave(&store, &request, n).await {
            left.push(key);
        }
    }
    assert!(!left.is_empty());
    for key in &left {
        eventually("it can be claimed", async || is_fresh(store.claim(&claim(key)).await.expect("an answer"))).await;
    }
    let taken = "SELECT count(*) FROM webhook_events WHERE attempts > 1";
    let taken: i64 = sqlx::query_scalar(taken).fetch_one(&pool).await.expect("a number");
    println!("{} left, {taken} of them after their claim was taken", left.len());
    assert!(taken > 0, "nobody left at the right moment: the test proves nothing");
}

/// The machine asks again under the same token when its deadline is over: what is released is the claim that nobody
/// heard of, not the one after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claim_that_is_asked_again_is_not_released() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    for n in 0..300 {
        let key = key(&n.to_string());
        let mine = ClaimRequest::new(&key, ClaimToken::random(), DAY);
        claim_and_leave(&store, &mine, n).await;
        assert!(is_fresh(store.claim(&mine).await.expect("an answer")));
        // Whatever was told behind our back is done by now: there is one writer, and it is asked in turn.
        for _ in 0..2 {
            store.claim(&claim(&crate::sqlite::fixture::key("another"))).await.expect("an answer");
        }
        assert_eq!(store.renew(&mine).await.expect("an answer"), Hold::Held, "after {n}");
    }
}

/// A store outlives the runtime that its connection was opened in, and that a batch of it was dropped with.
#[test]
fn store_outlives_a_runtime() {
    let fixture = Fixture::new();
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let store = runtime().block_on(fixture.store());
    for n in 0..50 {
        let (key, later) = (key(&format!("{n}")), key(&format!("{n} later")));
        let first = runtime();
        first.block_on(async { claim_and_leave(&store, &claim(&key), n).await });
        drop(first);
        assert!(is_fresh(runtime().block_on(store.claim(&claim(&later))).expect("an answer")), "after {n}");
    }
}
