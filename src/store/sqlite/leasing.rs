//! How events come to workers: they are picked, and marked as taken, in one transaction.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sqlx::sqlite::SqliteRow;
use sqlx::{Executor, Row as _, SqliteConnection};

use super::pick_texts::PickTexts;
use super::queued::{BEFORE_THE_BOOT, NEVER};
use super::schema;
use super::statements::{Statement, prepared};
use super::table::Table;
use super::time::{Now, millis};
use crate::EventKey;
use crate::clock::from_unix_millis;
use crate::store::queue::{KindLimits, LAPSED, LeaseRequest, Leased, Order, StoredRequest};
use crate::store::{ClaimToken, Fingerprint};
use crate::telemetry;

/// How large the parcels of one lease are together, unless the first alone is larger. All of them are read under the write lock,
/// and have to come before the worker's patience ends: a lease that is too large would be too large every time.
const LARGEST_LEASE: i64 = 4 << 20;

/// The summary of an event that nothing can be made of.
const UNREADABLE: &str = "the stored event is not one that this version wrote";

/// What a worker asks for.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) limit: usize,
    pub(super) lease: Duration,
    pub(super) endpoints: Arc<[Box<str>]>,
    pub(super) per_endpoint: Option<Arc<KindLimits>>,
    per_type: Option<Arc<KindLimits>>,
}

impl Wanted {
    pub(super) fn new(request: &LeaseRequest<'_>) -> Self {
        Self {
            limit: request.limit,
            lease: request.lease,
            endpoints: request.endpoints.into(),
            per_endpoint: request.per_endpoint.cloned().map(Arc::new),
            per_type: request.per_type.cloned().map(Arc::new),
        }
    }

    pub(super) fn request(&self) -> LeaseRequest<'_> {
        let mut request = LeaseRequest::new(self.limit, self.lease);
        request.endpoints = &self.endpoints;
        (request.per_endpoint, request.per_type) = (self.per_endpoint.as_deref(), self.per_type.as_deref());
        request
    }

    /// The same, of one event only; of none, if none is asked for.
    pub(super) fn at_most_one(&self) -> Self {
        Self { limit: self.limit.min(1), ..self.clone() }
    }

    pub(super) fn is_of_any_kind(&self) -> bool {
        self.endpoints.is_empty() && self.per_endpoint.is_none() && self.per_type.is_none()
    }
}

/// The texts for one table.
pub(super) struct LeaseTexts {
    pub(super) pick: PickTexts,
    take: Arc<str>,
    bury: Arc<str>,
}

/// What became of the events that were picked.
pub(super) struct Taken {
    pub(super) events: Vec<Leased>,
    /// How many could not be read, and are dead letters now.
    pub(super) unreadable: usize,
}

impl LeaseTexts {
    pub(super) fn new(table: &Table) -> Self {
        Self { pick: PickTexts::new(table), take: take(table).into(), bury: bury(table).into() }
    }

    /// Marks the rows with these numbers as taken. Whoever asks this holds the write lock since before they were picked.
    pub(super) async fn take(
        &self,
        connection: &mut SqliteConnection,
        picked: &[i64],
        wanted: &Wanted,
        now: &Now,
    ) -> Result<Taken, sqlx::Error> {
        let rows = connection.fetch_all(self.taking(picked, wanted, now)).await?;
        let places: HashMap<_, _> = picked.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let (mut events, mut unreadable) = (Vec::with_capacity(rows.len()), 0);
        for row in &rows {
            let id: i64 = row.try_get("id")?;
            match event(row) {
                Ok(event) => events.push((places.get(&id).copied(), event)),
                Err(error) => {
                    telemetry::event_unreadable(id, &error);
                    let buried = prepared(&self.bury).bind(id).bind(now.wall).bind(UNREADABLE);
                    connection.execute(buried).await?;
                    unreadable += 1;
                }
            }
        }
        events.sort_by_key(|(place, _)| *place);
        Ok(Taken { events: events.into_iter().map(|(_, event)| event).collect(), unreadable })
    }

    fn taking(&self, picked: &[i64], wanted: &Wanted, now: &Now) -> Statement {
        let ids = picked.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        prepared(&self.take)
            .bind(now.boot.clone())
            .bind(now.lease + millis(wanted.lease))
            .bind(now.wall)
            .bind(format!("{LAPSED}\n"))
            .bind(format!("[{ids}]"))
    }
}

/// While it runs, an event's `due_at` is since when it had been due, so that it can be put back where it was.
fn take(table: &Table) -> String {
    let (parcels, applied) = (schema::parcels(table), schema::applied(table));
    let kept = |column| format!("(SELECT {column} FROM {parcels} WHERE id = {table}.parcel) AS {column}");
    format!(
        "UPDATE {table} SET state = 'running', token = randomblob(16), boot = ?1, lease_until = ?2, started_at = ?3, \
         attempts = attempts + 1, version = version + 1, due_at = iif(boot <> ?1, {BEFORE_THE_BOOT}, due_at), \
         failures = iif(state = 'running', coalesce(failures, '') || coalesce(started_at, 0) || ' ' || ?3 || ' ' || ?4, \
         failures) \
         WHERE rowid IN ({fitting}) \
         RETURNING rowid AS id, key, token, attempts, event_type, fingerprint, received_at, order_key, sequence, \
         handler_started, {head}, {body}, EXISTS (SELECT 1 FROM {applied} AS a WHERE a.order_key = {table}.order_key \
         AND a.sequence >= {table}.sequence) AS superseded",
        fitting = fitting(table),
        head = kept("head"),
        body = kept("body"),
    )
}

/// The first of those that were picked, as many as one lease may hold. The length of a blob is known without reading it.
fn fitting(table: &Table) -> String {
    let parcels = schema::parcels(table);
    format!(
        "SELECT id FROM (SELECT id, size, sum(size) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) AS all_of_them \
         FROM (SELECT picked.value AS id, picked.key AS place, coalesce((SELECT length(p.head) + length(p.body) \
         FROM {table} AS e CROSS JOIN {parcels} AS p ON p.id = e.parcel WHERE e.rowid = picked.value), 0) AS size \
         FROM json_each(?5) AS picked)) WHERE all_of_them <= {LARGEST_LEASE} OR all_of_them = size"
    )
}

fn bury(table: &Table) -> String {
    format!(
        "UPDATE {table} SET state = 'failed', lease_until = NULL, due_at = NULL, processed_at = ?2, summary = ?3, \
         expires_at = {NEVER}, version = version + 1 WHERE rowid = ?1"
    )
}

/// The names as a JSON array.
pub(super) fn json(names: &[Box<str>]) -> String {
    let mut text = String::from("[");
    for name in names {
        text.push_str(if text.len() == 1 { "\"" } else { ",\"" });
        for c in name.chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                '\0'..' ' => _ = write!(text, "\\u{:04x}", u32::from(c)),
                _ => text.push(c),
            }
        }
        text.push('"');
    }
    text.push(']');
    text
}

fn event(row: &SqliteRow) -> Result<Leased, sqlx::Error> {
    let unreadable = |what: &str| sqlx::Error::Decode(format!("a row has an unknown {what}").into());
    let key = EventKey::parse(row.try_get("key")?).ok_or_else(|| unreadable("key"))?;
    let token = row.try_get::<&[u8], _>("token")?.try_into().map_err(|_| unreadable("token"))?;
    let mut leased = Leased::new(key, ClaimToken::from_bytes(token), parcel(row)?);
    leased.attempt = row.try_get::<i64, _>("attempts")?.try_into().unwrap_or(u32::MAX);
    leased.event_type = row.try_get::<Option<&str>, _>("event_type")?.map(Into::into);
    leased.fingerprint = Fingerprint::from_u64(row.try_get::<i64, _>("fingerprint")?.cast_unsigned());
    leased.started = row.try_get::<Option<bool>, _>("handler_started")?.unwrap_or_default();
    leased.superseded = row.try_get("superseded")?;
    Ok(leased)
}

/// Empty, if somebody has deleted it: a worker makes that a dead letter.
pub(super) fn parcel(row: &SqliteRow) -> Result<StoredRequest, sqlx::Error> {
    let bytes = |column| row.try_get::<Option<Vec<u8>>, _>(column).map(|bytes| Bytes::from(bytes.unwrap_or_default()));
    let parcel = StoredRequest::new(bytes("head")?, bytes("body")?, from_unix_millis(row.try_get("received_at")?));
    let Some(key) = row.try_get::<Option<&str>, _>("order_key")? else { return Ok(parcel) };
    let mut order = Order::of(key);
    order.sequence = row.try_get("sequence")?;
    Ok(parcel.ordered(order))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_json() {
        assert_eq!(json(&[]), "[]");
        let names = ["/a".into(), "".into(), "\"quoted\\\" \n é".into()];
        assert_eq!(json(&names), r#"["/a","","\"quoted\\\" \u000a é"]"#);
    }
}
