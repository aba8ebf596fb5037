//! What operators change. Some at a time: whoever has a claim to make gets a turn in between.

use super::bodies::Bodies;
use super::queued::NEVER;
use super::schema;
use super::table::Table;
use super::time::{Now, millis};
use super::viewing::{Fragment, Value};
use crate::store::ClaimToken;
use crate::store::queue::Change;

/// How many events one statement changes.
pub(super) const CHANGED_AT_ONCE: u64 = 1_000;

const DISCARDED: &str = "discarded by an operator";

/// Changes the first of those that match, as far as they had arrived by `last`: what comes back meanwhile is not meant.
pub(super) fn change(
    table: &Table,
    bodies: Bodies,
    change: Change,
    matching: Fragment,
    last: i64,
    now: &Now,
) -> Fragment {
    let mut fragment = Fragment::default();
    let limits = [Value::Number(last), Value::Number(CHANGED_AT_ONCE.cast_signed())];
    match change {
        Change::Requeue { .. } => {
            // Under nobody's token: whoever gave it up must not be taken for the one that puts it back.
            fragment.push(
                &format!(
                    "UPDATE {table} SET state = 'accepted', handler_started = NULL, token = randomblob(16), boot = ?, due_at = ?, attempts = 0, \
                     lease_until = NULL, started_at = NULL, behind = NULL, processed_at = NULL, summary = NULL, expires_at = {NEVER}, \
                     version = version + 1, arrival = anew.arrival FROM (SELECT rowid AS id, {last_arrival} + row_number() \
                     OVER (ORDER BY arrival) AS arrival FROM (SELECT rowid, arrival FROM {table} WHERE ",
                    last_arrival = schema::last_arrival(table),
                ),
                [Value::Text(now.boot.to_string()), Value::Number(now.lease)],
            );
            fragment.append(matching);
            fragment.push(" AND arrival <= ? ORDER BY arrival LIMIT ?)) AS anew", limits);
            fragment.push(&format!(" WHERE {table}.rowid = anew.id"), []);
            return fragment;
        }
        Change::Discard { retention } => fragment.push(
            &format!(
                "UPDATE {table} SET state = 'completed', token = ?, due_at = NULL, processed_at = ?, summary = ?, \
                 expires_at = ?, version = version + 1{}",
                if bodies.go_at_once() { ", parcel = NULL" } else { "" }
            ),
            [
                Value::Bytes(ClaimToken::random().as_bytes().to_vec()),
                Value::Number(now.wall),
                Value::Text(DISCARDED.to_owned()),
                Value::Number(now.wall + millis(retention)),
            ],
        ),
        Change::Forget => fragment.push(&format!("DELETE FROM {table}"), []),
    };
    fragment.push(&format!(" WHERE rowid IN (SELECT rowid FROM {table} WHERE "), []);
    fragment.append(matching);
    fragment.push(" AND arrival <= ? ORDER BY arrival LIMIT ?)", limits);
    fragment
}
