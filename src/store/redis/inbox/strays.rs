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

/// Where to go on, and the keys and tokens of events of the lease.
type Found = (String, Vec<(String, Vec<u8>)>);

/// How long to wait before each look.
pub(super) fn pauses() -> impl Iterator<Item = Duration> {
    let [first, longest] = PAUSES;
    std::iter::successors(Some(first), move |pause| Some((*pause * 2).min(longest)))
}

impl Shared {
    /// Looks for events of a lease whose answer is lost, in a task of its own, and puts them back. The server may be out of reach for
    /// longer than the worker waits: the task looks until a lease of this time, carried out by now, has ended by itself.
    pub(super) fn search_soon(self: &Arc<Self>, lease: String, time: Duration) {
        let (shared, lost_at) = (self.clone(), Instant::now());
        tokio::spawn(async move {
            let mut looks = 0;
            for pause in pauses() {
                match shared.put_strays_back(&lease).await {
                    Ok(true) => return,
                    Ok(false) => looks += 1,
                    Err(_) => {}
                }
                if looks >= LOOKS || lost_at.elapsed() >= time {
                    return;
                }
                sleep(pause).await;
            }
        });
    }

    /// Looks once, and puts the events back if there are some. One script has leased all events of a lease: if there are some, there
    /// will be no others.
    pub(super) async fn put_strays_back(self: &Arc<Self>, lease: &str) -> Result<bool, Fault> {
        if self.find(lease).await?.is_empty() {
            return Ok(false);
        }
        // The script may have run between two steps of the first look, which then has seen only some of them.
        let strays = self.find(lease).await?;
        // No worker has a command under way for them, and so they need not go by the connections of their keys.
        self.put_back_by(Way::Aside, strays);
        Ok(true)
    }

    /// The events that run under tokens of this lease: the keys of their claims, and their tokens.
    async fn find(&self, lease: &str) -> Result<Vec<(String, ClaimToken)>, Fault> {
        let (events, most) = (self.events()?, LOOKED_AT.to_string());
        let (mut place, mut strays) = (START.to_owned(), Vec::new());
        loop {
            let arguments = [&*self.prefix, lease, &place, &most].map(str::as_bytes);
            let (reply, _) = self.run(Way::Aside, &scripts::STRAYS.call(&events, &arguments)).await?;
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
