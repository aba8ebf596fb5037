//! The claims of a batch, and the statements that make them.

use std::sync::Arc;
use std::time::Instant;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::connection::{BatchStatement, LateStatement};
use super::settle_batch::SettleBatch;
use super::settlement::SettleItem;
use super::statements::{Statement, statement};
use super::values::{RequestColumns, fingerprint, index, milliseconds, token, without_nul};
use crate::EventKey;
use crate::store::batcher::Batcher;
use crate::store::queue::StoredRequest;
use crate::store::{Claim, ClaimRequest, ClaimToken, Fingerprint};

/// One claim of a batch: of an event that is run at once, or of one that is enqueued.
#[derive(Clone)]
pub(super) struct ClaimItem {
    key: EventKey,
    token: ClaimToken,
    lease_ms: i64,
    fingerprint: Fingerprint,
    event_type: Option<Box<str>>,
    /// The request, if the event is enqueued.
    request: Option<RequestColumns>,
    asked_at: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ClaimReply {
    Answered(Claim),
    Fresh {
        attempt: u32,
        /// When the lease ends, in microseconds since 1970, which tells this claim from a later one under the same
        /// token. `None` if the same claim answers another item of the batch, and for an event that is enqueued.
        lease_until: Option<i64>,
    },
    /// Another transaction holds the row, or held it a moment ago. The claim is to be repeated.
    Contended {
        same_body: bool,
    },
}

/// The row of a key, as the statements return it.
#[derive(Clone, Copy)]
pub(super) enum RowState {
    /// The statement has taken the claim.
    Fresh {
        attempt: u32,
        lease_until: i64,
    },
    /// The statement has enqueued the event.
    Enqueued {
        /// Whether the event waits behind another one of its order.
        is_behind: bool,
    },
    Running {
        holder: ClaimToken,
        fingerprint: Fingerprint,
    },
    /// The event is in the queue: it waits, or a worker runs it.
    Queued {
        holder: ClaimToken,
        fingerprint: Fingerprint,
    },
    Completed {
        fingerprint: Fingerprint,
    },
    /// The row is free to take, and was not taken.
    Free {
        fingerprint: Fingerprint,
    },
    /// The statement returned no row: another transaction has inserted or taken it meanwhile, or holds it.
    Missing,
}

impl ClaimItem {
    pub(super) fn new(claim: &ClaimRequest<'_>, request: Option<&StoredRequest>) -> Self {
        Self {
            key: claim.key.clone(),
            token: claim.token,
            lease_ms: milliseconds(claim.lease),
            fingerprint: claim.fingerprint,
            event_type: claim.event_type.map(without_nul),
            request: request.map(RequestColumns::new),
            asked_at: Instant::now(),
        }
    }

    pub(super) fn key(&self) -> &str {
        self.key.as_str()
    }

    pub(super) fn token(&self) -> ClaimToken {
        self.token
    }

    /// When the claim was asked for. Events arrive in this order, whatever the order of their keys.
    pub(super) fn asked_at(&self) -> Instant {
        self.asked_at
    }

    /// The request, if the event is enqueued.
    pub(super) fn request(&self) -> Option<&RequestColumns> {
        self.request.as_ref()
    }

    /// Releases the claim that this item has won. An enqueued event stays in the queue, and is run.
    pub(super) fn released(self, lease_until: i64) -> Option<SettleItem> {
        self.request.is_none().then(|| SettleItem::release_one(&self.key, self.token, lease_until))
    }

    /// Returns this item's reply. The statement claimed for `leader`, the first item of the same key. `is_alone` says
    /// that no other item has this key and token.
    pub(super) fn reply(&self, row: RowState, leader: &Self, is_alone: bool) -> ClaimReply {
        let answered = ClaimReply::Answered;
        let same_body = |fingerprint| self.fingerprint == fingerprint;
        match row {
            RowState::Fresh { attempt, lease_until } if self.token == leader.token => {
                ClaimReply::Fresh { attempt, lease_until: is_alone.then_some(lease_until) }
            }
            RowState::Enqueued { .. } if self.token == leader.token => {
                ClaimReply::Fresh { attempt: 1, lease_until: None }
            }
            RowState::Enqueued { .. } => answered(Claim::Accepted { same_body: same_body(leader.fingerprint) }),
            RowState::Fresh { .. } => answered(Claim::InFlight { same_body: same_body(leader.fingerprint) }),
            // The event was enqueued before under this token, and the reply was lost.
            RowState::Queued { holder, .. } if self.request.is_some() && holder == self.token => {
                ClaimReply::Fresh { attempt: 1, lease_until: None }
            }
            RowState::Queued { fingerprint, .. } => answered(Claim::Accepted { same_body: same_body(fingerprint) }),
            // The item's own token holds the claim, but the statement asked under the leader's token. The caller
            // repeats the claim.
            RowState::Running { holder, fingerprint } if holder == self.token => {
                ClaimReply::Contended { same_body: same_body(fingerprint) }
            }
            RowState::Running { fingerprint, .. } => answered(Claim::InFlight { same_body: same_body(fingerprint) }),
            RowState::Completed { fingerprint } => answered(Claim::Completed { same_body: same_body(fingerprint) }),
            RowState::Free { fingerprint } => ClaimReply::Contended { same_body: same_body(fingerprint) },
            RowState::Missing => ClaimReply::Contended { same_body: true },
        }
    }
}

/// A statement that claims, or that takes over rows which are free to take. Its items are in the order of their keys,
/// and either all of them are enqueued or none.
#[derive(Clone)]
pub(super) struct ClaimStatement {
    sql: Arc<str>,
    takes_over: bool,
    settlements: Batcher<SettleBatch>,
}

impl ClaimStatement {
    pub(super) fn claim(sql: Arc<str>, settlements: &Batcher<SettleBatch>) -> Self {
        Self { sql, takes_over: false, settlements: settlements.clone() }
    }

    pub(super) fn take_over(sql: Arc<str>, settlements: &Batcher<SettleBatch>) -> Self {
        Self { takes_over: true, ..Self::claim(sql, settlements) }
    }
}

impl BatchStatement for ClaimStatement {
    type Item = ClaimItem;
    type Outcome = RowState;

    const MISSING: RowState = RowState::Missing;

    fn query(&self, items: &[&ClaimItem]) -> Statement {
        let query = statement(&self.sql)
            .bind(items.iter().map(|item| item.key()).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.token.as_bytes().as_slice()).collect::<Vec<_>>());
        let fingerprints: Vec<_> = items.iter().map(|item| item.fingerprint.as_u64().cast_signed()).collect();
        let event_types: Vec<_> = items.iter().map(|item| item.event_type.as_deref()).collect();
        if items.first().is_none_or(|item| item.request.is_none()) {
            let leases: Vec<_> = items.iter().map(|item| item.lease_ms).collect();
            return query.bind(leases).bind(fingerprints).bind(event_types);
        }
        let requests = || items.iter().map(|item| item.request.as_ref());
        query
            .bind(fingerprints)
            .bind(event_types)
            .bind(items.iter().map(|item| item.key.endpoint()).collect::<Vec<_>>())
            .bind(requests().map(|request| request.map(|request| request.received_ms)).collect::<Vec<_>>())
            .bind(requests().map(|request| request.map(|request| &*request.head)).collect::<Vec<_>>())
            .bind(requests().map(|request| request.map(|request| &*request.body)).collect::<Vec<_>>())
            .bind(requests().map(|request| request?.order_key.as_deref()).collect::<Vec<_>>())
            .bind(requests().map(|request| request?.sequence).collect::<Vec<_>>())
            .bind(turns(items))
    }

    fn read(&self, items: &[&ClaimItem], row: &PgRow) -> Result<(usize, RowState), sqlx::Error> {
        if self.takes_over {
            let index = index(row, items.len())?;
            let attempt = row.try_get::<i32, _>("attempts")?.unsigned_abs();
            return Ok((index, taken(items[index], row, attempt)?));
        }
        let key: &str = row.try_get("key")?;
        let index = items.binary_search_by(|item| item.key().cmp(key));
        let index = index.map_err(|_| sqlx::Error::Decode("a row about a key that is not in the batch".into()))?;
        Ok((index, found(items[index], row)?))
    }

    /// Releases the claims of a statement that takes effect after its deadline. All callers got an error, so no
    /// handler runs those events, and their leases would hold them all the same.
    ///
    /// The statement is waited for, on its own connection. A release that does not wait would find nothing if the
    /// statement takes effect after it, as a statement does that waits for a lock, or a commit that waits for the disk
    /// or for a replica.
    fn on_late(&self, items: &[&ClaimItem], late: LateStatement) {
        let statement = self.clone();
        let items: Vec<ClaimItem> = items.iter().copied().cloned().collect();
        tokio::spawn(async move {
            let Some(mut rows) = late.answer().await else { return };
            // The caller has claimed again under the same token, and holds the claim.
            rows.retain(|row| !row.try_get("was_own").unwrap_or(false));
            let states = statement.read_all(&items.iter().collect::<Vec<_>>(), &rows).unwrap_or_default();
            for (item, state) in items.into_iter().zip(states) {
                if let RowState::Fresh { lease_until, .. } = state
                    && let Some(release) = item.released(lease_until)
                {
                    statement.settlements.tell(release);
                }
            }
        });
    }
}

/// Returns the turn in which each item arrives, counted from one.
fn turns(items: &[&ClaimItem]) -> Vec<i32> {
    let mut by_age: Vec<usize> = (0..items.len()).collect();
    by_age.sort_by_key(|index| items[*index].asked_at);
    let mut turns = vec![0; items.len()];
    for (turn, index) in (1..).zip(by_age) {
        turns[index] = turn;
    }
    turns
}

/// Reads a row that the statement has inserted or taken over.
fn taken(item: &ClaimItem, row: &PgRow, attempt: u32) -> Result<RowState, sqlx::Error> {
    Ok(match item.request {
        Some(_) => RowState::Enqueued { is_behind: row.try_get("is_behind")? },
        None => RowState::Fresh { attempt, lease_until: row.try_get("lease_until")? },
    })
}

/// Reads a row as a claim found it.
fn found(item: &ClaimItem, row: &PgRow) -> Result<RowState, sqlx::Error> {
    let state: &str = row.try_get("state")?;
    if state == "fresh" {
        return taken(item, row, 1);
    }
    let fingerprint = fingerprint(row, "known")?;
    match state {
        "free" => Ok(RowState::Free { fingerprint }),
        "running" => Ok(RowState::Running { holder: token(row, "holder")?, fingerprint }),
        "accepted" => Ok(RowState::Queued { holder: token(row, "holder")?, fingerprint }),
        "completed" | "failed" => Ok(RowState::Completed { fingerprint }),
        other => Err(sqlx::Error::Decode(format!("an event's state is {other:?}").into())),
    }
}
