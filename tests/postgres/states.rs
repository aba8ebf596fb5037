//! The table in each state of an event, as `docs/states.md` shows it.

use sqlx::{AssertSqlSafe, Column, Row, ValueRef};
use tower_webhook::queue::{Filter, Queue};
use tower_webhook::store::{Hold, PostgresStore, Store};

use crate::postgres::fixture::{Fixture, patient};
use crate::support::states::{Found, INLINE, LEASE, Past, QUEUED, StateTable, bring_inline, bring_queued, key, lease};

/// A store that keeps the bodies of completed events for as long as the event's past says.
fn store(fixture: &Fixture, past: Past) -> PostgresStore {
    let builder = patient(&fixture.pool, &fixture.table);
    match past.bodies() {
        Some(time) => builder.keep_completed_bodies(time).build(),
        None => builder.build(),
    }
}

/// The columns of a row.
async fn found(fixture: &Fixture, row: &str) -> Found {
    let statement = sqlx::query(AssertSqlSafe(fixture.about(&format!("SELECT * FROM events WHERE {row}"))));
    let row = statement.fetch_one(&fixture.pool).await.expect("the row");
    let text = |column: &str| match row.try_get_raw(column).expect("a column").is_null() {
        true => None,
        false => Some(row.try_get(column).unwrap_or_default()),
    };
    row.columns().iter().map(|column| (column.name().to_owned(), text(column.name()))).collect()
}

const EVENT: &str = "key LIKE '%evt_1'";

#[tokio::test]
async fn inline_rows_are_as_the_page_shows_them() {
    let table = StateTable::below("Postgres, inline");
    let mut contradictions = Vec::new();
    for state in INLINE {
        let mut records = Vec::new();
        for event_type in [None, Some("invoice.paid")] {
            let fixture = Fixture::new().await;
            bring_inline(&fixture.store, state, event_type).await;
            records.push(found(&fixture, EVENT).await);
        }
        contradictions.extend(table.contradictions(state, &records));
    }
    assert!(contradictions.is_empty(), "{contradictions:#?}");
}

#[tokio::test]
async fn queued_rows_are_as_the_page_shows_them() {
    let table = StateTable::below("Postgres, queued");
    let mut contradictions = Vec::new();
    for state in QUEUED {
        let mut records = Vec::new();
        for past in Past::ALL {
            let fixture = Fixture::new().await;
            let store = store(&fixture, past);
            bring_queued(&store, state, past).await;
            if state == "lapsed" {
                fixture.pass(LEASE).await;
            }
            records.push(found(&fixture, EVENT).await);
            if state == "lapsed" {
                assert!(lease(&store).await.attempt > 1, "it is due");
            }
        }
        if state == "completed" {
            let fixture = Fixture::new().await;
            complete_in_a_transaction(&fixture).await;
            records.push(found(&fixture, EVENT).await);
        }
        contradictions.extend(table.contradictions(state, &records));
    }
    assert!(contradictions.is_empty(), "{contradictions:#?}");
}

/// As a handler does that completes its event in its own transaction.
async fn complete_in_a_transaction(fixture: &Fixture) {
    bring_queued(&fixture.store, "waiting", Past::Requeued).await;
    let leased = lease(&fixture.store).await;
    let statement = fixture.store.enlistment().expect("a statement").sql().to_owned();
    let statement = sqlx::query(AssertSqlSafe(statement)).bind(leased.key.as_str()).bind(&leased.token.as_bytes()[..]);
    let completed = statement.bind("200 OK").bind(1_000_000_i64).execute(&fixture.pool).await.expect("a completion");
    assert_eq!(completed.rows_affected(), 1);
}

/// The times of the event's lease mean the same in every state.
async fn assert_times(fixture: &Fixture, what: &str) {
    let until = "SELECT count(*) FROM events WHERE key LIKE '%evt_1' AND (lease_until > now()) = (state = 'running')";
    assert_eq!(fixture.count(until).await, 1, "no lease holds the event from `lease_until` on: {what}");
    let due = "SELECT count(*) FROM events WHERE key LIKE '%evt_1' AND state = 'running' AND arrival IS NOT NULL
        AND (due_at <> lease_until OR was_due_at > now() OR was_due_at IS NULL)";
    assert_eq!(fixture.count(due).await, 0, "a running event is due when its lease ends: {what}");
    let was_due =
        "SELECT count(*) FROM events WHERE key LIKE '%evt_1' AND state <> 'running' AND was_due_at IS NOT NULL";
    assert_eq!(fixture.count(was_due).await, 0, "only a running event was due before: {what}");
}

#[tokio::test]
async fn lease_until_and_due_at_mean_the_same_in_every_state() {
    for state in INLINE {
        let fixture = Fixture::new().await;
        bring_inline(&fixture.store, state, None).await;
        assert_times(&fixture, &format!("inline, {state}")).await;
    }
    for state in QUEUED.into_iter().filter(|state| *state != "lapsed") {
        for past in Past::ALL {
            let fixture = Fixture::new().await;
            bring_queued(&store(&fixture, past), state, past).await;
            assert_times(&fixture, &format!("queued, {state}, {past:?}")).await;
        }
    }
    let fixture = Fixture::new().await;
    complete_in_a_transaction(&fixture).await;
    assert_times(&fixture, "completed in a transaction").await;
}

#[tokio::test]
async fn release_and_renewal_keep_the_meaning_of_the_times() {
    let fixture = Fixture::new().await;
    bring_queued(&fixture.store, "waiting", Past::Bare).await;
    let due_at = async || {
        let due_at = sqlx::query_scalar(AssertSqlSafe(fixture.about("SELECT due_at::text FROM events")));
        due_at.fetch_one(&fixture.pool).await.expect("a time")
    };
    let before: String = due_at().await;
    let leased = lease(&fixture.store).await;
    let claim = leased.claim(2 * LEASE);
    assert_eq!(fixture.store.renew(&claim).await.expect("an answer"), Hold::Held);
    assert_times(&fixture, "renewed").await;
    assert_eq!(fixture.store.start(&claim).await.expect("an answer"), Hold::Held);
    assert_times(&fixture, "started").await;
    assert_eq!(fixture.store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
    assert_times(&fixture, "released").await;
    assert_eq!(due_at().await, before, "due since when it was due before");
}

#[tokio::test]
async fn row_of_what_was_applied_is_as_the_page_shows_it() {
    let fixture = Fixture::new().await;
    bring_queued(&fixture.store, "completed", Past::Retried).await;
    assert_eq!(fixture.store.forget(&Filter::one(key())).await.expect("an answer"), 1);
    let row = found(&fixture, "state = 'applied'").await;
    let contradictions = StateTable::below("Postgres, queued").contradictions("`applied` row", &[row]);
    assert!(contradictions.is_empty(), "{contradictions:#?}");
}
