use std::time::SystemTime;

use deadpool_redis::redis::{self, FromRedisValue};

use super::client::{Client, Mode, Reply};
use super::entry::{Entry, queued_event};
use super::error::Result;
use super::queue::RedisQueue;
use super::record;
use super::scripts::{self, Script};
use crate::EventKey;
use crate::clock::from_unix_millis;
use crate::store::ClaimToken;
use crate::store::queue::{Change, Changed, DISCARDED, EventState, Filter, Page, QueueCounts, QueuedEvent, log};

/// How many events one script looks at, and how many it changes.
const AT_ONCE: usize = 100;
const CHANGED: usize = 50;

/// Key, type, time of receipt, and record.
type Row = (String, String, String, Vec<u8>);

/// Record, key, type, time of receipt, entry, and the failed attempts.
type Details = (Vec<u8>, String, String, String, Vec<u8>, Option<Vec<u8>>);

/// How many are waiting, running, completed and dead, when the oldest due event was received, in milliseconds since
/// 1970, and the last arrival.
type Counted = (i64, u64, u64, u64, Option<i64>, Option<u64>);

pub(super) async fn list(client: &Client, filter: &Filter, page: &Page) -> Result<Vec<QueuedEvent>> {
    if let Some(key) = &filter.key {
        let found = get_without_request(client, key).await?.map(|(event, _)| event);
        let found = found.filter(|event| filter.matches(event));
        let found = found.filter(|event| page.after.is_none_or(|last| event.arrival > last) && page.limit > 0);
        return Ok(found.into_iter().map(|event| QueuedEvent { failures: Vec::new(), ..event }).collect());
    }
    let mut events = Vec::new();
    let mut after = page.after.map(|last| format!("{last:019}"));
    while events.len() < page.limit {
        let (some, last) = browse(client, filter.state, after.as_deref()).await?;
        events.extend(some.into_iter().filter(|event| filter.matches(event)));
        if last.is_none() {
            break;
        }
        after = last;
    }
    events.truncate(page.limit);
    Ok(events)
}

pub(super) async fn get(client: &Client, key: &EventKey) -> Result<Option<QueuedEvent>> {
    let Some((mut event, encoded)) = get_without_request(client, key).await? else { return Ok(None) };
    // An event that another version wrote is returned without its request.
    if let Ok(entry) = Entry::read(&encoded) {
        let name = client.request_key(entry.request_name.as_bytes());
        let reply = client.ask(Mode::Repeatable, &client.key(key), redis::cmd("GET").arg(name)).await?;
        let value: Option<Vec<u8>> = reply.read()?;
        event.request = value.map(|value| entry.read_request(value)).transpose()?;
    }
    Ok(Some(event))
}

async fn get_without_request(client: &Client, key: &EventKey) -> Result<Option<(QueuedEvent, Vec<u8>)>> {
    client.check_slot()?;
    let key = client.key(key);
    let reply = client.run(Mode::Repeatable, &scripts::GET, &key, &[&*client.prefix]).await?;
    let found: Option<Details> = reply.read()?;
    let Some((record, key, event_type, received, encoded, failures)) = found else { return Ok(None) };
    let mut event = queued_event(&key, &event_type, &received, &record)?;
    event.failures = failures.map(|log| log::read(&String::from_utf8_lossy(&log))).unwrap_or_default();
    Ok(Some((event, encoded)))
}

pub(super) async fn waiting(client: &Client, up_to: u64) -> Result<u64> {
    let waiting: i64 = run(client, &scripts::WAITING).await?.read()?;
    Ok(waiting.max(0).cast_unsigned().min(up_to))
}

pub(super) async fn counts(client: &Client) -> Result<QueueCounts> {
    let counted: Counted = run(client, &scripts::COUNTS).await?.read()?;
    let (waiting, running, completed, dead, oldest, _) = counted;
    let oldest_waiting =
        oldest.map(|received| SystemTime::now().duration_since(from_unix_millis(received)).unwrap_or_default());
    Ok(QueueCounts { waiting: waiting.max(0).cast_unsigned(), running, completed, dead, oldest_waiting })
}

pub(super) async fn change(queue: &RedisQueue, filter: &Filter, change: Change) -> Result<Changed> {
    let (client, states) = (&queue.client, change.states());
    let mut all = Changed::default();
    match change {
        Change::Requeue { completed_too } => {
            let letters = [if completed_too { "fc" } else { "f" }];
            let add = |(events, without_body): (u64, u64)| {
                (all.events, all.without_body) = (all.events + events, all.without_body + without_body);
            };
            change_all(client, filter, states, &scripts::REQUEUE, &letters, name_with_token, add).await?;
        }
        Change::Discard { retention } => {
            let [retention, of_body] = queue.retentions(retention);
            let arguments = [&*retention, &of_body, DISCARDED];
            let add = |count: u64| all.events += count;
            change_all(client, filter, states, &scripts::DISCARD, &arguments, name_with_token, add).await?;
        }
        Change::Forget => {
            let add = |count: u64| all.events += count;
            change_all(client, filter, states, &scripts::FORGET, &[], name, add).await?;
        }
    }
    queue.listener.notify();
    Ok(all)
}

/// Changes the events that match and are in one of these states, some at a time, and passes on the reply of each
/// script. The scripts check again: an event that was changed meanwhile is left alone.
async fn change_all<T: FromRedisValue>(
    client: &Client,
    filter: &Filter,
    states: &[EventState],
    script: &Script,
    arguments: &[&str],
    name: impl Fn(&QueuedEvent) -> Vec<String>,
    mut on_reply: impl FnMut(T),
) -> Result<()> {
    let stream = client.stream()?;
    // A requeued event may be dead again before the last page: those that arrive from now on are left alone.
    let (.., newest): Counted = run(client, &scripts::COUNTS).await?.read()?;
    let Some(newest) = newest else { return Ok(()) };
    for state in filter.states(states) {
        let filter = filter.clone().state(state);
        let mut page = Page::first(CHANGED);
        loop {
            let found = list(client, &filter, &page).await?;
            let Some(last) = found.last() else { break };
            page = page.after(last);
            let names: Vec<_> = found.iter().filter(|event| event.arrival <= newest).flat_map(&name).collect();
            if names.is_empty() {
                break;
            }
            let all = [&*client.prefix].into_iter().chain(arguments.iter().copied());
            let all: Vec<_> = all.chain(names.iter().map(String::as_str)).collect();
            on_reply(client.run(Mode::Once, script, &stream, &all).await?.read()?);
        }
    }
    Ok(())
}

/// Returns some events after an arrival, and the last one that was looked at, unless there are no more.
async fn browse(
    client: &Client,
    state: Option<EventState>,
    after: Option<&str>,
) -> Result<(Vec<QueuedEvent>, Option<String>)> {
    let which = match state {
        Some(EventState::Dead) => "dead",
        Some(EventState::Running) => "running",
        _ => "all",
    };
    let count = AT_ONCE.to_string();
    let arguments = [&*client.prefix, which, after.unwrap_or_default(), &count];
    let reply = client.run(Mode::Repeatable, &scripts::BROWSE, &client.stream()?, &arguments).await?;
    let (rows, last): (Vec<Row>, Option<String>) = reply.read()?;
    // An event that cannot be read must not hide the others.
    let events = rows
        .iter()
        .filter_map(|(key, event_type, received, record)| queued_event(key, event_type, received, record).ok());
    Ok((events.collect(), last))
}

async fn run(client: &Client, script: &Script) -> Result<Reply> {
    client.run(Mode::Repeatable, script, &client.stream()?, &[&*client.prefix]).await
}

fn name(event: &QueuedEvent) -> Vec<String> {
    vec![event.key.to_string(), event.arrival.to_string()]
}

/// With a token that no worker has.
fn name_with_token(event: &QueuedEvent) -> Vec<String> {
    [name(event), vec![record::token(ClaimToken::random())]].concat()
}
