//! Makes leased events of a script's rows, with their requests.

use std::sync::Arc;

use deadpool_redis::redis;

use super::client::{Client, Mode};
use super::entry::{Entry, event_key};
use super::error::Result;
use super::inbox::{HeldEvent, Inbox};
use super::record::{self, Unreadable};
use crate::store::queue::{Leased, UNREADABLE};
use crate::store::{ClaimToken, Ending};
use crate::telemetry;

/// How many bytes of requests are read at a time, unless it is a single one.
const AT_ONCE: usize = 1024 * 1024;

/// The failure of an event whose request is gone.
const GONE: &str = "the stored request is gone: its key was deleted, or evicted";

/// The attempt, whether the event is superseded, whether a handler was started before, the fingerprint, the entry, and
/// the request if it is small.
pub(super) type Row = (u32, bool, bool, Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// An event that a script has leased under this token.
pub(super) struct LeasedRow {
    pub(super) row: Row,
    pub(super) token: ClaimToken,
}

/// The same, read. The request may be still missing.
struct OpenedRow {
    leased: Leased,
    entry: Entry,
    request: Option<Vec<u8>>,
}

/// Reads the rows, and the requests that are still missing. An event that cannot be run is buried, and one whose
/// request does not come in time is released.
pub(super) async fn open(inbox: &Arc<Inbox>, rows: Vec<LeasedRow>) -> Result<Vec<Leased>> {
    let (mut opened, mut missing) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match row.open() {
            Ok(event) => opened.push(event),
            Err(Unreadable) => {
                // The script has read the key, and so there is one.
                if let Ok(key) = event_key(&row.row.4) {
                    bury(inbox, &key, row.token, UNREADABLE).await;
                }
            }
        }
    }
    let fetched = fetch_requests(&inbox.client, &mut opened).await;
    let mut all = Vec::with_capacity(opened.len());
    for OpenedRow { mut leased, entry, request } in opened {
        match (request.map(|value| entry.read_request(value)), &fetched) {
            (Some(Ok(request)), _) => {
                leased.request = request;
                all.push(leased);
            }
            (Some(Err(Unreadable)), _) => bury(inbox, leased.key.as_str(), leased.token, UNREADABLE).await,
            (None, Ok(())) => bury(inbox, leased.key.as_str(), leased.token, GONE).await,
            (None, Err(_)) => missing.push(inbox.held(&leased.key, leased.token)),
        }
    }
    inbox.release_later(Mode::Repeatable, missing);
    match fetched {
        Err(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// Reads the missing requests, some at a time.
async fn fetch_requests(client: &Client, opened: &mut [OpenedRow]) -> Result<()> {
    let mut missing: Vec<_> = opened.iter_mut().filter(|event| event.request.is_none()).collect();
    let mut rest = &mut missing[..];
    while !rest.is_empty() {
        let mut length = 0;
        let fits = |event: &&&mut OpenedRow| {
            length += event.entry.request_length;
            length <= AT_ONCE
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (now, later) = rest.split_at_mut(count);
        let mut get = redis::cmd("MGET");
        for event in now.iter() {
            get.arg(client.request_key(event.entry.request_name.as_bytes()));
        }
        let requests: Vec<Option<Vec<u8>>> = client.ask(Mode::Repeatable, &client.stream()?, &get).await?.read()?;
        now.iter_mut().zip(requests).for_each(|(event, request)| event.request = request);
        rest = later;
    }
    Ok(())
}

/// Buries an event that no handler can be called for. If that fails, it is buried when it is leased again.
async fn bury(inbox: &Inbox, key: &str, token: ClaimToken, reason: &str) {
    telemetry::redis_event_given_up(key, reason);
    let event = HeldEvent { key: inbox.client.key_of(key), token };
    let _ = inbox.settle(&event, &Ending::Bury { reason }).await;
}

impl LeasedRow {
    fn open(&self) -> Result<OpenedRow, Unreadable> {
        let (attempt, superseded, started, fingerprint, encoded, request) = &self.row;
        let entry = Entry::read(encoded)?;
        let mut leased = Leased::new(entry.key.clone(), self.token, entry.empty_request());
        (leased.attempt, leased.superseded, leased.started) = (*attempt, *superseded, *started);
        leased.event_type = entry.event_type.clone();
        leased.fingerprint = record::read_fingerprint(fingerprint)?;
        Ok(OpenedRow { leased, entry, request: request.clone() })
    }

    pub(super) fn held_event(&self, client: &Client) -> Option<HeldEvent> {
        Some(HeldEvent { key: client.key_of(&event_key(&self.row.4).ok()?), token: self.token })
    }
}
