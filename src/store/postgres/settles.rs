use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::access::Access;
use super::bell::Bell;
use super::bound::Bound;
use super::fault::Fault;
use super::lane::Lane;
use super::promotion::Promotion;
use super::schema::Statements;
use super::settle::{LookSheet, Settle, SettleSheet, Settled};
use crate::store::batcher::{Answers, BatchHandler};

/// Nothing here waits for a row; a lock on the whole table is waited for until the deadline.
const NO_LOCK_TIMEOUT: Duration = Duration::ZERO;

/// Answers batches of whatever becomes of claims, on a connection of its own.
pub(super) struct Settles {
    lane: Lane,
    bell: Bell,
    settle: SettleSheet,
    look: LookSheet,
    promotion: Promotion,
    bound: Arc<Bound>,
}

impl Settles {
    pub(super) fn new(
        access: &Access,
        deadline: Duration,
        statements: &Statements,
        bell: Bell,
        bound: &Arc<Bound>,
    ) -> Self {
        Self {
            lane: Lane::new("tower-webhook settles", access, deadline, NO_LOCK_TIMEOUT),
            bell,
            settle: SettleSheet(statements.settle.clone()),
            look: LookSheet(statements.look.clone()),
            promotion: Promotion::new(statements, bound.clone()),
            bound: bound.clone(),
        }
    }

    /// What becomes of settlements of different keys. One statement settles them; another looks why it did not.
    async fn ask(&self, settles: &[&Settle], until: Instant) -> Vec<Result<Settled, Fault>> {
        let mut said = self.lane.ask(&self.settle, settles, until).await;
        let open: Vec<usize> = (0..settles.len()).filter(|at| matches!(said[*at], Ok(Settled::Contended))).collect();
        if !open.is_empty() {
            let to_see: Vec<&Settle> = open.iter().map(|at| settles[*at]).collect();
            for (at, seen) in open.into_iter().zip(self.lane.ask(&self.look, &to_see, until).await) {
                said[at] = seen;
            }
        }
        self.let_go_on(&said, until).await;
        said
    }

    /// Lets the next events go on, and tells workers.
    async fn let_go_on(&self, said: &[Result<Settled, Fault>], until: Instant) {
        let freed: Vec<_> = said
            .iter()
            .filter_map(|said| match said {
                Ok(Settled::Freed { leaves, due, .. }) => Some((leaves.as_deref(), *due)),
                _ => None,
            })
            .collect();
        if freed.is_empty() {
            return;
        }
        freed.iter().filter_map(|(_, due)| *due).for_each(|due| self.bound.lower(due));
        let orders: Vec<&str> = freed.iter().filter_map(|(leaves, _)| *leaves).collect();
        self.promotion.run(&self.lane, &orders, until).await;
        self.bell.ring();
    }
}

impl BatchHandler for Settles {
    type Question = Settle;
    type Answer = Settled;

    async fn answer(&self, batch: &[Settle]) -> Answers<Settled> {
        let until = self.lane.until();
        let mut answers: Vec<_> = batch.iter().map(|_| Err(Fault::timed_out())).collect();
        for round in rounds(batch) {
            let settles: Vec<&Settle> = round.iter().map(|at| &batch[*at]).collect();
            for (at, said) in round.into_iter().zip(self.ask(&settles, until).await) {
                answers[at] = said;
            }
        }
        answers.into_iter().map(|answer| answer.map_err(Into::into)).collect()
    }

    fn on_abandoned(&self, _: Settle, _: Settled) {}
}

/// The places of a batch in statements that are run one after the other, each in the order of its keys: what is asked of one
/// key is done in the order in which it was asked.
fn rounds(batch: &[Settle]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut asked: HashMap<&str, usize> = HashMap::with_capacity(batch.len());
    for (at, settle) in batch.iter().enumerate() {
        let round = asked.entry(&settle.key).or_default();
        match rounds.get_mut(*round) {
            Some(places) => places.push(at),
            None => rounds.push(vec![at]),
        }
        *round += 1;
    }
    for round in &mut rounds {
        round.sort_by(|one, other| batch[*one].key.cmp(&batch[*other].key));
    }
    rounds
}
