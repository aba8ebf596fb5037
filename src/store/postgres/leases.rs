use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use tokio::time::Instant;

use super::access::Access;
use super::bound::{Bound, BoundKeeper, LONGEST_WALK};
use super::choice::Choice;
use super::fault::Fault;
use super::held_up::HeldUp;
use super::lane::Lane;
use super::parcel;
use super::schema::Statements;
use super::settle::Settle;
use super::settles::Settles;
use super::strays::{Returns, Strays};
use super::wanted::Wanted;
use crate::store::batcher::{Answers, BatchHandler, Batcher};
use crate::store::in_transit::InTransit;
use crate::store::queue::Leased;
use crate::store::{ClaimToken, Fingerprint, StoreError};
use crate::{EventKey, telemetry};

/// Nothing here waits for a row. Two workers that lease two events of one order do wait for each other, and one of them fails.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// How often it is then asked again.
const RETRIES: usize = 8;

/// In the order of the index, and no further than there is something to lease, however many are waiting. A lease that the server
/// forgets in a crash is a lapsed one: the next worker's token fences it. So nobody waits until it is on disk.
const SETTINGS: &str = "SET enable_bitmapscan = off; SET enable_sort = off; SET synchronous_commit = off";

/// Between two tries, if other workers were faster with all that was chosen.
const PAUSES: [Duration; 4] = {
    let ms = Duration::from_millis;
    [ms(1), ms(2), ms(5), ms(10)]
};

/// The summary of an event that nothing can be made of.
const UNREADABLE: &str = "the stored event is not one that this version wrote";

/// Leases events to workers, on a connection of its own.
pub(super) struct Leases {
    lane: Lane,
    lease_due: Arc<str>,
    lease_chosen: Arc<str>,
    choice: Choice,
    held_up: HeldUp,
    bound: BoundKeeper,
    strays: Strays,
    settles: Batcher<Settles>,
}

impl Leases {
    pub(super) fn new(
        access: &Access,
        deadline: Duration,
        statements: &Statements,
        settles: Batcher<Settles>,
        bound: &Arc<Bound>,
    ) -> Self {
        let lane = Lane::new("tower-webhook leases", access, deadline, LOCK_TIMEOUT).with(SETTINGS);
        let aside = Lane::new("tower-webhook searches", access, LONGEST_WALK, LOCK_TIMEOUT).with(SETTINGS);
        let aside = Arc::new(aside);
        Self {
            lane,
            lease_due: statements.lease_due.clone(),
            lease_chosen: statements.lease_chosen.clone(),
            choice: Choice::new(statements),
            held_up: HeldUp::new(statements, bound.clone()),
            bound: BoundKeeper::new(bound.clone(), statements, aside.clone()),
            strays: Strays::new(aside, statements, settles.clone()),
            settles,
        }
    }

    async fn lease(&self, wanted: &Wanted) -> Result<InTransit<Returns>, Fault> {
        let until = self.lane.until();
        self.held_up.look(&self.lane, until).await;
        self.bound.look(&self.lane, until).await;
        let mut retries = 0;
        loop {
            let leased = match wanted.is_of_any_kind() {
                true => self.lease_due(wanted, until).await,
                false => self.lease_chosen(wanted, until).await,
            };
            match leased {
                // Another worker was faster with an event of the same order: it is to be seen now.
                Err(fault) if fault.is_of_a_row() && retries < RETRIES => retries += 1,
                Err(fault) if fault.is_late() => {
                    self.bound.bound().was_late();
                    return Err(fault);
                }
                leased => return leased,
            }
        }
    }

    /// What has been due the longest.
    async fn lease_due(&self, wanted: &Wanted, until: Instant) -> Result<InTransit<Returns>, Fault> {
        let (bound, limit) = (self.bound.bound().at(), i64::try_from(wanted.limit).unwrap_or(i64::MAX));
        let query = |tokens: &[ClaimToken]| wanted.lease(&self.lease_due, bound, tokens).bind(limit);
        self.run(wanted, until, query).await
    }

    /// What has been due the longest of the kinds that there is room for.
    async fn lease_chosen(&self, wanted: &Wanted, until: Instant) -> Result<InTransit<Returns>, Fault> {
        let bound = self.bound.bound().at();
        for pause in PAUSES {
            let keys = self.choice.make(&self.lane, wanted, bound, until).await?;
            if keys.is_empty() {
                break;
            }
            let query = |tokens: &[ClaimToken]| wanted.lease(&self.lease_chosen, bound, tokens).bind(keys.clone());
            let leased = self.run(wanted, until, query).await?;
            if !leased.is_empty() {
                return Ok(leased);
            }
            // Other workers have chosen the same, and were faster.
            tokio::time::sleep(pause).await;
        }
        Ok(self.handed(Vec::new(), wanted, Instant::now()))
    }

    /// Leases events that can be read, unless there are none.
    async fn run(
        &self,
        wanted: &Wanted,
        until: Instant,
        query: impl Fn(&[ClaimToken]) -> Query<'static, Postgres, PgArguments>,
    ) -> Result<InTransit<Returns>, Fault> {
        loop {
            let asked_at = Instant::now();
            let rows = self.ask(wanted, until, &query).await?;
            let events = self.read_all(&rows);
            // A worker that is handed nothing takes the inbox for empty. What was leased just now is not leased again.
            if !events.is_empty() || rows.is_empty() {
                return Ok(self.handed(events, wanted, asked_at));
            }
        }
    }

    /// Runs a statement that leases, under new tokens each time: if one took effect whose answer did not come, its events can be told
    /// from those of the next.
    async fn ask(
        &self,
        wanted: &Wanted,
        until: Instant,
        query: impl Fn(&[ClaimToken]) -> Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, Fault> {
        let (asked_at, tries) = (Instant::now(), Mutex::new(Vec::new()));
        let answer = self
            .lane
            .run_until(until, || {
                let tokens: Vec<_> = (0..wanted.limit).map(|_| ClaimToken::random()).collect();
                let query = query(&tokens);
                tries.lock().unwrap_or_else(PoisonError::into_inner).push(tokens);
                query
            })
            .await;
        let mut tries = tries.into_inner().unwrap_or_else(PoisonError::into_inner);
        let is_known = match &answer {
            Ok(_) => true,
            Err(fault) => fault.is_of_a_row(),
        };
        if is_known {
            tries.pop();
        }
        for tokens in tries {
            self.strays.search(tokens, asked_at, wanted.lease);
        }
        answer
    }

    /// Reads the leased events, in their order. A row that this store never wrote is reported, and becomes a dead letter: its lease
    /// would lapse again and again. If it cannot be buried now, the next lease that meets it tries again.
    fn read_all(&self, rows: &[PgRow]) -> Vec<Leased> {
        let mut all: Vec<(i64, Leased)> = Vec::with_capacity(rows.len());
        for row in rows {
            match read(row) {
                Ok(leased) => all.push(leased),
                Err(error) => {
                    let key = row.try_get("key").unwrap_or_default();
                    telemetry::event_unreadable(key, &error);
                    if let Ok(token) = row.try_get("token") {
                        self.settles.tell(Settle::bury_row(key, ClaimToken::from_bytes(token), UNREADABLE));
                    }
                }
            }
        }
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, leased)| leased).collect()
    }

    fn handed(&self, events: Vec<Leased>, wanted: &Wanted, asked_at: Instant) -> InTransit<Returns> {
        InTransit::new(events, Returns { strays: self.strays.clone(), asked_at, lease: wanted.lease })
    }
}

impl BatchHandler for Leases {
    type Question = Wanted;
    type Answer = InTransit<Returns>;

    async fn answer(&self, batch: &[Wanted]) -> Answers<Self::Answer> {
        let mut answers = Vec::with_capacity(batch.len());
        for wanted in batch {
            answers.push(self.lease(wanted).await.map_err(StoreError::from));
        }
        answers
    }

    /// Dropping it is enough, as it is when the answer was sent and not looked at.
    fn on_abandoned(&self, _: Wanted, _: Self::Answer) {}
}

fn read(row: &PgRow) -> Result<(i64, Leased), sqlx::Error> {
    let key = EventKey::parse(row.try_get("key")?).ok_or_else(|| sqlx::Error::Decode("no key of an event".into()))?;
    let token = ClaimToken::from_bytes(row.try_get("token")?);
    let mut leased = Leased::new(key, token, parcel::read(row)?);
    leased.attempt = row.try_get::<i32, _>("attempts")?.unsigned_abs();
    leased.event_type = row.try_get::<Option<String>, _>("event_type")?.map(Into::into);
    leased.fingerprint = Fingerprint::from_u64(row.try_get::<i64, _>("fingerprint")?.cast_unsigned());
    (leased.started, leased.superseded) = (row.try_get("started")?, row.try_get("superseded")?);
    Ok((row.try_get("n")?, leased))
}
