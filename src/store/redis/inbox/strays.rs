//! Events of a lease whose answer is lost: the server has leased them, and no worker knows of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::fault::Fault;
use super::super::record;
use super::super::store::{Shared, Way};
use super::entry::read;
use super::scripts;
use crate::store::ClaimToken;

/// How many looks that find nothing end a search. A lease that is still on its way to the server when its connection breaks may be carried
/// out after the first look.
const LOOKS: usize = 10;

/// Between two looks, at first; and at the most.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// How many of the events that run one script looks at.
const LOOKED_AT: usize = 100;

/// Where the server's scan of a sorted set begins, and what it answers at the end.
const START: &str = "0";

/// A lease whose answer is lost.
pub(super) struct Search {
    /// What its tokens begin with.
    pub(super) lease: String,
    pub(super) asked_at: Instant,
    /// How long it leases events for.
    pub(super) time: Duration,
}

/// Where to go on, and the keys and tokens of events of the lease.
type Found = (String, Vec<(String, Vec<u8>)>);

impl Shared {
    /// Looks for events of a lease in a task of its own, and puts them back. It looks until the lease has ended by itself: the server may
    /// be out of reach for longer than the worker waits.
    pub(super) fn search_soon(self: &Arc<Self>, search: Search) {
        let shared = self.clone();
        tokio::spawn(async move {
            let ([mut pause, longest], mut looks) = (PAUSES, 0);
            while looks < LOOKS && search.asked_at.elapsed() < search.time {
                match shared.find(&search.lease).await {
                    // One script has leased all of them, so there are no others.
                    Ok(strays) if !strays.is_empty() => return shared.put_back_soon(strays),
                    Ok(_) => looks += 1,
                    Err(_) => {}
                }
                sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        });
    }

    /// The events that run under tokens of this lease: the keys of their claims, and their tokens.
    async fn find(&self, lease: &str) -> Result<Vec<(String, ClaimToken)>, Fault> {
        let (events, most) = (self.events()?, LOOKED_AT.to_string());
        let (mut place, mut strays) = (START.to_owned(), Vec::new());
        loop {
            let arguments = [&*self.prefix, lease, &place, &most].map(str::as_bytes);
            let (reply, _) = self.run(Way::Shared, &scripts::STRAYS.call(&events, &arguments)).await?;
            let (next, rows): Found = read(reply)?;
            for (key, token) in rows {
                strays.push((self.key_of(&key), record::read_token(&token)?));
            }
            if next == START {
                return Ok(strays);
            }
            place = next;
        }
    }
}
