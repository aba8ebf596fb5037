use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::access::Access;
use super::bell::Bell;
use super::bid::{Bid, Bidden, ClaimSheet, Said, TakeoverSheet};
use super::bound::Bound;
use super::fault::{Fault, Remedy};
use super::lane::Lane;
use super::overdue::Overdue;
use super::parcel::HEAVIEST;
use super::promotion::Promotion;
use super::schema::Statements;
use super::settles::Settles;
use crate::store::batcher::{Answers, BatchHandler, Batcher};

/// An insertion waits for another transaction that is inserting the same key, or has changed it since this statement began. That is
/// another instance's batch, and over in no time; or else somebody's own, and then only those who asked for that key may have
/// to wait. A lock on the whole table is waited for until the deadline, in steps of this length.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Answers batches of claims on a connection of its own, those that a worker is to run included: claims of one key meet in
/// one batch, whatever they are for.
pub(super) struct Claims {
    lane: Lane,
    inline: Verbs,
    kept: Verbs,
    promotion: Promotion,
    settles: Batcher<Settles>,
    bell: Bell,
}

/// The statements that claim.
struct Verbs {
    claim: ClaimSheet,
    takeover: TakeoverSheet,
}

impl Claims {
    pub(super) fn new(
        access: &Access,
        deadline: Duration,
        statements: &Statements,
        settles: Batcher<Settles>,
        bell: Bell,
        bound: &Arc<Bound>,
    ) -> Self {
        let Statements { claim, takeover, accept, accept_takeover, .. } = statements;
        let overdue = Overdue(settles.clone());
        Self {
            lane: Lane::new("tower-webhook claims", access, deadline, LOCK_TIMEOUT).telling_table_locks(statements),
            inline: Verbs {
                claim: ClaimSheet::inline(claim, &overdue),
                takeover: TakeoverSheet::inline(takeover, &overdue),
            },
            kept: Verbs { claim: ClaimSheet::kept(accept), takeover: TakeoverSheet::kept(accept_takeover) },
            promotion: Promotion::new(statements, bound.clone()),
            settles,
            bell,
        }
    }

    /// What becomes of bids for different keys.
    async fn ask(&self, bids: &[&Bid], until: Instant) -> Vec<Result<Said, Fault>> {
        let mut said: Vec<_> = bids.iter().map(|_| Err(Fault::timed_out())).collect();
        for part in parts(bids) {
            let asked: Vec<&Bid> = part.iter().map(|at| bids[*at]).collect();
            let is_kept = asked.first().is_some_and(|bid| bid.kept().is_some());
            let answers = self.ask_part(if is_kept { &self.kept } else { &self.inline }, &asked, until).await;
            if is_kept && answers.iter().any(|said| matches!(said, Ok(Said::Fresh { .. }))) {
                // What held them up may have ended meanwhile.
                self.promotion.run(&self.lane, &held_up(&asked, &answers), until).await;
                self.bell.ring();
            }
            for (at, answer) in part.into_iter().zip(answers) {
                said[at] = answer;
            }
        }
        said
    }

    /// Most take one statement; those for claims that are free to take, another.
    async fn ask_part(&self, verbs: &Verbs, bids: &[&Bid], until: Instant) -> Vec<Result<Said, Fault>> {
        let mut said = self.lane.ask(&verbs.claim, bids, until).await;
        let free: Vec<usize> = (0..bids.len()).filter(|at| matches!(said[*at], Ok(Said::Free { .. }))).collect();
        if free.is_empty() {
            return said;
        }
        let to_take: Vec<&Bid> = free.iter().map(|at| bids[*at]).collect();
        for (at, taken) in free.into_iter().zip(self.lane.ask(&verbs.takeover, &to_take, until).await) {
            match taken {
                Ok(Some(fresh)) => said[at] = Ok(fresh),
                // Somebody else was faster, or holds the row.
                Ok(None) => {}
                Err(fault) => said[at] = Err(fault),
            }
        }
        said
    }
}

impl BatchHandler for Claims {
    type Question = Bid;
    type Answer = Bidden;

    async fn answer(&self, batch: &[Bid]) -> Answers<Bidden> {
        // In the order of their keys in every batch of every instance: two that insert the same keys would otherwise wait for
        // each other.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by(|one, other| batch[*one].key().cmp(batch[*other].key()));
        let groups: Vec<&[usize]> = order.chunk_by(|one, other| batch[*one].key() == batch[*other].key()).collect();
        // Of two claims of one key only the first goes into the statement.
        let leaders: Vec<&Bid> = groups.iter().map(|group| &batch[group[0]]).collect();
        let said = self.ask(&leaders, self.lane.until()).await;

        let mut answers: Vec<_> = batch.iter().map(|_| Err(Fault::timed_out())).collect();
        for (group, said) in groups.iter().zip(said) {
            let said = unless_blocked(said);
            for at in *group {
                let alone = !group.iter().any(|other| other != at && batch[*other].token() == batch[*at].token());
                answers[*at] = said.clone().map(|said| batch[*at].judge(said, &batch[group[0]], alone));
            }
        }
        answers.into_iter().map(|answer| answer.map_err(Into::into)).collect()
    }

    fn on_abandoned(&self, bid: Bid, answer: Bidden) {
        // By the fence too: whoever asked may have asked again since, and hold the claim now.
        if let Bidden::Fresh { fence: Some(fence), .. } = answer
            && let Some(settle) = bid.taken_back(fence)
        {
            self.settles.tell(settle);
        }
    }
}

/// The places of bids that share a statement: those of one kind, and no more than it should carry. What was asked first is in the
/// first one; within each they are as in `bids`.
fn parts(bids: &[&Bid]) -> Vec<Vec<usize>> {
    let (mut inline, mut kept): (Vec<usize>, Vec<Vec<usize>>) = Default::default();
    let mut weight = usize::MAX;
    let mut by_age: Vec<usize> = (0..bids.len()).collect();
    by_age.sort_by_key(|at| bids[*at].asked_at());
    for at in by_age {
        let Some(parcel) = bids[at].kept() else {
            inline.push(at);
            continue;
        };
        weight = weight.saturating_add(parcel.weight());
        match kept.last_mut() {
            Some(part) if weight <= HEAVIEST => part.push(at),
            _ => {
                kept.push(vec![at]);
                weight = parcel.weight();
            }
        }
    }
    kept.extend((!inline.is_empty()).then_some(inline));
    for part in &mut kept {
        part.sort_unstable();
    }
    kept
}

/// The orders of those that were put in behind others.
fn held_up<'a>(bids: &[&'a Bid], said: &[Result<Said, Fault>]) -> Vec<&'a str> {
    let held_up = bids.iter().zip(said).filter(|(_, said)| matches!(said, Ok(Said::Fresh { fence: 1, .. })));
    held_up.filter_map(|(bid, _)| bid.kept()?.order_key.as_deref()).collect()
}

/// That somebody's transaction is inserting the key is an answer, too.
fn unless_blocked(said: Result<Said, Fault>) -> Result<Said, Fault> {
    match said {
        Err(fault) if fault.remedy == Remedy::Blocked => Ok(Said::Unseen),
        said => said,
    }
}
