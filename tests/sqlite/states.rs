//! The table in each state of an event, as `docs/states.md` shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Column, Row, SqlitePool, ValueRef};
use tower_webhook::queue::{LeaseRequest, Queue};
use tower_webhook::store::{Hold, SqliteStore, Store};
use tower_webhook::testing::ManualClock;

use crate::sqlite::fixture::{Fixture, write_lock};
use crate::sqlite::queue::{NOW, complete_in};
use crate::support::states::{
    Found, INLINE, LEASE, Past, QUEUED, StateTable, bring_inline, bring_queued, cells, lease, quoted, section,
};

/// A store with a file and a clock of its own.
async fn store(fixture: &Fixture, clock: &ManualClock, past: Past) -> SqliteStore {
    let builder = SqliteStore::builder().clock(clock.clone());
    let builder = match past.bodies() {
        Some(time) => builder.keep_completed_bodies(time),
        None => builder,
    };
    builder.open(fixture.path()).await.expect("a store")
}

/// The columns of the event's row.
async fn found(pool: &SqlitePool, id: &str) -> Found {
    let row = sqlx::query("SELECT * FROM webhook_events WHERE key LIKE ? OR key = 'nonsense'").bind(format!("%{id}"));
    let row = row.fetch_one(pool).await.expect("the row");
    let text = |column: &str| match row.try_get_raw(column).expect("a column").is_null() {
        true => None,
        false => Some(row.try_get(column).unwrap_or_default()),
    };
    row.columns().iter().map(|column| (column.name().to_owned(), text(column.name()))).collect()
}

#[tokio::test]
async fn inline_rows_are_as_the_page_shows_them() {
    let table = StateTable::below("SQLite, inline");
    let mut contradictions = Vec::new();
    for state in INLINE {
        let mut records = Vec::new();
        for event_type in [None, Some("invoice.paid")] {
            let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
            bring_inline(&store(&fixture, &clock, Past::Bare).await, state, event_type).await;
            records.push(found(&fixture.pool().await, "evt_1").await);
        }
        contradictions.extend(table.contradictions(state, &records));
    }
    assert!(contradictions.is_empty(), "{contradictions:#?}");
}

#[tokio::test]
async fn queued_rows_are_as_the_page_shows_them() {
    let table = StateTable::below("SQLite, queued");
    let mut contradictions = Vec::new();
    for state in QUEUED {
        let mut records = Vec::new();
        for past in Past::ALL {
            let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
            let (store, pool) = (store(&fixture, &clock, past).await, fixture.pool().await);
            bring_queued(&store, state, past).await;
            if state == "lapsed" {
                clock.advance(LEASE);
            }
            records.push(found(&pool, "evt_1").await);
            if state == "lapsed" {
                assert!(lease(&store).await.attempt > 1, "it is due");
            }
        }
        records.extend(other_ways(state).await);
        contradictions.extend(table.contradictions(state, &records));
    }
    assert!(contradictions.is_empty(), "{contradictions:#?}");
}

/// When the event's lease ends, when it is due, and when it was due before.
async fn times(pool: &SqlitePool) -> [Option<i64>; 3] {
    let times = sqlx::query_as("SELECT lease_until, due_at, was_due_at FROM webhook_events");
    let (lease_until, due_at, was_due_at) = times.fetch_one(pool).await.expect("the row");
    [lease_until, due_at, was_due_at]
}

#[tokio::test]
async fn running_event_is_due_when_its_lease_ends_and_a_release_puts_it_back() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let (store, pool) = (store(&fixture, &clock, Past::Bare).await, fixture.pool().await);
    bring_queued(&store, "waiting", Past::Bare).await;
    let waiting = times(&pool).await;
    clock.advance(LEASE);
    let leased = lease(&store).await;
    let mut last = None;
    for call in ["lease", "renew", "start"] {
        let claim = leased.claim(2 * LEASE);
        match call {
            "renew" => assert_eq!(store.renew(&claim).await.expect("an answer"), Hold::Held),
            "start" => assert_eq!(store.start(&claim).await.expect("an answer"), Hold::Held),
            _ => {}
        }
        let [lease_until, due_at, was_due_at] = times(&pool).await;
        assert_eq!((due_at, was_due_at), (lease_until, waiting[1]), "{call}");
        assert!(lease_until >= last, "{call}");
        last = lease_until;
        clock.advance(Duration::from_millis(1));
    }
    clock.advance(2 * LEASE);
    let leased = lease(&store).await;
    let [lease_until, due_at, was_due_at] = times(&pool).await;
    assert_eq!((due_at, was_due_at), (lease_until, waiting[1]), "leased again once it had lapsed");
    assert_eq!(store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
    assert_eq!(times(&pool).await, waiting);
}

/// Events that come into a state by another way than the usual verbs.
async fn other_ways(state: &str) -> Vec<Found> {
    let mut records = Vec::new();
    for past in [Past::Bare, Past::Requeued] {
        let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
        let (store, pool) = (store(&fixture, &clock, Past::Bare).await, fixture.pool().await);
        bring_queued(&store, "waiting", past).await;
        match state {
            "completed" => {
                let leased = lease(&store).await;
                let mut transaction = write_lock(&pool).await;
                complete_in(&mut transaction, &leased).await;
                transaction.commit().await.expect("a commit");
            }
            "dead" => {
                let unreadable = sqlx::query("UPDATE webhook_events SET key = 'nonsense'");
                unreadable.execute(&pool).await.expect("another program's mistake");
                assert!(store.lease(&LeaseRequest::new(1, LEASE)).await.expect("an answer").is_empty());
            }
            "discarded" => {
                let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
                let (store, pool) = (self::store(&fixture, &clock, past).await, fixture.pool().await);
                bring_queued(&store, "behind another", past).await;
                discard(&store).await;
                records.push(found(&pool, "evt_1").await);
                continue;
            }
            _ => continue,
        }
        records.push(found(&pool, "evt_1").await);
    }
    records
}

async fn discard(store: &SqliteStore) {
    let filter = tower_webhook::queue::Filter::one(crate::support::states::key());
    assert_eq!(store.discard(&filter, LEASE).await.expect("an answer"), 1);
}

#[tokio::test]
async fn other_tables_and_their_columns_are_on_the_page() {
    let fixture = Fixture::new();
    let (_store, pool) = (fixture.store().await, fixture.pool().await);
    let names = sqlx::query_scalar::<_, String>("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
    let mut tables = BTreeMap::new();
    for name in names.fetch_all(&pool).await.expect("the tables").into_iter().filter(|name| name != "webhook_events") {
        let columns = sqlx::query(AssertSqlSafe(format!("SELECT name FROM pragma_table_info('{name}')")));
        let columns = columns.fetch_all(&pool).await.expect("the columns");
        tables.insert(name, columns.iter().map(|column| column.get::<String, _>(0)).collect::<BTreeSet<_>>());
    }
    let section = section("SQLite, beside");
    let rows = section.lines().filter(|line| line.starts_with("| `")).map(cells);
    let listed = rows.map(|row| (quoted(row[0]).collect(), quoted(row[1]).map(str::to_owned).collect()));
    assert_eq!(listed.collect::<BTreeMap<String, BTreeSet<_>>>(), tables);
}
