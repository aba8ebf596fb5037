use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Row as _};

use super::access::Access;
use super::fault::Fault;
use super::held_up::HeldUp;
use super::lane::Lane;
use super::parcel;
use super::schema::Statements;
use super::settle::Settle;
use super::settles::Settles;
use super::text::milliseconds;
use crate::EventKey;
use crate::inbox::{KindLimits, LAPSED, LeaseRequest, Leased};
use crate::store::group::{Answers, Engine, Group};
use crate::store::handed::{Handed, PutBack};
use crate::store::{ClaimToken, Fingerprint, StoreError};

/// Nothing here waits for a row. Two workers that lease two events of one order do wait for each other, and one of them fails.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// How often it is then asked again.
const RETRIES: usize = 8;

/// More than this are not leased in one statement.
const LARGEST_LEASE: usize = 512;

/// In the order of the index, and no further than there is something to lease, however many are waiting. A lease that the server
/// forgets in a crash is a lapsed one: the next worker's token fences it. So nobody waits until it is on disk.
const SETTINGS: &str = "SET enable_bitmapscan = off; SET enable_sort = off; SET synchronous_commit = off";

/// Leases events to workers, on a connection of its own.
pub(super) struct Leases {
    lane: Lane,
    sql: Arc<str>,
    settles: Group<Settles>,
    held_up: HeldUp,
}

/// What a worker asks for.
pub(super) struct Wanted {
    limit: usize,
    lease_ms: i64,
    endpoints: Box<[Box<str>]>,
    except_endpoints: Box<[Box<str>]>,
    except_types: Box<[Box<str>]>,
}

/// The kinds without room.
fn full(limits: Option<&KindLimits>) -> Box<[Box<str>]> {
    limits
        .into_iter()
        .flat_map(|limits| &limits.left)
        .filter(|(_, left)| **left == 0)
        .map(|(kind, _)| kind.clone())
        .collect()
}

impl Wanted {
    pub(super) fn new(request: &LeaseRequest<'_>) -> Self {
        Self {
            limit: request.limit.min(LARGEST_LEASE),
            lease_ms: milliseconds(request.lease),
            endpoints: request.endpoints.into(),
            except_endpoints: full(request.per_endpoint),
            except_types: full(request.per_type),
        }
    }

    fn query<'q>(&'q self, sql: &Arc<str>, tokens: &'q [ClaimToken]) -> Query<'q, Postgres, PgArguments> {
        let texts = |texts: &'q [Box<str>]| texts.iter().map(|text| &**text).collect::<Vec<_>>();
        sqlx::query(AssertSqlSafe(sql.clone()))
            .bind(i64::try_from(self.limit).unwrap_or(i64::MAX))
            .bind(tokens.iter().map(|token| token.as_bytes().as_slice()).collect::<Vec<_>>())
            .bind(self.lease_ms)
            .bind(texts(&self.endpoints))
            .bind(texts(&self.except_endpoints))
            .bind(texts(&self.except_types))
            .bind(LAPSED)
            .bind(i64::try_from(parcel::HEAVIEST).unwrap_or(i64::MAX))
    }
}

impl Leases {
    pub(super) fn new(access: &Access, deadline: Duration, statements: &Statements, settles: Group<Settles>) -> Self {
        let lane = Lane::new("tower-webhook leases", access, deadline, LOCK_TIMEOUT).with(SETTINGS);
        Self { lane, sql: statements.lease.clone(), settles, held_up: HeldUp::new(statements) }
    }

    async fn lease(&self, wanted: &Wanted) -> Result<Handed<Group<Settles>>, Fault> {
        let until = self.lane.until();
        self.held_up.look(&self.lane, until).await;
        let tokens: Vec<_> = (0..wanted.limit).map(|_| ClaimToken::random()).collect();
        let mut retries = 0;
        loop {
            match self.lane.run_until(until, || wanted.query(&self.sql, &tokens)).await {
                Ok(rows) => return Ok(Handed::new(read_all(&rows), self.settles.clone())),
                // Another worker was faster with an event of the same order: it is to be seen now.
                Err(fault) if fault.is_of_a_row() && retries < RETRIES => retries += 1,
                Err(fault) => return Err(fault),
            }
        }
    }
}

impl Engine for Leases {
    type Question = Wanted;
    type Answer = Handed<Group<Settles>>;

    async fn answer(&self, batch: &[Wanted]) -> Answers<Self::Answer> {
        let mut answers = Vec::with_capacity(batch.len());
        for wanted in batch {
            answers.push(self.lease(wanted).await.map_err(StoreError::from));
        }
        answers
    }

    /// Dropping it is enough, as it is when the answer was sent and not looked at.
    fn unheard(&self, _: Wanted, _: Self::Answer) {}
}

impl PutBack for Group<Settles> {
    fn put_back(&self, events: Vec<Leased>) {
        for event in events {
            self.tell(Settle::release(&event.key, event.token));
        }
    }
}

/// What was leased, in its order. A row that this store never wrote is left out, and its lease lapses: it must not hold up others.
fn read_all(rows: &[PgRow]) -> Vec<Leased> {
    let mut all: Vec<(i64, Leased)> = rows.iter().filter_map(|row| read(row).ok()).collect();
    all.sort_unstable_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, leased)| leased).collect()
}

fn read(row: &PgRow) -> Result<(i64, Leased), sqlx::Error> {
    let key = EventKey::parse(row.try_get("key")?).ok_or_else(|| sqlx::Error::Decode("no key of an event".into()))?;
    let token = ClaimToken::from_bytes(row.try_get("token")?);
    let mut leased = Leased::new(key, token, parcel::read(row)?);
    leased.attempt = row.try_get::<i32, _>("attempts")?.unsigned_abs();
    leased.event_type = row.try_get::<Option<String>, _>("event_type")?.map(Into::into);
    leased.fingerprint = Fingerprint::from_u64(row.try_get::<i64, _>("fingerprint")?.cast_unsigned());
    leased.superseded = row.try_get("superseded")?;
    Ok((row.try_get("n")?, leased))
}
