use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::text::{storable, within_reach};
use crate::clock::{from_unix_millis, unix_millis};
use crate::store::queue::{Order, StoredRequest};

/// The longest order that is written as it is: a row of an index holds no more than a few thousand bytes.
const LONGEST_ORDER: usize = 1_024;

/// How many bytes of parcels go into one statement, and come out of one, unless it is a single parcel: more would make the first of
/// them wait for the last, and all of them be too late.
pub(super) const HEAVIEST: usize = 4 * 1024 * 1024;

/// What is written of a parcel.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) received_ms: i64,
    pub(super) head: Bytes,
    pub(super) body: Bytes,
    pub(super) order_key: Option<Box<str>>,
    pub(super) sequence: Option<i64>,
}

impl Kept {
    pub(super) fn of(parcel: &StoredRequest) -> Self {
        Self {
            received_ms: within_reach(unix_millis(parcel.received_at)),
            head: parcel.head.clone(),
            body: parcel.body.clone(),
            order_key: parcel.order.as_ref().map(|order| written(&order.key)),
            sequence: parcel.order.as_ref().and_then(|order| order.sequence),
        }
    }

    /// About how many bytes go over the wire.
    pub(super) fn weight(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

/// The parcel of a row, by the names of its columns.
pub(super) fn read(row: &PgRow) -> Result<StoredRequest, sqlx::Error> {
    let bytes = |column| row.try_get::<Option<Vec<u8>>, _>(column).map(Option::unwrap_or_default);
    let received_at = from_unix_millis(row.try_get("received")?);
    let mut parcel = StoredRequest::new(bytes("head")?, bytes("body")?, received_at);
    if let Some(key) = row.try_get::<Option<String>, _>("order_key")? {
        parcel.order = Some(Order { key: key.into(), sequence: row.try_get("sequence")? });
    }
    Ok(parcel)
}

/// An order as it is written: one that is too long, by its beginning and its hash.
fn written(key: &str) -> Box<str> {
    if key.len() <= LONGEST_ORDER {
        return storable(key);
    }
    let mut beginning = LONGEST_ORDER / 2;
    while !key.is_char_boundary(beginning) {
        beginning -= 1;
    }
    storable(&format!("{}… {}", &key[..beginning], hex::encode(Sha256::digest(key))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_written_as_they_are_or_short_and_still_apart() {
        assert_eq!(&*written("16.0:/hook//sub_1"), "16.0:/hook//sub_1");
        let [one, other] = ["é1", "é2"].map(|end| written(&format!("x{}{end}", "é".repeat(600_000))));
        assert_ne!(one, other);
        assert!(one.len() <= LONGEST_ORDER && one.starts_with("xé"), "{}", one.len());
    }
}
