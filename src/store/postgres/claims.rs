use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgPool, Row as _};

use super::fault::{Fault, Remedy};
use super::lane::{Lane, Sheet};
use super::settles::{Settle, Settles};
use super::text::{milliseconds, storable};
use crate::EventKey;
use crate::store::group::{Answers, Engine, Group};
use crate::store::{Claim, ClaimRequest, ClaimToken, Fingerprint};

/// An insertion waits for another transaction that is inserting the same key, which is another instance's batch, and over in
/// no time; or else somebody's own, and then only those who asked for that key may have to wait.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// One claim, as it is asked for in a batch.
pub(super) struct Bid {
    key: EventKey,
    token: ClaimToken,
    lease_ms: i64,
    fingerprint: Fingerprint,
    event_type: Option<Box<str>>,
}

/// How a claim was answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bidden {
    Answered(Claim),
    Fresh {
        attempt: u32,
        /// When the lease ends: tells the claim from a later one under the same token. Not there if another question of the same
        /// batch was answered by the same claim.
        fence: Option<i64>,
    },
    /// Another transaction has the row in hand, or had it a moment ago. To be asked again.
    Contended {
        same_body: bool,
    },
}

/// What the statement says of a key.
#[derive(Clone, Copy)]
enum Said {
    Fresh {
        attempt: u32,
        fence: i64,
    },
    Running {
        holder: ClaimToken,
        fingerprint: Fingerprint,
    },
    Completed {
        fingerprint: Fingerprint,
    },
    /// It was free to take, and somebody else was faster or holds the row.
    Free {
        fingerprint: Fingerprint,
    },
    /// Somebody else inserted it meanwhile.
    Unseen,
}

/// Answers batches of claims on a connection of its own.
pub(super) struct Claims {
    lane: Lane,
    sql: Arc<str>,
    settles: Group<Settles>,
}

impl Claims {
    pub(super) fn new(pool: PgPool, deadline: Duration, sql: Arc<str>, settles: Group<Settles>) -> Self {
        Self { lane: Lane::new("tower-webhook claims", pool, deadline, LOCK_TIMEOUT), sql, settles }
    }
}

impl Bid {
    pub(super) fn new(request: &ClaimRequest<'_>) -> Self {
        Self {
            key: request.key.clone(),
            token: request.token,
            lease_ms: milliseconds(request.lease),
            fingerprint: request.fingerprint,
            event_type: request.event_type.map(storable),
        }
    }

    fn key(&self) -> &str {
        self.key.as_str()
    }
}

impl Engine for Claims {
    type Question = Bid;
    type Answer = Bidden;

    async fn answer(&self, batch: &[Bid]) -> Answers<Bidden> {
        // In the order of their keys in every batch of every instance: two that insert the same keys would otherwise wait for
        // each other.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by(|one, other| batch[*one].key().cmp(batch[*other].key()));
        let groups: Vec<&[usize]> = order.chunk_by(|one, other| batch[*one].key == batch[*other].key).collect();
        // Of two claims of one key only the first goes into the statement.
        let leaders: Vec<&Bid> = groups.iter().map(|group| &batch[group[0]]).collect();
        let sheet = ClaimSheet { sql: &self.sql };
        let said = self.lane.ask(&sheet, &leaders, self.lane.until()).await;

        let mut answers: Vec<_> = batch.iter().map(|_| Err(Fault::timed_out())).collect();
        for (group, said) in groups.iter().zip(said) {
            let said = unless_blocked(said);
            for at in group.iter() {
                let alone = !group.iter().any(|other| other != at && batch[*other].token == batch[*at].token);
                answers[*at] = said.clone().map(|said| batch[*at].judge(said, &batch[group[0]], alone));
            }
        }
        answers.into_iter().map(|answer| answer.map_err(Into::into)).collect()
    }

    fn unheard(&self, bid: Bid, answer: Bidden) {
        // By the fence too: whoever asked may have asked again since, and hold the claim now.
        if let Bidden::Fresh { fence: Some(fence), .. } = answer {
            self.settles.tell(Settle::unheard(bid.key, bid.token, fence));
        }
    }
}

/// That somebody's transaction is inserting the key is an answer, too.
fn unless_blocked(said: Result<Said, Fault>) -> Result<Said, Fault> {
    match said {
        Err(fault) if fault.remedy == Remedy::SplitBlocked => Ok(Said::Unseen),
        said => said,
    }
}

impl Bid {
    /// What this bid is answered, when the statement was asked for `leader`. `alone`: nobody else asked under the same token.
    fn judge(&self, said: Said, leader: &Self, alone: bool) -> Bidden {
        let same_body = |fingerprint| self.fingerprint == fingerprint;
        match said {
            Said::Fresh { attempt, fence } if self.token == leader.token => {
                Bidden::Fresh { attempt, fence: alone.then_some(fence) }
            }
            Said::Fresh { .. } => Bidden::Answered(Claim::InFlight { same_body: same_body(leader.fingerprint) }),
            // One's own claim, which is free to take: the statement was not asked for this token.
            Said::Running { holder, fingerprint } if holder == self.token => {
                Bidden::Contended { same_body: same_body(fingerprint) }
            }
            Said::Running { fingerprint, .. } => {
                Bidden::Answered(Claim::InFlight { same_body: same_body(fingerprint) })
            }
            Said::Completed { fingerprint } => Bidden::Answered(Claim::Completed { same_body: same_body(fingerprint) }),
            Said::Free { fingerprint } => Bidden::Contended { same_body: same_body(fingerprint) },
            Said::Unseen => Bidden::Contended { same_body: true },
        }
    }
}

struct ClaimSheet<'a> {
    sql: &'a Arc<str>,
}

impl<'a> Sheet for ClaimSheet<'a> {
    type Row = &'a Bid;
    type Outcome = Said;

    fn query<'q>(&'q self, rows: &'q [&'a Bid]) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(self.sql.clone()))
            .bind(rows.iter().map(|bid| bid.key()).collect::<Vec<_>>())
            .bind(rows.iter().map(|bid| bid.token.as_bytes().as_slice()).collect::<Vec<_>>())
            .bind(rows.iter().map(|bid| bid.lease_ms).collect::<Vec<_>>())
            .bind(rows.iter().map(|bid| bid.fingerprint.as_u64().cast_signed()).collect::<Vec<_>>())
            .bind(rows.iter().map(|bid| bid.event_type.as_deref()).collect::<Vec<_>>())
    }

    fn read(&self, rows: &[&'a Bid], answer: &[PgRow]) -> Result<Vec<Said>, sqlx::Error> {
        let mut said = vec![Said::Unseen; rows.len()];
        for row in answer {
            let key: &str = row.try_get(0)?;
            let at = rows.binary_search_by(|bid| bid.key().cmp(key));
            let at = at.map_err(|_| sqlx::Error::Decode("an answer to what was not asked".into()))?;
            match read(row)? {
                // What was taken over was free when the statement began.
                Said::Free { .. } if matches!(said[at], Said::Fresh { .. }) => {}
                read => said[at] = read,
            }
        }
        Ok(said)
    }
}

fn read(row: &PgRow) -> Result<Said, sqlx::Error> {
    let state: &str = row.try_get(1)?;
    if state == "fresh" {
        let attempts: i32 = row.try_get(4)?;
        return Ok(Said::Fresh { attempt: attempts.unsigned_abs(), fence: row.try_get(5)? });
    }
    let fingerprint: i64 = row.try_get(3)?;
    let fingerprint = Fingerprint::from_u64(fingerprint.cast_unsigned());
    match state {
        "free" => Ok(Said::Free { fingerprint }),
        "running" => {
            let holder: [u8; 16] = row.try_get(2)?;
            Ok(Said::Running { holder: ClaimToken::from_bytes(holder), fingerprint })
        }
        "completed" | "failed" => Ok(Said::Completed { fingerprint }),
        other => Err(sqlx::Error::Decode(format!("an event's state is {other:?}").into())),
    }
}
