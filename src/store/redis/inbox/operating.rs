use std::time::{Duration, SystemTime};

use deadpool_redis::redis::Value;

use super::super::fault::Fault;
use super::super::record::{self, milliseconds};
use super::super::script::Script;
use super::super::store::{Shared, Way};
use super::entry::{Entry, kept, kept_whole, read};
use super::scripts;
use crate::EventKey;
use crate::inbox::{EventState, Filter, InboxCounts, KeptEvent, Page, from_unix_millis};
use crate::store::ClaimToken;

/// How many events one script looks at: their bodies pass through its hands.
const AT_ONCE: usize = 25;

const DISCARDED: &str = "discarded by an operator";

/// Key, type, when it was received, and the record.
type Row = (String, String, String, Vec<u8>);

/// The record, what is in the entry, and the attempts that failed.
type Whole = (Vec<u8>, Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// How many are waiting, running, completed and dead, when the oldest that is due was received, in milliseconds since 1970, and the
/// last arrival.
type Counted = (i64, u64, u64, u64, Option<i64>, Option<u64>);

impl Shared {
    pub(super) async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<KeptEvent>, Fault> {
        if let Some(key) = &filter.key {
            let found = self.get(key).await?.filter(|event| filter.matches(event));
            let found = found.filter(|event| page.after.is_none_or(|last| event.arrival > last) && page.limit > 0);
            return Ok(found.into_iter().map(listed).collect());
        }
        let mut events = Vec::new();
        let mut after = page.after.map(|last| format!("{last:019}"));
        while events.len() < page.limit {
            let (some, last) = self.browse(filter.state, after.as_deref()).await?;
            events.extend(some.into_iter().filter(|event| filter.matches(event)));
            if last.is_none() {
                break;
            }
            after = last;
        }
        events.truncate(page.limit);
        Ok(events)
    }

    pub(super) async fn get(&self, key: &EventKey) -> Result<Option<KeptEvent>, Fault> {
        self.check_slot()?;
        let key = self.key(key);
        let (reply, _) = self.run(Way::Shared, &scripts::GET.call(&key, &[self.prefix.as_bytes()])).await?;
        let found: Option<Whole> = read(reply)?;
        let Some((record, parts, body, failures)) = found else { return Ok(None) };
        kept_whole(Entry::read(parts, body)?, &record, failures.as_deref()).map(Some)
    }

    pub(super) async fn requeue(&self, filter: &Filter, states: &[EventState]) -> Result<u64, Fault> {
        let letters = [if states.contains(&EventState::Completed) { "fc" } else { "f" }];
        let requeued = self.change(filter, states, &scripts::REQUEUE, &letters, named_anew).await?;
        self.listener.tell();
        Ok(requeued)
    }

    pub(super) async fn discard(&self, filter: &Filter, retention: Duration) -> Result<u64, Fault> {
        let retention = milliseconds(retention).to_string();
        let states = [EventState::Waiting, EventState::Dead];
        let discarded = self.change(filter, &states, &scripts::DISCARD, &[&retention, DISCARDED], named_anew).await?;
        self.listener.tell();
        Ok(discarded)
    }

    pub(super) async fn forget(&self, filter: &Filter) -> Result<u64, Fault> {
        self.change(filter, &[EventState::Completed, EventState::Dead], &scripts::FORGET, &[], named).await
    }

    pub(super) async fn waiting(&self, up_to: u64) -> Result<u64, Fault> {
        let waiting: i64 = read(self.ask_inbox(&scripts::WAITING).await?)?;
        Ok(waiting.max(0).cast_unsigned().min(up_to))
    }

    pub(super) async fn counts(&self) -> Result<InboxCounts, Fault> {
        let (waiting, running, completed, dead, oldest, _): Counted = read(self.ask_inbox(&scripts::COUNTS).await?)?;
        let oldest_waiting =
            oldest.map(|received| SystemTime::now().duration_since(from_unix_millis(received)).unwrap_or_default());
        Ok(InboxCounts { waiting: waiting.max(0).cast_unsigned(), running, completed, dead, oldest_waiting })
    }

    /// Some events behind an arrival, and the last that was looked at, unless there are no more.
    async fn browse(
        &self,
        state: Option<EventState>,
        after: Option<&str>,
    ) -> Result<(Vec<KeptEvent>, Option<String>), Fault> {
        let events = self.events()?;
        let place = match state {
            Some(EventState::Dead) => "dead",
            Some(EventState::Running) => "running",
            _ => "all",
        };
        let count = AT_ONCE.to_string();
        let arguments = [&self.prefix, place, after.unwrap_or_default(), &count].map(str::as_bytes);
        let (reply, _) = self.run(Way::Shared, &scripts::BROWSE.call(&events, &arguments)).await?;
        let (rows, last): (Vec<Row>, Option<String>) = read(reply)?;
        let some =
            rows.into_iter().map(|(key, event_type, received, record)| kept(&key, &event_type, &received, &record));
        Ok((some.collect::<Result<_, _>>()?, last))
    }

    /// Changes all events that match and are in one of these states, some at a time. The script looks again: what was changed
    /// meanwhile is left alone.
    async fn change(
        &self,
        filter: &Filter,
        states: &[EventState],
        script: &Script,
        arguments: &[&str],
        name: impl Fn(&KeptEvent) -> Vec<String>,
    ) -> Result<u64, Fault> {
        let events = self.events()?;
        // What is requeued may have died again before the last page: those that arrive from now on are left alone.
        let (.., newest): Counted = read(self.ask_inbox(&scripts::COUNTS).await?)?;
        let Some(newest) = newest else { return Ok(0) };
        let mut changed = 0;
        for state in states {
            if filter.state.is_some_and(|wanted| wanted != *state) {
                continue;
            }
            let filter = filter.clone().state(*state);
            let mut page = Page::first(AT_ONCE);
            loop {
                let found = self.list(&filter, &page).await?;
                let Some(last) = found.last() else { break };
                page = page.after(last);
                let names: Vec<_> = found.iter().filter(|event| event.arrival <= newest).flat_map(&name).collect();
                if names.is_empty() {
                    break;
                }
                let all = [&*self.prefix].into_iter().chain(arguments.iter().copied());
                let all: Vec<_> = all.chain(names.iter().map(String::as_str)).map(str::as_bytes).collect();
                let (reply, _) = self.run(Way::Shared, &script.call(&events, &all)).await?;
                changed += read::<u64>(reply)?;
            }
        }
        Ok(changed)
    }

    async fn ask_inbox(&self, script: &Script) -> Result<Value, Fault> {
        let (reply, _) = self.run(Way::Shared, &script.call(&self.events()?, &[self.prefix.as_bytes()])).await?;
        Ok(reply)
    }
}

fn named(event: &KeptEvent) -> Vec<String> {
    vec![event.key.to_string(), event.arrival.to_string()]
}

/// With a token that nobody has.
fn named_anew(event: &KeptEvent) -> Vec<String> {
    [named(event), vec![record::token(ClaimToken::random())]].concat()
}

fn listed(event: KeptEvent) -> KeptEvent {
    KeptEvent { failures: Vec::new(), parcel: None, ..event }
}
