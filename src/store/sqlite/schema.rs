//! The tables. Everything that is asked of every claim is in the first; what only an inbox has is NULL there for events that are
//! run inline, or in a table of its own.

use super::record::State;
use super::table::{Suffixed, Table};

/// Where the bodies are: a row of the first table is read and written often, and must stay small.
pub(super) fn parcels(table: &Table) -> Suffixed<'_> {
    table.suffixed("_parcels")
}

/// The highest sequence that was completed of each resource, and not just discarded. It outlives the events.
pub(super) fn applied(table: &Table) -> Suffixed<'_> {
    table.suffixed("_applied")
}

/// Events that wait, for nothing but their time, in the order in which they become due.
pub(super) fn waiting_index(table: &Table) -> Suffixed<'_> {
    table.suffixed("_waiting")
}

/// The same events by endpoint and type, for leases that want some kinds and not others.
pub(super) fn kinds_index(table: &Table) -> Suffixed<'_> {
    table.suffixed("_kinds")
}

/// The type of row `e` as [`kinds_index`] has it: never NULL, and different for no type and an empty one.
pub(super) const TYPE_IN_KINDS: &str = "coalesce('=' || e.event_type, '')";

/// Completed events of which head and body are kept, those that were completed first in front.
pub(super) fn bodies_index(table: &Table) -> Suffixed<'_> {
    table.suffixed("_bodies")
}

/// Columns that tables of earlier releases lack, each with its type.
pub(super) const ADDED_COLUMNS: [(&str, &str); 1] = [("handler_started", "INTEGER")];

/// Says which columns the table has.
pub(super) fn columns(table: &Table) -> String {
    format!("SELECT name FROM pragma_table_info('{}')", table.name().replace('\'', "''"))
}

pub(super) fn add_column(table: &Table, name: &str, column_type: &str) -> String {
    format!("ALTER TABLE {table} ADD COLUMN {name} {column_type}")
}

/// Events that workers have leased, in the order in which the leases end.
pub(super) fn leased_index(table: &Table) -> Suffixed<'_> {
    table.suffixed("_leased")
}

/// Events that are neither completed nor dead, by what they share their order with.
pub(super) fn lines_index(table: &Table) -> Suffixed<'_> {
    table.suffixed("_lines")
}

/// The condition for an event, in row `e`, that has another of its order in front of it.
pub(super) fn is_behind(table: &Table) -> String {
    format!(
        "EXISTS (SELECT 1 FROM {table} AS f INDEXED BY {lines} WHERE f.order_key = e.order_key AND f.arrival < e.arrival \
         AND f.state IN ('accepted', 'running'))",
        lines = lines_index(table),
    )
}

/// Whoever is first in this line now has nobody to wait for.
fn lets_go_on(table: &Table, order_key: &str) -> String {
    format!(
        "    UPDATE {table} SET behind = NULL WHERE behind IS NOT NULL AND rowid = (SELECT rowid FROM {table}
        WHERE order_key = {order_key} AND state IN ('accepted', 'running') ORDER BY arrival LIMIT 1);"
    )
}

/// An expression for the highest arrival so far, gone or not. Only who holds the write lock can count on from it.
pub(super) fn last_arrival(table: &Table) -> String {
    let states = [State::Accepted, State::Running, State::Completed, State::Failed].map(|state| {
        let state = state.as_str();
        format!("coalesce((SELECT max(arrival) FROM {table} WHERE state = '{state}' AND arrival IS NOT NULL), 0)")
    });
    let gone = table.suffixed("_gone");
    format!("max(coalesce((SELECT arrival FROM {gone} WHERE one = 1), 0), {})", states.join(", "))
}

pub(super) fn schema(table: &Table) -> String {
    let (parcels, applied, gone) = (parcels(table), applied(table), table.suffixed("_gone"));
    // What has gone leaves its parcel's place, and not its number to anybody else.
    let leave = format!(
        "    DELETE FROM {parcels} WHERE id = old.parcel;
    INSERT INTO {gone} (one, arrival) VALUES (1, old.arrival)
        ON CONFLICT (one) DO UPDATE SET arrival = max(arrival, excluded.arrival);"
    );
    format!(
        r#"CREATE TABLE IF NOT EXISTS {table} (
    key          TEXT NOT NULL PRIMARY KEY,
    event_type   TEXT,
    state        TEXT NOT NULL,
    token        BLOB NOT NULL,
    boot         TEXT NOT NULL,
    lease_until  INTEGER,
    received_at  INTEGER NOT NULL,
    processed_at INTEGER,
    attempts     INTEGER NOT NULL,
    summary      TEXT,
    fingerprint  INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    arrival      INTEGER,
    parcel       INTEGER,
    endpoint     TEXT,
    due_at       INTEGER,
    started_at   INTEGER,
    order_key    TEXT,
    sequence     INTEGER,
    behind       INTEGER,
    failures     TEXT,
    handler_started INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS {parcels} (
    id   INTEGER PRIMARY KEY,
    head BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS {applied} (
    order_key TEXT NOT NULL PRIMARY KEY,
    sequence  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS {gone} (
    one     INTEGER PRIMARY KEY,
    arrival INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS {expiring} ON {table} (expires_at);
CREATE INDEX IF NOT EXISTS {waiting} ON {table} (boot, due_at, arrival, received_at)
    WHERE state = 'accepted' AND behind IS NULL;
CREATE INDEX IF NOT EXISTS {kinds} ON {table} (endpoint, {type_in_kinds}, boot, due_at, arrival)
    WHERE state = 'accepted' AND behind IS NULL;
CREATE INDEX IF NOT EXISTS {bodies} ON {table} (processed_at) WHERE state = 'completed' AND parcel IS NOT NULL;
CREATE INDEX IF NOT EXISTS {leased} ON {table} (lease_until, boot) WHERE state = 'running' AND arrival IS NOT NULL;
CREATE INDEX IF NOT EXISTS {lines} ON {table} (order_key, arrival, state)
    WHERE order_key IS NOT NULL AND state IN ('accepted', 'running');
CREATE INDEX IF NOT EXISTS {arrivals} ON {table} (state, arrival, expires_at) WHERE arrival IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS {completed} AFTER UPDATE OF state ON {table}
WHEN old.state = 'running' AND new.state = 'completed' AND new.sequence IS NOT NULL BEGIN
    INSERT INTO {applied} (order_key, sequence) VALUES (new.order_key, new.sequence)
        ON CONFLICT (order_key) DO UPDATE SET sequence = max(sequence, excluded.sequence);
END;
CREATE TRIGGER IF NOT EXISTS {finished} AFTER UPDATE OF state ON {table}
WHEN new.order_key IS NOT NULL AND new.state IN ('completed', 'failed') BEGIN
{next_of_finished}
END;
CREATE TRIGGER IF NOT EXISTS {deleted} AFTER DELETE ON {table} WHEN old.arrival IS NOT NULL BEGIN
{leave}
{next_of_deleted}
END;
CREATE TRIGGER IF NOT EXISTS {replaced} AFTER UPDATE OF parcel ON {table}
WHEN old.arrival IS NOT NULL AND old.parcel IS NOT new.parcel BEGIN
{leave}
END;
"#,
        expiring = table.suffixed("_expires_at"),
        waiting = waiting_index(table),
        kinds = kinds_index(table),
        type_in_kinds = TYPE_IN_KINDS.replace("e.", ""),
        bodies = bodies_index(table),
        leased = leased_index(table),
        lines = lines_index(table),
        arrivals = table.suffixed("_arrivals"),
        completed = table.suffixed("_completed"),
        finished = table.suffixed("_finished"),
        next_of_finished = lets_go_on(table, "new.order_key"),
        next_of_deleted = lets_go_on(table, "old.order_key"),
        deleted = table.suffixed("_deleted"),
        replaced = table.suffixed("_replaced"),
    )
}
