use std::sync::Arc;
use std::time::Instant;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Row as _};

use super::lane::{Sheet, place};
use super::late::Late;
use super::overdue::Overdue;
use super::parcel::Kept;
use super::settle::Settle;
use super::text::{milliseconds, storable};
use crate::EventKey;
use crate::store::queue::StoredRequest;
use crate::store::{Claim, ClaimRequest, ClaimToken, Fingerprint};

/// One claim, as it is asked for in a batch.
#[derive(Clone)]
pub(super) struct Bid {
    key: EventKey,
    token: ClaimToken,
    lease_ms: i64,
    fingerprint: Fingerprint,
    event_type: Option<Box<str>>,
    /// Not to be run now, but to be kept for a worker.
    kept: Option<Kept>,
    asked_at: Instant,
}

/// How it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bidden {
    Answered(Claim),
    Fresh {
        attempt: u32,
        /// When the lease ends: tells the claim from a later one under the same token. Not there if another question of the same
        /// batch was answered by the same claim; of no use for what is kept for a worker.
        fence: Option<i64>,
    },
    /// Another transaction has the row in hand, or had it a moment ago. To be asked again.
    Contended {
        same_body: bool,
    },
}

/// What the statements say of a key.
#[derive(Clone, Copy)]
pub(super) enum Said {
    Fresh {
        attempt: u32,
        /// Of what is kept for a worker: whether it is held up behind another event of its order.
        fence: i64,
    },
    Running {
        holder: ClaimToken,
        fingerprint: Fingerprint,
    },
    /// An inbox has it, and it is going to be run.
    Queued {
        holder: ClaimToken,
        fingerprint: Fingerprint,
    },
    Completed {
        fingerprint: Fingerprint,
    },
    /// It is free to take, and not taken.
    Free {
        fingerprint: Fingerprint,
    },
    /// Somebody else inserted it meanwhile.
    Unseen,
}

impl Bid {
    pub(super) fn new(request: &ClaimRequest<'_>, parcel: Option<&StoredRequest>) -> Self {
        Self {
            key: request.key.clone(),
            token: request.token,
            lease_ms: milliseconds(request.lease),
            fingerprint: request.fingerprint,
            event_type: request.event_type.map(storable),
            kept: parcel.map(Kept::of),
            asked_at: Instant::now(),
        }
    }

    pub(super) fn key(&self) -> &str {
        self.key.as_str()
    }

    pub(super) fn token(&self) -> ClaimToken {
        self.token
    }

    /// When it was asked: events arrive in this order, whatever the order of their keys.
    pub(super) fn asked_at(&self) -> Instant {
        self.asked_at
    }

    /// What is to be kept for a worker, if it is not a claim to run the event at once.
    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// Gives the claim back that this bid has won. What was accepted stays so: it is going to be run, whoever knows.
    pub(super) fn taken_back(self, fence: i64) -> Option<Settle> {
        self.kept.is_none().then(|| Settle::unheard(&self.key, self.token, fence))
    }

    /// What this bid is answered, when the statement was asked for `leader`. `alone`: nobody else asked under the same token.
    pub(super) fn judge(&self, said: Said, leader: &Self, alone: bool) -> Bidden {
        let same_body = |fingerprint| self.fingerprint == fingerprint;
        match said {
            Said::Fresh { attempt, fence } if self.token == leader.token => {
                Bidden::Fresh { attempt, fence: alone.then_some(fence) }
            }
            Said::Fresh { .. } if leader.kept.is_some() => {
                Bidden::Answered(Claim::Accepted { same_body: same_body(leader.fingerprint) })
            }
            Said::Fresh { .. } => Bidden::Answered(Claim::InFlight { same_body: same_body(leader.fingerprint) }),
            // It was accepted before under this very token, and the reply lost.
            Said::Queued { holder, .. } if self.kept.is_some() && holder == self.token => {
                Bidden::Fresh { attempt: 1, fence: None }
            }
            Said::Queued { fingerprint, .. } => Bidden::Answered(Claim::Accepted { same_body: same_body(fingerprint) }),
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

/// What is written of a bid.
type Writes = fn(&Arc<str>, &[&Bid]) -> Query<'static, Postgres, PgArguments>;

/// Claims, in the order of their keys.
#[derive(Clone)]
pub(super) struct ClaimSheet {
    sql: Arc<str>,
    writes: Writes,
    /// What is kept for a worker stays accepted: it is going to be run, whoever knows.
    overdue: Option<Overdue>,
}

impl ClaimSheet {
    /// To run events at once.
    pub(super) fn inline(sql: &Arc<str>, overdue: &Overdue) -> Self {
        Self { sql: sql.clone(), writes: claims, overdue: Some(overdue.clone()) }
    }

    /// To keep them for a worker.
    pub(super) fn kept(sql: &Arc<str>) -> Self {
        Self { sql: sql.clone(), writes: parcels, overdue: None }
    }
}

impl Sheet for ClaimSheet {
    type Row = Bid;
    type Outcome = Said;

    fn query(&self, bids: &[&Bid]) -> Query<'static, Postgres, PgArguments> {
        (self.writes)(&self.sql, bids)
    }

    fn read(&self, bids: &[&Bid], answer: &[PgRow]) -> Result<Vec<Said>, sqlx::Error> {
        let mut said = vec![Said::Unseen; bids.len()];
        for row in answer {
            let key: &str = row.try_get(0)?;
            let at = bids.binary_search_by(|bid| bid.key().cmp(key));
            let at = at.map_err(|_| sqlx::Error::Decode("an answer to what was not asked".into()))?;
            said[at] = read(row)?;
        }
        Ok(said)
    }

    fn overdue(&self, bids: &[&Bid], late: Late) {
        match &self.overdue {
            Some(overdue) => overdue.release(self, bids, late),
            None => late.let_end(),
        }
    }
}

/// Claims that are free to take; `None` for what was not.
#[derive(Clone)]
pub(super) struct TakeoverSheet {
    sql: Arc<str>,
    writes: Writes,
    /// What is kept for a worker stays accepted: it is going to be run, whoever knows.
    overdue: Option<Overdue>,
}

impl TakeoverSheet {
    pub(super) fn inline(sql: &Arc<str>, overdue: &Overdue) -> Self {
        Self { sql: sql.clone(), writes: claims, overdue: Some(overdue.clone()) }
    }

    pub(super) fn kept(sql: &Arc<str>) -> Self {
        Self { sql: sql.clone(), writes: parcels, overdue: None }
    }
}

impl Sheet for TakeoverSheet {
    type Row = Bid;
    type Outcome = Option<Said>;

    fn query(&self, bids: &[&Bid]) -> Query<'static, Postgres, PgArguments> {
        (self.writes)(&self.sql, bids)
    }

    fn read(&self, bids: &[&Bid], answer: &[PgRow]) -> Result<Vec<Option<Said>>, sqlx::Error> {
        let mut taken = vec![None; bids.len()];
        for row in answer {
            let attempts: i32 = row.try_get(1)?;
            let fresh = Said::Fresh { attempt: attempts.unsigned_abs(), fence: row.try_get(2)? };
            *place(&mut taken, row)? = Some(fresh);
        }
        Ok(taken)
    }

    fn overdue(&self, bids: &[&Bid], late: Late) {
        match &self.overdue {
            Some(overdue) => overdue.release(self, bids, late),
            None => late.let_end(),
        }
    }
}

fn claims(sql: &Arc<str>, bids: &[&Bid]) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(AssertSqlSafe(sql.clone()))
        .bind(bids.iter().map(|bid| bid.key()).collect::<Vec<_>>())
        .bind(bids.iter().map(|bid| bid.token.as_bytes().as_slice()).collect::<Vec<_>>())
        .bind(bids.iter().map(|bid| bid.lease_ms).collect::<Vec<_>>())
        .bind(bids.iter().map(|bid| bid.fingerprint.as_u64().cast_signed()).collect::<Vec<_>>())
        .bind(bids.iter().map(|bid| bid.event_type.as_deref()).collect::<Vec<_>>())
}

fn parcels(sql: &Arc<str>, bids: &[&Bid]) -> Query<'static, Postgres, PgArguments> {
    let kept = || bids.iter().map(|bid| bid.kept.as_ref());
    sqlx::query(AssertSqlSafe(sql.clone()))
        .bind(bids.iter().map(|bid| bid.key()).collect::<Vec<_>>())
        .bind(bids.iter().map(|bid| bid.token.as_bytes().as_slice()).collect::<Vec<_>>())
        .bind(bids.iter().map(|bid| bid.fingerprint.as_u64().cast_signed()).collect::<Vec<_>>())
        .bind(bids.iter().map(|bid| bid.event_type.as_deref()).collect::<Vec<_>>())
        .bind(bids.iter().map(|bid| bid.key.endpoint()).collect::<Vec<_>>())
        .bind(kept().map(|kept| kept.map(|kept| kept.received_ms)).collect::<Vec<_>>())
        .bind(kept().map(|kept| kept.map(|kept| &*kept.head)).collect::<Vec<_>>())
        .bind(kept().map(|kept| kept.map(|kept| &*kept.body)).collect::<Vec<_>>())
        .bind(kept().map(|kept| kept?.order_key.as_deref()).collect::<Vec<_>>())
        .bind(kept().map(|kept| kept?.sequence).collect::<Vec<_>>())
        .bind(turns(bids))
}

/// Of each bid, when it is its turn to arrive, counted from one.
fn turns(bids: &[&Bid]) -> Vec<i32> {
    let mut by_age: Vec<usize> = (0..bids.len()).collect();
    by_age.sort_by_key(|at| bids[*at].asked_at);
    let mut turns = vec![0; bids.len()];
    for (turn, at) in (1..).zip(by_age) {
        turns[at] = turn;
    }
    turns
}

fn read(row: &PgRow) -> Result<Said, sqlx::Error> {
    let state: &str = row.try_get(1)?;
    if state == "fresh" {
        return Ok(Said::Fresh { attempt: 1, fence: row.try_get(4)? });
    }
    let fingerprint: i64 = row.try_get(3)?;
    let fingerprint = Fingerprint::from_u64(fingerprint.cast_unsigned());
    match state {
        "free" => Ok(Said::Free { fingerprint }),
        "running" | "accepted" => {
            let holder = ClaimToken::from_bytes(row.try_get(2)?);
            Ok(match state {
                "running" => Said::Running { holder, fingerprint },
                _ => Said::Queued { holder, fingerprint },
            })
        }
        "completed" | "failed" => Ok(Said::Completed { fingerprint }),
        other => Err(sqlx::Error::Decode(format!("an event's state is {other:?}").into())),
    }
}
