use std::time::Duration;

use sqlx::PgPool;
use tokio::time::Instant;

use super::bid::{Bid, Bidden, ClaimSheet, Said, TakeoverSheet};
use super::fault::{Fault, Remedy};
use super::lane::Lane;
use super::schema::Statements;
use super::settles::Settles;
use crate::store::group::{Answers, Engine, Group};

/// An insertion waits for another transaction that is inserting the same key, or has changed it since this statement began. That is
/// another instance's batch, and over in no time; or else somebody's own, and then only those who asked for that key may have
/// to wait.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Answers batches of claims on a connection of its own.
pub(super) struct Claims {
    lane: Lane,
    claim: ClaimSheet,
    takeover: TakeoverSheet,
    settles: Group<Settles>,
}

impl Claims {
    pub(super) fn new(pool: PgPool, deadline: Duration, statements: &Statements, settles: Group<Settles>) -> Self {
        Self {
            lane: Lane::new("tower-webhook claims", pool, deadline, LOCK_TIMEOUT),
            claim: ClaimSheet(statements.claim.clone()),
            takeover: TakeoverSheet(statements.takeover.clone()),
            settles,
        }
    }

    /// What becomes of bids for different keys. Most take one statement; those for claims that are free to take, another.
    async fn ask(&self, bids: &[&Bid], until: Instant) -> Vec<Result<Said, Fault>> {
        let mut said = self.lane.ask(&self.claim, bids, until).await;
        let free: Vec<usize> = (0..bids.len()).filter(|at| matches!(said[*at], Ok(Said::Free { .. }))).collect();
        if free.is_empty() {
            return said;
        }
        let to_take: Vec<&Bid> = free.iter().map(|at| bids[*at]).collect();
        for (at, taken) in free.into_iter().zip(self.lane.ask(&self.takeover, &to_take, until).await) {
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

impl Engine for Claims {
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

    fn unheard(&self, bid: Bid, answer: Bidden) {
        // By the fence too: whoever asked may have asked again since, and hold the claim now.
        if let Bidden::Fresh { fence: Some(fence), .. } = answer {
            self.settles.tell(bid.taken_back(fence));
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
