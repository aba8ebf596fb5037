//! Who waits for whom. The answers do not tell, since a wait that is too long is given up; the server's log does.

use futures_util::future::{join, join_all};
use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimToken, Completion, Hold, PostgresStore, Store, StoreErrorKind};

use crate::bed::{Bed, WEEK, key, run_on};
use crate::support::postgres_server::{PostgresServer, Settings};
use crate::together::wins;

/// A server that logs every wait for a lock of more than a millisecond, and who waited.
fn watchful() -> PostgresServer {
    let settings = Settings::default().set("fsync=off").set("log_lock_waits=on").set("deadlock_timeout=1ms");
    PostgresServer::start_with(settings.set("log_line_prefix=%a: "))
}

/// What the server logged of the store's connections with one of these words in it.
fn logged(server: &PostgresServer, words: &[&str]) -> Vec<String> {
    let log = server.log();
    let of_the_store = log.lines().filter(|line| line.starts_with("tower-webhook"));
    of_the_store.filter(|line| words.iter().any(|word| line.contains(word))).map(str::to_owned).collect()
}

/// A handler's transaction holds rows whose leases are over, and all that can be asked is asked of them and of others at once.
#[tokio::test]
async fn no_batch_waits_for_a_row_that_a_transaction_holds() {
    let server = watchful();
    let bed = Bed::on(&server).await;
    let held: Vec<_> = (0..8).map(|n| key(&format!("held_{n}"))).collect();
    let fresh: Vec<_> = (0..40).map(|n| key(&format!("fresh_{n}"))).collect();
    let lapsed = key("lapsed");
    let (mine, theirs) = (ClaimToken::random(), ClaimToken::random());
    for key in held.iter().chain([&lapsed]) {
        assert_eq!(bed.store.claim(&bed.claim(key, mine)).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
    }
    bed.pass(2 * WEEK).await;
    let mut handler = server.connect().await;
    run_on(&mut handler, bed.about("BEGIN; UPDATE events SET state = 'completed' WHERE key LIKE '%/held_%'")).await;

    // On one thread, what is asked for together is in one batch; there are two kinds of them, and more than one of each.
    let asked = held.iter().chain(&fresh).chain([&lapsed]);
    let claims = join_all(asked.map(async |key| bed.store.claim(&bed.claim(key, theirs)).await.expect("an answer")));
    let done = Completion::succeeded("200 OK", WEEK);
    let settlements = join_all(held.iter().map(|key| async {
        let claim = bed.claim(key, mine);
        assert_eq!(bed.store.renew(&claim).await.expect("an answer"), Hold::Held, "by whoever holds the row");
        assert_eq!(bed.store.complete(&claim, &done).await.expect_err("held").kind(), StoreErrorKind::Locked);
        assert_eq!(bed.store.release(key, mine).await.expect_err("held").kind(), StoreErrorKind::Locked);
    }));
    let (claims, _) = join(claims, settlements).await;
    assert_eq!(claims[..8], [Claim::InFlight { same_body: true }; 8]);
    assert_eq!(claims[8..48], [Claim::Fresh { attempt: Some(1) }; 40]);
    assert_eq!(claims[48], Claim::Fresh { attempt: Some(2) });
    run_on(&mut handler, "COMMIT".to_owned()).await;
    assert_eq!(logged(&server, &["still waiting for", "lock timeout"]), [""; 0]);
}

/// Claims all of `keys` at once, in this order; how many were won.
async fn claim_all(store: PostgresStore, keys: Vec<EventKey>) -> usize {
    join_all(keys.iter().map(|key| wins(&store, key))).await.into_iter().filter(|won| *won).count()
}

/// Here a batch may wait, for another that is inserting the same key and is over in no time; but no two for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn overlapping_batches_in_opposite_orders_do_not_deadlock() {
    let server = watchful();
    let bed = Bed::on(&server).await;
    let stores = [bed.store.clone(), bed.another(), bed.another()];
    for round in 0..20 {
        let keys: Vec<_> = (0..300).map(|n| key(&format!("{round}.{n}"))).collect();
        let backwards: Vec<_> = keys.iter().rev().cloned().collect();
        let from_the_middle: Vec<_> = keys[150..].iter().chain(&keys[..150]).cloned().collect();
        let orders = [keys, backwards, from_the_middle];
        let claims = stores.iter().zip(orders).map(|(store, keys)| tokio::spawn(claim_all(store.clone(), keys)));
        let won: usize = join_all(claims).await.into_iter().map(|won| won.expect("no panic")).sum();
        assert_eq!(won, 300, "round {round}: each key has one winner");
    }
    assert_eq!(bed.count("SELECT count(*) FROM events WHERE attempts = 1 AND state = 'running'").await, 6_000);
    assert_eq!(logged(&server, &["deadlock"]), [""; 0]);
}
