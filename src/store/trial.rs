//! The trial of a store by its `check`.

use std::time::Duration;

use crate::EventKey;
use crate::key::RESERVED;
use crate::store::{Claim, ClaimRequest, ClaimToken, Store, StoreError};

/// The lease of the event that is claimed as a test, if it cannot be deleted.
const LEASE: Duration = Duration::from_secs(10);

/// Claims, renews and releases a test event, under an id that no sender can use. Returns its key, for the caller to
/// delete the record.
pub(super) async fn claim_and_release(store: &impl Store) -> Result<EventKey, StoreError> {
    let token = ClaimToken::random();
    let key = EventKey::new("", None, &format!("{RESERVED}check:{token}"));
    let claim = ClaimRequest::new(&key, token, LEASE);
    match store.claim(&claim).await? {
        Claim::Fresh { .. } => {}
        found => return Err(StoreError::corrupt(format!("an event that was never claimed is {found:?}"))),
    }
    let _ = store.renew(&claim).await?;
    let _ = store.release(&key, token).await?;
    Ok(key)
}
