//! Batches of settlements.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::connection::DedicatedConnection;
use super::connector::Connector;
use super::fault::Fault;
use super::scan_start::ScanStart;
use super::settlement::{SettleItem, SettleReply, SettleStatement, WhyUnsettled};
use super::statements::Statements;
use super::wake::{Notifier, Promoter};
use crate::store::batcher::{Answers, BatchHandler};

/// No settlement waits for a row. A lock on the whole table is waited for until the deadline.
const NO_LOCK_TIMEOUT: Duration = Duration::ZERO;

/// Answers batches of settlements on a connection of its own.
pub(super) struct SettleBatch {
    connection: DedicatedConnection,
    settle: SettleStatement,
    why_unsettled: WhyUnsettled,
    scan_start: Arc<ScanStart>,
    promoter: Promoter,
    notifier: Notifier,
}

impl SettleBatch {
    pub(super) fn new(
        connector: &Connector,
        statements: &Statements,
        scan_start: &Arc<ScanStart>,
        promoter: &Promoter,
        notifier: &Notifier,
    ) -> Self {
        Self {
            connection: DedicatedConnection::new("tower-webhook settles", connector, NO_LOCK_TIMEOUT),
            settle: SettleStatement(statements.text("settle")),
            why_unsettled: WhyUnsettled(statements.text("why_unsettled")),
            scan_start: scan_start.clone(),
            promoter: promoter.clone(),
            notifier: notifier.clone(),
        }
    }
}

impl BatchHandler for SettleBatch {
    type Question = SettleItem;
    type Answer = SettleReply;

    async fn answer(&self, batch: &[SettleItem]) -> Answers<SettleReply> {
        let until = self.connection.deadline();
        let mut replies: Vec<_> = batch.iter().map(|_| Err(Fault::timed_out())).collect();
        for round in rounds(batch) {
            let items: Vec<&SettleItem> = round.iter().map(|index| &batch[*index]).collect();
            for (index, reply) in round.into_iter().zip(self.settle(&items, until).await) {
                replies[index] = reply;
            }
        }
        replies.into_iter().map(|reply| reply.map_err(Into::into)).collect()
    }

    fn on_abandoned(&self, _: SettleItem, _: SettleReply) {}
}

impl SettleBatch {
    /// Settles claims of different keys in one statement. A second statement finds out why the others were not settled.
    async fn settle(&self, items: &[&SettleItem], until: Instant) -> Vec<Result<SettleReply, Fault>> {
        let mut replies = self.connection.run_batch(&self.settle, items, until).await;
        let is_open = |index: &usize| matches!(replies[*index], Ok(SettleReply::Contended));
        let open: Vec<usize> = (0..items.len()).filter(is_open).collect();
        if !open.is_empty() {
            let unsettled: Vec<&SettleItem> = open.iter().map(|index| items[*index]).collect();
            let found = self.connection.run_batch(&self.why_unsettled, &unsettled, until).await;
            for (index, reply) in open.into_iter().zip(found) {
                replies[index] = reply;
            }
        }
        self.announce(&replies, until).await;
        replies
    }

    /// Promotes the next events of the orders that were left, and notifies workers of events that may be due.
    async fn announce(&self, replies: &[Result<SettleReply, Fault>], until: Instant) {
        let freed: Vec<_> = replies
            .iter()
            .filter_map(|reply| match reply {
                Ok(SettleReply::Freed { order_left, due, .. }) => Some((order_left.as_deref(), *due)),
                _ => None,
            })
            .collect();
        if freed.is_empty() {
            return;
        }
        freed.iter().filter_map(|(_, due)| *due).for_each(|due| self.scan_start.include(due));
        let orders: Vec<&str> = freed.iter().filter_map(|(order_left, _)| *order_left).collect();
        self.promoter.promote_next(&self.connection, &orders, until).await;
        self.notifier.notify();
    }
}

/// Divides a batch into statements that run one after the other, each in the order of its keys. Settlements of one key
/// are made in the order in which they were asked for.
fn rounds(batch: &[SettleItem]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut rounds_of_key: HashMap<&str, usize> = HashMap::with_capacity(batch.len());
    for (index, settlement) in batch.iter().enumerate() {
        let round = rounds_of_key.entry(&settlement.key).or_default();
        match rounds.get_mut(*round) {
            Some(indices) => indices.push(index),
            None => rounds.push(vec![index]),
        }
        *round += 1;
    }
    for round in &mut rounds {
        round.sort_by(|one, other| batch[*one].key.cmp(&batch[*other].key));
    }
    rounds
}
