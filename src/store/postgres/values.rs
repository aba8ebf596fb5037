//! How values are written to the table, and read from its rows.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgRow;
use sqlx::{ColumnIndex, Row as _};

use crate::EventKey;
use crate::clock::{from_unix_millis, unix_millis};
use crate::store::queue::{Order, StoredRequest};
use crate::store::{ClaimToken, Fingerprint};

/// A thousand years: no timestamp of Postgres overflows by it.
const LONGEST_MS: i64 = 1_000 * 365 * 24 * 3600 * 1_000;

/// The longest order that is written in full: a row of an index holds no more than a few thousand bytes.
const LONGEST_ORDER: usize = 1_024;

/// How many bytes of requests one statement carries in either direction, unless it is a single request. With more, the
/// first request would wait for the last, and all of them would be too late.
pub(super) const MOST_BYTES: usize = 4 * 1024 * 1024;

/// The columns of a stored request.
#[derive(Clone)]
pub(super) struct RequestColumns {
    pub(super) received_ms: i64,
    pub(super) head: Bytes,
    pub(super) body: Bytes,
    pub(super) order_key: Option<Box<str>>,
    pub(super) sequence: Option<i64>,
}

impl RequestColumns {
    pub(super) fn new(request: &StoredRequest) -> Self {
        Self {
            received_ms: in_range(unix_millis(request.received_at)),
            head: request.head.clone(),
            body: request.body.clone(),
            order_key: request.order.as_ref().map(|order| order_key(&order.key)),
            sequence: request.order.as_ref().and_then(|order| order.sequence),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

/// Reads a stored request by the names of its columns.
pub(super) fn stored_request(row: &PgRow) -> Result<StoredRequest, sqlx::Error> {
    let bytes = |column| row.try_get::<Option<Vec<u8>>, _>(column).map(Option::unwrap_or_default);
    let received_at = from_unix_millis(row.try_get("received")?);
    let mut request = StoredRequest::new(bytes("head")?, bytes("body")?, received_at);
    if let Some(key) = row.try_get::<Option<String>, _>("order_key")? {
        request.order = Some(Order { key: key.into(), sequence: row.try_get("sequence")? });
    }
    Ok(request)
}

pub(super) fn event_key(row: &PgRow) -> Result<EventKey, sqlx::Error> {
    EventKey::parse(row.try_get("key")?).ok_or_else(|| sqlx::Error::Decode("the key is not that of an event".into()))
}

pub(super) fn token(row: &PgRow, column: impl ColumnIndex<PgRow>) -> Result<ClaimToken, sqlx::Error> {
    Ok(ClaimToken::from_bytes(row.try_get(column)?))
}

pub(super) fn fingerprint(row: &PgRow, column: impl ColumnIndex<PgRow>) -> Result<Fingerprint, sqlx::Error> {
    Ok(Fingerprint::from_u64(row.try_get::<i64, _>(column)?.cast_unsigned()))
}

/// Returns the index of the item that a row is about, by the ordinality in the row's first column.
pub(super) fn index(row: &PgRow, items: usize) -> Result<usize, sqlx::Error> {
    let ordinality: i64 = row.try_get(0)?;
    let index = usize::try_from(ordinality - 1).ok().filter(|index| *index < items);
    index.ok_or_else(|| sqlx::Error::Decode("a row about an item that is not in the batch".into()))
}

/// Replaces NUL, which Postgres refuses: a reason that contains it would never be stored.
pub(super) fn without_nul(text: &str) -> Box<str> {
    match text.contains('\0') {
        true => text.replace('\0', "\u{fffd}").into(),
        false => text.into(),
    }
}

/// A lease or a retention in milliseconds, at least one.
pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX).clamp(1, LONGEST_MS)
}

/// A delay in milliseconds, which may be zero.
pub(super) fn delay_milliseconds(time: Duration) -> i64 {
    if time.is_zero() { 0 } else { milliseconds(time) }
}

/// Limits a time in milliseconds since 1970: no timestamp of Postgres overflows by it.
pub(super) fn in_range(unix_ms: i64) -> i64 {
    unix_ms.clamp(-LONGEST_MS, LONGEST_MS)
}

pub(super) fn bigint(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The key of an order as it is stored: its beginning and its hash, if it is too long.
fn order_key(key: &str) -> Box<str> {
    if key.len() <= LONGEST_ORDER {
        return without_nul(key);
    }
    let mut beginning = LONGEST_ORDER / 2;
    while !key.is_char_boundary(beginning) {
        beginning -= 1;
    }
    without_nul(&format!("{}… {}", &key[..beginning], hex::encode(Sha256::digest(key))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_stored_in_full_or_short_and_still_apart() {
        assert_eq!(&*order_key("16.0:/hook//sub_1"), "16.0:/hook//sub_1");
        let [one, other] = ["é1", "é2"].map(|end| order_key(&format!("x{}{end}", "é".repeat(600_000))));
        assert_ne!(one, other);
        assert!(one.len() <= LONGEST_ORDER && one.starts_with("xé"), "{}", one.len());
    }
}
