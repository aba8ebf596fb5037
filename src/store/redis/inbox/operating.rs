use std::time::SystemTime;

use deadpool_redis::redis::{self, FromRedisValue, Value};

use super::super::fault::Fault;
use super::super::record;
use super::super::script::Script;
use super::super::store::{Shared, Way};
use super::entry::{Entry, kept, read};
use super::scripts;
use crate::EventKey;
use crate::clock::from_unix_millis;
use crate::store::ClaimToken;
use crate::store::queue::{Change, Changed, EventState, Filter, Page, QueueCounts, QueuedEvent, log};

/// How many events one script looks at, and how many it changes.
const AT_ONCE: usize = 100;
const CHANGED: usize = 50;

const DISCARDED: &str = "discarded by an operator";

/// Key, type, when it was received, and the record.
type Row = (String, String, String, Vec<u8>);

/// The record, key, type, when it was received, what the entry says, and the attempts that failed.
type Whole = (Vec<u8>, String, String, String, Vec<u8>, Option<Vec<u8>>);

/// How many are waiting, running, completed and dead, when the oldest that is due was received, in milliseconds since 1970, and the
/// last arrival.
type Counted = (i64, u64, u64, u64, Option<i64>, Option<u64>);

impl Shared {
    pub(super) async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<QueuedEvent>, Fault> {
        if let Some(key) = &filter.key {
            let found = self.get_without_parcel(key).await?.map(|(event, _)| event);
            let found = found.filter(|event| filter.matches(event));
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

    pub(super) async fn get(&self, key: &EventKey) -> Result<Option<QueuedEvent>, Fault> {
        let Some((mut event, facts)) = self.get_without_parcel(key).await? else { return Ok(None) };
        // One that another version wrote is shown without its parcel.
        if let Ok(entry) = Entry::read(&facts) {
            let name = self.parcel_key(entry.parcel_name.as_bytes());
            let (reply, _) = self.ask(Way::Shared, &self.key(key), redis::cmd("GET").arg(name)).await?;
            let value: Option<Vec<u8>> = read(reply)?;
            event.request = value.map(|value| entry.parcel(value)).transpose()?;
        }
        Ok(Some(event))
    }

    async fn get_without_parcel(&self, key: &EventKey) -> Result<Option<(QueuedEvent, Vec<u8>)>, Fault> {
        self.check_slot()?;
        let key = self.key(key);
        let (reply, _) = self.run(Way::Shared, &scripts::GET.call(&key, &[self.prefix.as_bytes()])).await?;
        let found: Option<Whole> = read(reply)?;
        let Some((record, key, event_type, received, facts, failures)) = found else { return Ok(None) };
        let mut event = kept(&key, &event_type, &received, &record)?;
        event.failures = failures.map(|log| log::read(&String::from_utf8_lossy(&log))).unwrap_or_default();
        Ok(Some((event, facts)))
    }

    pub(super) async fn change(&self, filter: &Filter, change: Change) -> Result<Changed, Fault> {
        let mut all = Changed::default();
        match change {
            Change::Requeue { completed_too } => {
                let letters = [if completed_too { "fc" } else { "f" }];
                let add = |(events, without_body): (u64, u64)| {
                    (all.events, all.without_body) = (all.events + events, all.without_body + without_body);
                };
                self.run_over(filter, change.states(), &scripts::REQUEUE, &letters, named_anew, add).await?;
            }
            Change::Discard { retention } => {
                let (retention, bodies) = self.kept_for(retention);
                let (arguments, add) = ([&*retention, &bodies, DISCARDED], |count: u64| all.events += count);
                self.run_over(filter, change.states(), &scripts::DISCARD, &arguments, named_anew, add).await?;
            }
            Change::Forget => {
                let add = |count: u64| all.events += count;
                self.run_over(filter, change.states(), &scripts::FORGET, &[], named, add).await?;
            }
        }
        self.listener.tell();
        Ok(all)
    }

    pub(super) async fn waiting(&self, up_to: u64) -> Result<u64, Fault> {
        let waiting: i64 = read(self.ask_inbox(&scripts::WAITING).await?)?;
        Ok(waiting.max(0).cast_unsigned().min(up_to))
    }

    pub(super) async fn counts(&self) -> Result<QueueCounts, Fault> {
        let (waiting, running, completed, dead, oldest, _): Counted = read(self.ask_inbox(&scripts::COUNTS).await?)?;
        let oldest_waiting =
            oldest.map(|received| SystemTime::now().duration_since(from_unix_millis(received)).unwrap_or_default());
        Ok(QueueCounts { waiting: waiting.max(0).cast_unsigned(), running, completed, dead, oldest_waiting })
    }

    /// Some events behind an arrival, and the last that was looked at, unless there are no more.
    async fn browse(
        &self,
        state: Option<EventState>,
        after: Option<&str>,
    ) -> Result<(Vec<QueuedEvent>, Option<String>), Fault> {
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
        // One that cannot be read must not hide the others.
        let some =
            rows.iter().filter_map(|(key, event_type, received, record)| kept(key, event_type, received, record).ok());
        Ok((some.collect(), last))
    }

    /// Changes all events that match and are in one of these states, some at a time, and tells what came of each script. It looks
    /// again: what was changed meanwhile is left alone.
    async fn run_over<T: FromRedisValue>(
        &self,
        filter: &Filter,
        states: &[EventState],
        script: &Script,
        arguments: &[&str],
        name: impl Fn(&QueuedEvent) -> Vec<String>,
        mut tell: impl FnMut(T),
    ) -> Result<(), Fault> {
        let events = self.events()?;
        // What is requeued may have died again before the last page: those that arrive from now on are left alone.
        let (.., newest): Counted = read(self.ask_inbox(&scripts::COUNTS).await?)?;
        let Some(newest) = newest else { return Ok(()) };
        for state in states {
            if filter.state.is_some_and(|wanted| wanted != *state) {
                continue;
            }
            let filter = filter.clone().state(*state);
            let mut page = Page::first(CHANGED);
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
                let (reply, _) = self.run(Way::Once, &script.call(&events, &all)).await?;
                tell(read(reply)?);
            }
        }
        Ok(())
    }

    async fn ask_inbox(&self, script: &Script) -> Result<Value, Fault> {
        let (reply, _) = self.run(Way::Shared, &script.call(&self.events()?, &[self.prefix.as_bytes()])).await?;
        Ok(reply)
    }
}

fn named(event: &QueuedEvent) -> Vec<String> {
    vec![event.key.to_string(), event.arrival.to_string()]
}

/// With a token that nobody has.
fn named_anew(event: &QueuedEvent) -> Vec<String> {
    [named(event), vec![record::token(ClaimToken::random())]].concat()
}

fn listed(event: QueuedEvent) -> QueuedEvent {
    QueuedEvent { failures: Vec::new(), ..event }
}
