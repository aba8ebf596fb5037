//! From the rows that a lease's script answers with to events with their parcels.

use std::sync::Arc;

use deadpool_redis::redis;

use super::super::fault::Fault;
use super::super::record::{self, Unreadable};
use super::super::store::{Shared, Way};
use super::entry::{Entry, key_text, read};
use super::scripts;
use crate::store::ClaimToken;
use crate::store::queue::Leased;
use crate::telemetry;

/// How many bytes of parcels are asked for at a time, unless it is a single one.
const AT_ONCE: usize = 1024 * 1024;

/// What is noted down of events that cannot be run.
pub(super) const UNREADABLE: &str = "the stored event is not one that this version wrote";
const GONE: &str = "the stored request is gone: its key was deleted, or evicted";

/// The attempt, whether the event is old news, whether a handler was started before, the fingerprint, what its entry says, and the
/// parcel of a small one.
pub(super) type Row = (u32, bool, bool, Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// An event that a script has leased, under the token that holds it.
pub(super) struct Held {
    pub(super) row: Row,
    pub(super) token: ClaimToken,
}

/// The same, read. Its parcel may still have to be asked for.
struct Opened {
    leased: Leased,
    entry: Entry,
    parcel: Option<Vec<u8>>,
}

impl Shared {
    /// The events with their parcels. One that cannot be run is given up, and one whose parcel does not come in time is put back.
    pub(super) async fn hand_over(self: &Arc<Self>, held: Vec<Held>) -> Result<Vec<Leased>, Fault> {
        let (mut opened, mut missing) = (Vec::with_capacity(held.len()), Vec::new());
        for held in held {
            match held.open() {
                Ok(event) => opened.push(event),
                Err(Unreadable) => self.give_up(&held, UNREADABLE).await,
            }
        }
        let fetched = self.fetch(&mut opened).await;
        let mut all = Vec::with_capacity(opened.len());
        for Opened { mut leased, entry, parcel } in opened {
            match (parcel.map(|value| entry.parcel(value)), &fetched) {
                (Some(Ok(parcel)), _) => {
                    leased.request = parcel;
                    all.push(leased);
                }
                (Some(Err(Unreadable)), _) => self.bury_unrunnable(&leased, UNREADABLE).await,
                (None, Ok(())) => self.bury_unrunnable(&leased, GONE).await,
                (None, Err(_)) => missing.push((self.key(&leased.key), leased.token)),
            }
        }
        self.put_back_soon(missing);
        match fetched {
            Err(fault) if all.is_empty() => Err(fault),
            _ => Ok(all),
        }
    }

    /// Asks for the parcels that did not come with their rows, some at a time.
    async fn fetch(&self, opened: &mut [Opened]) -> Result<(), Fault> {
        let mut open: Vec<_> = opened.iter_mut().filter(|event| event.parcel.is_none()).collect();
        let mut rest = &mut open[..];
        while !rest.is_empty() {
            let mut length = 0;
            let fits = |event: &&&mut Opened| {
                length += event.entry.parcel_length;
                length <= AT_ONCE
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (now, later) = rest.split_at_mut(count);
            let mut get = redis::cmd("MGET");
            for event in now.iter() {
                get.arg(self.parcel_key(event.entry.parcel_name.as_bytes()));
            }
            let (reply, _) = self.ask(Way::Shared, &self.events()?, &get).await?;
            let parcels: Vec<Option<Vec<u8>>> = read(reply)?;
            now.iter_mut().zip(parcels).for_each(|(event, parcel)| event.parcel = parcel);
            rest = later;
        }
        Ok(())
    }

    async fn give_up(&self, held: &Held, reason: &str) {
        // The script has read the key, and so there is one.
        if let Ok(key) = key_text(&held.row.4) {
            self.bury_named(&key, held.token, reason).await;
        }
    }

    async fn bury_unrunnable(&self, leased: &Leased, reason: &str) {
        self.bury_named(leased.key.as_str(), leased.token, reason).await;
    }

    /// Has an event be a dead letter that no handler can be called for. If it cannot be now, it is when it is leased again.
    async fn bury_named(&self, key: &str, token: ClaimToken, reason: &str) {
        telemetry::redis_event_given_up(key, reason);
        let arguments = [reason.as_bytes(); 2];
        let _ = self.end(&scripts::BURY, Way::Replicated, &self.key_of(key), token, &arguments).await;
    }
}

impl Held {
    fn open(&self) -> Result<Opened, Unreadable> {
        let (attempt, superseded, started, fingerprint, facts, parcel) = &self.row;
        let entry = Entry::read(facts)?;
        let mut leased = Leased::new(entry.key.clone(), self.token, entry.no_parcel());
        (leased.attempt, leased.superseded, leased.started) = (*attempt, *superseded, *started);
        leased.event_type = entry.event_type.clone();
        leased.fingerprint = record::read_fingerprint(fingerprint)?;
        Ok(Opened { leased, entry, parcel: parcel.clone() })
    }

    /// The key of its claim, and its token.
    pub(super) fn name(&self, shared: &Shared) -> Option<(String, ClaimToken)> {
        Some((shared.key_of(&key_text(&self.row.4).ok()?), self.token))
    }
}
