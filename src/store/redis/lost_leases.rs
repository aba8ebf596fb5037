//! Leases whose reply is lost: the server has leased events, and no worker knows of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::client::Mode;
use super::error::Result;
use super::inbox::{HeldEvent, Inbox};
use super::{record, scripts};

/// How many looks that find nothing end a search. The server may carry out a lease after the first look, if the lease
/// was still on its way when its connection broke.
const LOOKS: usize = 10;

/// The first delay between two looks, and the longest.
const DELAYS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// How many running events one script looks at.
const LOOKED_AT: usize = 100;

/// The server's cursor for the beginning of a sorted set, and for its end.
const START: &str = "0";

/// Where to go on, and the event keys and tokens that were found.
type Found = (String, Vec<(String, Vec<u8>)>);

/// The delays between looks.
pub(super) fn delays() -> impl Iterator<Item = Duration> {
    let [first, longest] = DELAYS;
    std::iter::successors(Some(first), move |delay| Some((*delay * 2).min(longest)))
}

/// Searches for the events of a lease in a task of its own, and releases them. The server may be out of reach for
/// longer than the worker waits: the search goes on until a lease of this time has ended by itself.
pub(super) fn search_later(inbox: &Arc<Inbox>, lease: String, time: Duration) {
    let (inbox, lost_at) = (inbox.clone(), Instant::now());
    tokio::spawn(async move {
        let mut looks = 0;
        for delay in delays() {
            match release_found(&inbox, &lease).await {
                Ok(true) => return,
                Ok(false) => looks += 1,
                Err(_) => {}
            }
            if looks >= LOOKS || lost_at.elapsed() >= time {
                return;
            }
            sleep(delay).await;
        }
    });
}

/// Looks once for the events of a lease, and releases them if there are any. One script has leased all of them, so that
/// none will follow. Returns whether there were any.
pub(super) async fn release_found(inbox: &Arc<Inbox>, lease: &str) -> Result<bool> {
    if find(inbox, lease).await?.is_empty() {
        return Ok(false);
    }
    // The lease may have run between two steps of the first look, which then has seen only some of its events.
    let events = find(inbox, lease).await?;
    // No worker has sent a command for these events: they need not go by the connections of their keys.
    inbox.release_later(Mode::Spare, events);
    Ok(true)
}

/// Finds the events that run under tokens of this lease.
async fn find(inbox: &Inbox, lease: &str) -> Result<Vec<HeldEvent>> {
    let client = &inbox.client;
    let (stream, most) = (client.stream()?, LOOKED_AT.to_string());
    let (mut cursor, mut found) = (START.to_owned(), Vec::new());
    loop {
        let arguments = [&*client.prefix, lease, &cursor, &most];
        let reply = client.run(Mode::Spare, &scripts::FIND_LEASED, &stream, &arguments).await?;
        let (next, rows): Found = reply.read()?;
        for (key, token) in rows {
            found.push(HeldEvent { key: client.key_of(&key), token: record::read_token(&token)? });
        }
        if next == START {
            return Ok(found);
        }
        cursor = next;
    }
}
