//! The table in each state of an event, as `docs/states.md` shows it.

use sqlx::{AssertSqlSafe, Column, Row, ValueRef};
use tower_webhook::queue::{Filter, Queue};
use tower_webhook::store::{PostgresStore, Store};

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
            records.push(completed_in_a_transaction().await);
        }
        contradictions.extend(table.contradictions(state, &records));
    }
    assert!(contradictions.is_empty(), "{contradictions:#?}");
}

async fn completed_in_a_transaction() -> Found {
    let fixture = Fixture::new().await;
    bring_queued(&fixture.store, "waiting", Past::Requeued).await;
    let leased = lease(&fixture.store).await;
    let statement = fixture.store.enlistment().expect("a statement").sql().to_owned();
    let statement = sqlx::query(AssertSqlSafe(statement)).bind(leased.key.as_str()).bind(&leased.token.as_bytes()[..]);
    let completed = statement.bind("200 OK").bind(1_000_000_i64).execute(&fixture.pool).await.expect("a completion");
    assert_eq!(completed.rows_affected(), 1);
    found(&fixture, EVENT).await
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
