use sqlx::Row as _;

use super::bid::{Bid, Said};
use super::lane::Sheet;
use super::late::Late;
use super::settles::Settles;
use crate::store::batcher::Batcher;

/// Releases what a statement claims after its batch was given up: everybody was told that the store does not answer, so nobody runs
/// those events, and their leases would hold them all the same.
///
/// The statement is waited for, on its own connection. A release that does not wait would find nothing if the statement takes effect
/// after it, as a statement does that waits for a lock, or a commit that waits for the disk or for a replica.
#[derive(Clone)]
pub(super) struct Overdue(pub(super) Batcher<Settles>);

impl Overdue {
    pub(super) fn release<S>(&self, sheet: &S, bids: &[&Bid], late: Late)
    where
        S: Sheet<Row = Bid, Outcome: Into<Option<Said>>> + Clone + Send + 'static,
    {
        let (sheet, settles) = (sheet.clone(), self.0.clone());
        let bids: Vec<Bid> = bids.iter().copied().cloned().collect();
        tokio::spawn(async move {
            let Some(mut rows) = late.answer().await else { return };
            // Whoever asked has asked again under the same token, and holds the claim.
            rows.retain(|row| !row.try_get("was_own").unwrap_or(false));
            let said = sheet.read(&bids.iter().collect::<Vec<_>>(), &rows).unwrap_or_default();
            for (bid, said) in bids.into_iter().zip(said) {
                if let Some(Said::Fresh { fence, .. }) = said.into()
                    && let Some(settle) = bid.taken_back(fence)
                {
                    settles.tell(settle);
                }
            }
        });
    }
}
