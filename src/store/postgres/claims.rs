//! Batches of claims.

use std::time::Duration;

use tokio::time::Instant;

use super::claim_item::{ClaimItem, ClaimReply, ClaimStatement, RowState};
use super::connection::DedicatedConnection;
use super::connector::Connector;
use super::fault::{Fault, Remedy};
use super::settle_batch::SettleBatch;
use super::statements::Statements;
use super::values::MOST_BYTES;
use super::wake::{Notifier, Promoter};
use crate::store::batcher::{Answers, BatchHandler, Batcher};

/// An insertion waits for another transaction that is inserting the same key, or has changed it since this statement
/// began. Such a transaction is another instance's batch, and over in no time; or else a handler's own, and then only
/// the callers that claim that key may have to wait. A lock on the whole table is waited for until the deadline, in
/// steps of this length.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Answers batches of claims on a connection of its own. Events that are enqueued are in the same batches: claims of
/// one key meet in one batch, whatever they are for.
pub(super) struct ClaimBatch {
    connection: DedicatedConnection,
    inline: ClaimStatements,
    queued: ClaimStatements,
    promoter: Promoter,
    settlements: Batcher<SettleBatch>,
    notifier: Notifier,
}

struct ClaimStatements {
    claim: ClaimStatement,
    take_over: ClaimStatement,
}

impl ClaimBatch {
    pub(super) fn new(
        connector: &Connector,
        statements: &Statements,
        settlements: &Batcher<SettleBatch>,
        promoter: &Promoter,
        notifier: &Notifier,
    ) -> Self {
        let of = |claim, take_over| ClaimStatements {
            claim: ClaimStatement::claim(statements.text(claim), settlements),
            take_over: ClaimStatement::take_over(statements.text(take_over), settlements),
        };
        let connection = DedicatedConnection::new("tower-webhook claims", connector, LOCK_TIMEOUT);
        Self {
            connection: connection.with_table_lock_check(statements.text("is_table_locked")),
            inline: of("claim", "take_over"),
            queued: of("enqueue", "enqueue_over"),
            promoter: promoter.clone(),
            settlements: settlements.clone(),
            notifier: notifier.clone(),
        }
    }
}

impl BatchHandler for ClaimBatch {
    type Question = ClaimItem;
    type Answer = ClaimReply;

    async fn answer(&self, batch: &[ClaimItem]) -> Answers<ClaimReply> {
        // The order of the keys is the same in every batch of every instance: two batches that insert the same keys
        // would otherwise wait for each other.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by(|one, other| batch[*one].key().cmp(batch[*other].key()));
        let groups: Vec<&[usize]> = order.chunk_by(|one, other| batch[*one].key() == batch[*other].key()).collect();
        // Of several claims of one key, only the first goes into the statement.
        let leaders: Vec<&ClaimItem> = groups.iter().map(|group| &batch[group[0]]).collect();
        let states = self.claim(&leaders, self.connection.deadline()).await;

        let mut replies: Vec<_> = batch.iter().map(|_| Err(Fault::timed_out())).collect();
        for (group, state) in groups.iter().zip(states) {
            let state = missing_if_locked(state);
            for index in *group {
                let item = &batch[*index];
                let is_alone = !group.iter().any(|other| other != index && batch[*other].token() == item.token());
                replies[*index] = state.clone().map(|state| item.reply(state, &batch[group[0]], is_alone));
            }
        }
        replies.into_iter().map(|reply| reply.map_err(Into::into)).collect()
    }

    fn on_abandoned(&self, item: ClaimItem, reply: ClaimReply) {
        // Only this claim: the caller may have claimed again since under the same token, and hold the claim now.
        if let ClaimReply::Fresh { lease_until: Some(lease_until), .. } = reply
            && let Some(release) = item.released(lease_until)
        {
            self.settlements.tell(release);
        }
    }
}

impl ClaimBatch {
    /// Makes claims of different keys.
    async fn claim(&self, items: &[&ClaimItem], until: Instant) -> Vec<Result<RowState, Fault>> {
        let mut states: Vec<_> = items.iter().map(|_| Err(Fault::timed_out())).collect();
        for part in parts(items) {
            let claimed: Vec<&ClaimItem> = part.iter().map(|index| items[*index]).collect();
            let is_queued = claimed.first().is_some_and(|item| item.request().is_some());
            let statements = if is_queued { &self.queued } else { &self.inline };
            let part_states = self.claim_part(statements, &claimed, until).await;
            if part_states.iter().any(|state| matches!(state, Ok(RowState::Enqueued { .. }))) {
                // The predecessor of an event may have finished meanwhile.
                self.promoter.promote_next(&self.connection, &orders_behind(&claimed, &part_states), until).await;
                self.notifier.notify();
            }
            for (index, state) in part.into_iter().zip(part_states) {
                states[index] = state;
            }
        }
        states
    }

    /// Most claims take one statement. A second one takes over the rows that are free to take.
    async fn claim_part(
        &self,
        statements: &ClaimStatements,
        items: &[&ClaimItem],
        until: Instant,
    ) -> Vec<Result<RowState, Fault>> {
        let mut states = self.connection.run_batch(&statements.claim, items, until).await;
        let is_free = |index: &usize| matches!(states[*index], Ok(RowState::Free { .. }));
        let free: Vec<usize> = (0..items.len()).filter(is_free).collect();
        if free.is_empty() {
            return states;
        }
        let free_items: Vec<&ClaimItem> = free.iter().map(|index| items[*index]).collect();
        let taken = self.connection.run_batch(&statements.take_over, &free_items, until).await;
        for (index, state) in free.into_iter().zip(taken) {
            // A row that another transaction has taken first, or holds, stays free to this batch.
            if !matches!(state, Ok(RowState::Missing)) {
                states[index] = state;
            }
        }
        states
    }
}

/// Divides items into statements: either all items of a statement are enqueued or none, and it carries no more bytes
/// than it should. The oldest items are in the first statement; within each, items keep their order.
fn parts(items: &[&ClaimItem]) -> Vec<Vec<usize>> {
    let (mut inline, mut queued): (Vec<usize>, Vec<Vec<usize>>) = Default::default();
    let mut bytes = usize::MAX;
    let mut by_age: Vec<usize> = (0..items.len()).collect();
    by_age.sort_by_key(|index| items[*index].asked_at());
    for index in by_age {
        let Some(request) = items[index].request() else {
            inline.push(index);
            continue;
        };
        bytes = bytes.saturating_add(request.bytes());
        match queued.last_mut() {
            Some(part) if bytes <= MOST_BYTES => part.push(index),
            _ => {
                queued.push(vec![index]);
                bytes = request.bytes();
            }
        }
    }
    let mut parts = queued;
    parts.extend((!inline.is_empty()).then_some(inline));
    for part in &mut parts {
        part.sort_unstable();
    }
    parts
}

/// The orders of the events that wait behind others.
fn orders_behind<'a>(items: &[&'a ClaimItem], states: &[Result<RowState, Fault>]) -> Vec<&'a str> {
    let all = items.iter().zip(states);
    let behind = all.filter(|(_, state)| matches!(state, Ok(RowState::Enqueued { is_behind: true })));
    behind.filter_map(|(item, _)| item.request()?.order_key.as_deref()).collect()
}

/// A lock that was not granted in time is an answer: another transaction is inserting the key.
fn missing_if_locked(state: Result<RowState, Fault>) -> Result<RowState, Fault> {
    match state {
        Err(fault) if fault.remedy == Remedy::CheckTableLock => Ok(RowState::Missing),
        state => state,
    }
}
