//! The keys in each state of an event, as `docs/states.md` shows them.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Client, cmd};
use tower_webhook::queue::{Filter, LeaseRequest, Queue};
use tower_webhook::store::RedisStore;
use tower_webhook::testing::conformance::Harness;

use crate::redis::fixture::{Fixture, PATIENT, pool};
use crate::support::servers::redis::RedisServer;
use crate::support::states::{
    Found, INLINE, LEASE, Past, QUEUED, StateTable, bring_inline, bring_queued, key, lease, quoted,
};

/// What a record begins with under the key of the event.
const EVENT_KEY: &str = "event key";

/// A store under a prefix of its own, and a connection that sees its keys.
struct Prefixed {
    store: RedisStore,
    connection: MultiplexedConnection,
    prefix: String,
}

impl Prefixed {
    async fn new(server: &RedisServer, prefix: &str, past: Past) -> Self {
        let builder = RedisStore::builder(pool(server)).prefix(prefix).timeout(PATIENT);
        let store = match past.bodies() {
            Some(time) => builder.keep_completed_bodies(time).build(),
            None => builder.build(),
        };
        let client = Client::open(server.url()).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        Self { store, connection, prefix: prefix.to_owned() }
    }

    fn key(&self) -> String {
        [&*self.prefix, key().as_str()].concat()
    }

    async fn record(&self) -> Option<String> {
        let mut get = cmd("GET");
        get.arg(self.key()).query_async(&mut self.connection.clone()).await.expect("a record")
    }

    /// The record has the letters that the page quotes, and expires if the page says how long it lives.
    async fn check_record(&self, cell: &str) {
        let Some(record) = self.record().await else { return assert_eq!(cell, "–") };
        let mut letters = quoted(cell);
        assert_eq!(letters.next(), record.get(..1), "{record}");
        let mode = record.splitn(4, ' ').nth(3).and_then(|rest| rest.get(..1));
        if let Some(letter) = letters.next() {
            assert_eq!(Some(letter), mode, "{record}");
        }
        let left: i64 = cmd("PTTL").arg(self.key()).query_async(&mut self.connection.clone()).await.expect("a time");
        assert_eq!(left > 0, cell.contains("lives for"), "{record}");
    }

    /// The number of the event's arrival, and whether its request is kept.
    async fn arrival(&self) -> (u64, bool) {
        let event = self.store.get(&key()).await.expect("an answer").expect("the event");
        (event.arrival, event.request.is_some())
    }

    /// What the keys of the queue hold of this event.
    async fn found(&self, (arrival, has_request): (u64, bool)) -> Found {
        let number = format!("{arrival:019}");
        let id = format!("{}-{}", arrival / 1_000_000, arrival % 1_000_000);
        let pattern = format!("{}inbox:*", self.prefix);
        let mut connection = self.connection.clone();
        let keys: Vec<String> = cmd("KEYS").arg(&pattern).query_async(&mut connection).await.expect("the keys");
        let names =
            ["events", "due:", "types:", "endpoints:", "running", "completed", "dead", "order:", "applied", "failures"];
        let mut found: Found = names.map(|name| (name.to_owned(), None)).into();
        found.insert(EVENT_KEY.to_owned(), self.record().await.map(|_| String::new()));
        found.insert("request:".to_owned(), has_request.then(String::new));
        for key in keys {
            let name = &key[pattern.len() - 1..];
            let name = name.find(':').map_or(name, |colon| &name[..=colon]);
            let mut holds = match name {
                "events" => cmd("XRANGE").arg(&key).arg(&id).arg(&id).to_owned(),
                "applied" => cmd("HGET").arg(&key).arg(":account").to_owned(),
                "failures" => cmd("HGET").arg(&key).arg(&number).to_owned(),
                "types:" if !key.ends_with("/webhooks") => continue,
                "types:" => cmd("EXISTS").arg(&key).to_owned(),
                "endpoints:" => cmd("ZSCORE").arg(&key).arg("/webhooks").to_owned(),
                "request:" | "unsettled" => continue,
                _ => cmd("ZSCORE").arg(&key).arg(&number).to_owned(),
            };
            let holds = holds_anything(&mut holds, &mut connection).await;
            let entry = found.get_mut(name).unwrap_or_else(|| panic!("{key} is a key that the page has to name"));
            *entry = entry.take().or(holds.then(String::new));
        }
        found
    }
}

async fn holds_anything(command: &mut deadpool_redis::redis::Cmd, connection: &mut MultiplexedConnection) -> bool {
    use deadpool_redis::redis::Value;
    match command.query_async(connection).await.expect("an answer") {
        Value::Nil | Value::Int(0) => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_records_are_as_the_page_shows_them() {
    let (server, table) = (RedisServer::start(), StateTable::below("Redis, inline"));
    for state in INLINE {
        let prefixed = Prefixed::new(&server, &format!("{state}:"), Past::Bare).await;
        bring_inline(&prefixed.store, state, Some("invoice.paid")).await;
        prefixed.check_record(table.cell(EVENT_KEY, state)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_events_are_as_the_page_shows_them() {
    let (server, table) = (RedisServer::start(), StateTable::below("Redis, queued"));
    let clock = Fixture::new(pool(&server), std::slice::from_ref(&server), "states").await;
    let mut contradictions = Vec::new();
    for state in QUEUED {
        let mut records = Vec::new();
        for past in Past::ALL {
            let prefixed = Prefixed::new(&server, &format!("states.{state}.{past:?}:"), past).await;
            bring_queued(&prefixed.store, state, past).await;
            if state == "lapsed" {
                clock.pass(LEASE).await;
            }
            if state == "lapsed" && past == Past::Retried {
                notice_lapse(&prefixed.store).await;
            }
            prefixed.check_record(table.cell(EVENT_KEY, state)).await;
            records.push(prefixed.found(prefixed.arrival().await).await);
            if state == "lapsed" {
                assert!(lease(&prefixed.store).await.attempt > 1, "it is due");
            }
        }
        contradictions.extend(table.contradictions(state, &records));
    }
    assert!(contradictions.is_empty(), "{contradictions:#?}");
}

/// A lease notices which others have lapsed, although it is for another endpoint.
async fn notice_lapse(store: &RedisStore) {
    let endpoints = ["/others".into()];
    let mut request = LeaseRequest::new(1, LEASE);
    request.endpoints = &endpoints;
    assert!(store.lease(&request).await.expect("an answer").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn field_of_what_was_applied_is_as_the_page_shows_it() {
    let server = RedisServer::start();
    let prefixed = Prefixed::new(&server, "applied:", Past::Retried).await;
    bring_queued(&prefixed.store, "completed", Past::Retried).await;
    let (arrival, _) = prefixed.arrival().await;
    assert_eq!(prefixed.store.forget(&Filter::one(key())).await.expect("an answer"), 1);
    let records = [prefixed.found((arrival, false)).await];
    let contradictions = StateTable::below("Redis, queued").contradictions("`applied` field", &records);
    assert!(contradictions.is_empty(), "{contradictions:#?}");
}
