//! Random verbs: order and exclusion hold, and everything that was accepted ends, whatever the server refuses on the way.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tower_webhook::EventKey;
use tower_webhook::queue::{EventState, Filter, KindLimits, LeaseRequest, Leased, Order, Queue};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store};

use super::fixture::{LEASE, PREFIX, RETENTION, listed, store_on, stored_request};
use crate::redis::fixture::pool_of;
use crate::redis::receiver::eventually;
use crate::support::servers::redis::RedisServer;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// What should be true.
#[derive(Default)]
struct Model {
    accepted: usize,
    order_of: BTreeMap<EventKey, Option<String>>,
    /// Those of one order that have not ended.
    lines: BTreeMap<String, VecDeque<EventKey>>,
    held: BTreeMap<EventKey, Leased>,
    dead: Vec<EventKey>,
}

impl Model {
    fn next(&mut self, random: &mut Random) -> (EventKey, String, Option<String>) {
        let endpoint = ["/a", "/b"][random.below(2)];
        let key = EventKey::new(endpoint, None, &format!("evt_{}", self.accepted));
        self.accepted += 1;
        let order = (random.below(10) < 7).then(|| format!("resource {}", random.below(5)));
        (key, format!("type {}", random.below(3)), order)
    }

    fn arrives(&mut self, key: EventKey, order: Option<String>) {
        if let Some(order) = &order {
            self.lines.entry(order.clone()).or_default().push_back(key.clone());
        }
        self.order_of.insert(key, order);
    }

    fn is_leased(&mut self, leased: Leased) {
        assert!(!self.held.contains_key(&leased.key), "{} is leased twice", leased.key);
        if let Some(order) = &self.order_of[&leased.key] {
            assert_eq!(self.lines[order].front(), Some(&leased.key), "out of order");
        }
        self.held.insert(leased.key.clone(), leased);
    }

    fn ends(&mut self, key: &EventKey) {
        if let Some(order) = &self.order_of[key] {
            self.lines.get_mut(order).expect("a line").retain(|other| other != key);
        }
    }

    fn any_held(&mut self, random: &mut Random) -> Option<Leased> {
        let key = self.held.keys().nth(random.below(self.held.len().max(1)))?.clone();
        self.held.remove(&key)
    }
}

async fn accept(store: &RedisStore, key: &EventKey, event_type: &str, order: Option<&String>) -> Option<Claim> {
    let claim = ClaimRequest::new(key, ClaimToken::random(), LEASE).event_type(Some(event_type));
    let stored_request = stored_request(key.id());
    let stored_request =
        order.map_or(stored_request.clone(), |order| stored_request.ordered(Order::of(order.as_str())));
    store.enqueue(&claim, &stored_request).await.ok()
}

async fn lease(store: &RedisStore, random: &mut Random, lease: Duration) -> Option<Vec<Leased>> {
    let (endpoints, limits) = ([["/a", "/b"][random.below(2)].into()], KindLimits::new(1).with("type 1", 0));
    let mut request = LeaseRequest::new([1, 3, 10][random.below(3)], lease);
    if random.below(3) == 0 {
        request.endpoints = &endpoints;
    }
    if random.below(3) == 0 {
        request.per_type = Some(&limits);
    }
    store.lease(&request).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_one_order_run_one_at_a_time_whatever_happens_to_them() {
    let server = RedisServer::start();
    let store = store_on(&server);
    let (mut random, mut model) = (Random(9), Model::default());
    let done = Completion::succeeded("OK", RETENTION);
    let long = Duration::from_secs(3600);
    for _ in 0..2500 {
        match random.below(20) {
            0..6 => {
                let (key, event_type, order) = model.next(&mut random);
                let claim = accept(&store, &key, &event_type, order.as_ref()).await;
                assert!(matches!(claim, Some(Claim::Fresh { .. })), "{claim:?}");
                model.arrives(key, order);
            }
            6..11 => {
                let leased = lease(&store, &mut random, long).await.expect("an answer");
                leased.into_iter().for_each(|leased| model.is_leased(leased));
            }
            verb @ 11..18 => {
                let Some(leased) = model.any_held(&mut random) else { continue };
                let claim = leased.claim(long);
                let hold = match verb {
                    11..15 => store.complete(&claim, &done).await,
                    15 => store.bury(&claim, "hopeless").await,
                    16 => store.release(&leased.key, leased.token).await,
                    _ => store.retry(&claim, Duration::from_millis(random.below(10) as u64), "flaky").await,
                };
                assert_eq!(hold.expect("an answer"), Hold::Held);
                if verb < 16 {
                    model.ends(&leased.key);
                }
                if verb == 15 {
                    model.dead.push(leased.key);
                }
            }
            18 => {
                let Some(key) = model.dead.pop() else { continue };
                let requeued = store.requeue(&Filter::one(key.clone()), false).await.expect("an answer");
                assert_eq!(requeued.events, 1);
                let order = model.order_of[&key].clone();
                model.arrives(key, order);
            }
            _ => {
                let waiting = listed(&store, &Filter::all().state(EventState::Waiting)).await;
                let all: Vec<_> =
                    model.order_of.keys().filter(|key| waiting.iter().any(|id| id == key.id())).cloned().collect();
                let Some(key) = all.get(random.below(all.len().max(1))) else { continue };
                assert_eq!(store.discard(&Filter::one(key.clone()), RETENTION).await.expect("an answer"), 1);
                model.ends(key);
            }
        }
    }
    let ended = std::sync::Mutex::new(model);
    eventually("everything has ended", async || {
        let leased = store.lease(&LeaseRequest::new(50, long)).await.expect("an answer");
        let held = {
            let mut model = ended.lock().expect("no panic");
            leased.into_iter().for_each(|leased| model.is_leased(leased));
            std::mem::take(&mut model.held)
        };
        for leased in held.values() {
            assert_eq!(store.complete(&leased.claim(long), &done).await.expect("an answer"), Hold::Held);
            ended.lock().expect("no panic").ends(&leased.key);
        }
        let counts = store.counts().await.expect("an answer");
        counts.waiting + counts.running == 0
    })
    .await;
    let model = ended.into_inner().expect("no panic");
    assert_eq!(listed(&store, &Filter::all()).await.len(), model.accepted);
    assert_eq!(listed(&store, &Filter::all().state(EventState::Dead)).await.len(), model.dead.len());
    store.forget(&Filter::all()).await.expect("an answer");
    assert_eq!(server.keys(), Vec::<String>::new());
}

/// Every now and then one command, for as long as one verb takes. Leases are short, so that what was leased and not told lapses.
#[tokio::test(flavor = "multi_thread")]
async fn everything_ends_whatever_the_server_refuses_meanwhile() {
    const COMMANDS: [&str; 16] = [
        "set",
        "get",
        "zadd",
        "zrem",
        "zrange",
        "zscore",
        "zrangebyscore",
        "xadd",
        "xdel",
        "xrange",
        "xrevrange",
        "hset",
        "hget",
        "hdel",
        "pexpire",
        "persist",
    ];
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"]);
    let url = format!("redis://weak:pw@{}/", server.address());
    let store = RedisStore::builder(pool_of(&url)).prefix(PREFIX).timeout(Duration::from_secs(10)).build();
    let (mut random, mut model) = (Random(4), Model::default());
    let (done, short) = (Completion::succeeded("OK", RETENTION), Duration::from_millis(20));
    let (mut acknowledged, mut failures) = (Vec::new(), 0);
    for _ in 0..1500 {
        let refused = (random.below(4) == 0).then(|| COMMANDS[random.below(COMMANDS.len())]);
        let rule = |sign: &str| {
            refused.map(|command| server.command(&["ACL", "SETUSER", "weak", &format!("{sign}{command}")]))
        };
        rule("-");
        let is_done = match random.below(20) {
            0..6 => {
                let (key, event_type, order) = model.next(&mut random);
                let claim = accept(&store, &key, &event_type, order.as_ref()).await;
                if claim.is_some() {
                    acknowledged.push(key);
                }
                claim.is_some()
            }
            6..12 => match lease(&store, &mut random, short).await {
                Some(leased) => {
                    leased.into_iter().for_each(|leased| _ = model.held.insert(leased.key.clone(), leased));
                    true
                }
                None => false,
            },
            verb @ 12..18 => {
                let Some(leased) = model.any_held(&mut random) else { continue };
                let claim = leased.claim(short);
                let hold = match verb {
                    12 | 13 => store.complete(&claim, &done).await,
                    14 => store.bury(&claim, "hopeless").await,
                    15 => store.release(&leased.key, leased.token).await,
                    16 => store.renew(&claim).await,
                    _ => store.retry(&claim, Duration::from_millis(random.below(10) as u64), "flaky").await,
                };
                hold.is_ok()
            }
            18 => store.requeue(&Filter::all(), false).await.is_ok(),
            _ => {
                let Some(key) = acknowledged.get(random.below(acknowledged.len().max(1))) else { continue };
                store.discard(&Filter::one(key.clone()), RETENTION).await.is_ok()
            }
        };
        failures += usize::from(!is_done);
        rule("+");
    }
    assert!(failures > 50, "{failures} verbs failed");
    let strong = store_on(&server);
    eventually("everything has ended", async || {
        for leased in strong.lease(&LeaseRequest::new(50, LEASE)).await.expect("an answer") {
            assert_eq!(strong.complete(&leased.claim(LEASE), &done).await.expect("an answer"), Hold::Held);
        }
        let counts = strong.counts().await.expect("an answer");
        counts.waiting + counts.running == 0
    })
    .await;
    for key in &acknowledged {
        let kept = strong.get(key).await.expect("an answer").unwrap_or_else(|| panic!("{key} is lost"));
        assert!(matches!(kept.state, EventState::Completed | EventState::Dead), "{key}: {:?}", kept.state);
    }
    let counts = strong.counts().await.expect("an answer");
    let all = listed(&strong, &Filter::all()).await.len() as u64;
    assert_eq!(all, counts.completed + counts.dead);
    assert_eq!(listed(&strong, &Filter::all().state(EventState::Dead)).await.len() as u64, counts.dead);
    strong.forget(&Filter::all()).await.expect("an answer");
    eventually("nothing is left", async || {
        assert!(strong.lease(&LeaseRequest::new(50, LEASE)).await.expect("an answer").is_empty());
        server.keys().is_empty()
    })
    .await;
}
