//! A connection breaks under a verb: what may be carried out twice is asked again on another, and renewals are not.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tower_webhook::queue::{Change, Filter, LeaseRequest, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store, StoreErrorKind};

use crate::redis::fixture::pool_of;
use crate::redis::receiver::{eventually, key};
use crate::support::logs::Logs;
use crate::support::proxy::{Proxy, Weather};
use crate::support::servers::redis::RedisServer;

const LEASE: Duration = Duration::from_secs(30);
const BROKE: &str = "a connection to Redis broke";

/// One connection, and time enough for a busy machine.
fn store_at(address: SocketAddr) -> RedisStore {
    let pool = pool_of(&format!("redis://{address}/"));
    RedisStore::builder(pool).connections(1).timeout(Duration::from_secs(60)).build()
}

/// A proxy that numbers its connections, from 1, and closes some of them.
struct Numbered {
    address: SocketAddr,
    made: watch::Receiver<usize>,
    /// How many have ended.
    ended: watch::Receiver<usize>,
    state: watch::Sender<State>,
    accepting: AbortHandle,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The connections up to this one are closed.
    closed: usize,
    /// Those that are made from now on lead nowhere until they are closed.
    leads_nowhere: bool,
}

impl Numbered {
    async fn before(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (made, ends, state) = (watch::Sender::new(0), watch::Sender::new(0), watch::Sender::new(State::default()));
        let (count, ended, states) = (made.subscribe(), ends.subscribe(), state.subscribe());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                made.send_modify(|made| *made += 1);
                let (number, ends, states) = (*made.borrow(), ends.clone(), states.clone());
                tokio::spawn(async move {
                    pass(number, client, upstream, states).await;
                    ends.send_modify(|ended| *ended += 1);
                });
            }
        });
        Self { address, made: count, ended, state, accepting: accepting.abort_handle() }
    }

    fn made(&self) -> usize {
        *self.made.borrow()
    }

    /// Closes all connections that there are, and is ready when they are closed.
    async fn cut(&self) {
        let (made, mut ended) = (self.made(), self.ended.clone());
        self.state.send_modify(|state| state.closed = made);
        drop(ended.wait_for(|ended| *ended >= made).await.expect("the proxy lives"));
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(number: usize, mut client: TcpStream, upstream: SocketAddr, mut states: watch::Receiver<State>) {
    let leads_nowhere = states.borrow().leads_nowhere;
    let passing = async {
        if leads_nowhere {
            return std::future::pending().await;
        }
        let mut server = TcpStream::connect(upstream).await.expect("a server");
        let _ = copy_bidirectional(&mut client, &mut server).await;
    };
    tokio::select! {
        () = passing => {}
        _ = states.wait_for(|state| state.closed >= number) => {}
    }
}

#[tokio::test]
async fn claim_completion_and_release_are_asked_again_on_one_fresh_connection() {
    let server = RedisServer::start();
    let proxy = Numbered::before(server.address()).await;
    let store = store_at(proxy.address);
    let (one, other) = (key("evt_1"), key("evt_2"));
    let completed = ClaimRequest::new(&one, ClaimToken::random(), LEASE);
    let released = ClaimRequest::new(&other, ClaimToken::random(), LEASE);
    assert!(matches!(store.claim(&released).await, Ok(Claim::Fresh { .. })));
    let (logs, _listening) = Logs::capture();
    proxy.cut().await;
    assert!(matches!(store.claim(&completed).await, Ok(Claim::Fresh { .. })));
    assert_eq!(logs.count(BROKE), 1);
    proxy.cut().await;
    let completion = Completion::succeeded("OK", LEASE);
    assert_eq!(store.complete(&completed, &completion).await.expect("an answer"), Hold::Held);
    assert_eq!(logs.count(BROKE), 2);
    proxy.cut().await;
    assert_eq!(store.release(&other, released.token).await.expect("an answer"), Hold::Held);
    assert_eq!(logs.count(BROKE), 3, "each was asked twice");
    // Two claims and a completion.
    let stats = server.command(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_set:calls=3,"), "none was carried out twice: {stats}");
}

/// The store is about to replace its connection when that breaks. The new one breaks before it is there, too.
#[tokio::test]
async fn attempt_to_connect_that_began_before_the_break_is_not_the_last() {
    let server = RedisServer::start();
    let proxy = Numbered::before(server.address()).await;
    let store = store_at(proxy.address);
    let event = key("evt_1");
    let claim = ClaimRequest::new(&event, ClaimToken::random(), LEASE);
    assert!(matches!(store.claim(&claim).await, Ok(Claim::Fresh { .. })));
    // A server that is no longer the primary is one to be replaced.
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    proxy.state.send_modify(|state| state.leads_nowhere = true);
    eventually("another connection is begun", async || {
        let released = store.release(&event, claim.token).await;
        assert_eq!(released.expect_err("it takes no writes").kind(), StoreErrorKind::Unavailable);
        proxy.made() == 2
    })
    .await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    let (logs, _listening) = Logs::capture();
    proxy.state.send_modify(|state| *state = State { closed: 1, leads_nowhere: false });
    let breaking = async {
        eventually("the release finds the connection broken", async || logs.count(BROKE) == 1).await;
        proxy.cut().await;
    };
    let (released, ()) = tokio::join!(store.release(&event, claim.token), breaking);
    assert_eq!(released.expect("an answer"), Hold::Held);
    assert_eq!((logs.count(BROKE), server.keys().len()), (1, 0));
}

/// The client gives up a connection after a second. The store has more time.
#[tokio::test]
async fn attempt_to_connect_that_takes_too_long_is_repeated_while_there_is_time() {
    let server = RedisServer::start();
    let proxy = Numbered::before(server.address()).await;
    let store = store_at(proxy.address);
    proxy.state.send_modify(|state| state.leads_nowhere = true);
    let recovering = async {
        eventually("the first attempt hangs", async || proxy.made() == 1).await;
        proxy.state.send_modify(|state| state.leads_nowhere = false);
    };
    let event = key("evt_1");
    let claim = ClaimRequest::new(&event, ClaimToken::random(), LEASE);
    let (claimed, ()) = tokio::join!(store.claim(&claim), recovering);
    assert!(matches!(claimed, Ok(Claim::Fresh { .. })), "{claimed:?}");
}

/// One that is repeated could follow the release, and bring the claim back.
#[tokio::test]
async fn renewal_is_not_repeated_when_the_connection_breaks() {
    let server = RedisServer::start();
    let proxy = Numbered::before(server.address()).await;
    let store = store_at(proxy.address);
    let event = key("evt_1");
    let claim = ClaimRequest::new(&event, ClaimToken::random(), LEASE);
    assert!(matches!(store.claim(&claim).await, Ok(Claim::Fresh { .. })));
    proxy.cut().await;
    assert_eq!(store.renew(&claim).await.expect_err("a broken connection").kind(), StoreErrorKind::Unavailable);
    assert_eq!(proxy.made(), 1, "it is not even connected again for it");
    assert_eq!(store.renew(&claim).await.expect("an answer"), Hold::Held, "the next one is another question");
}

/// The server has carried it out, and its reply is lost with the connection.
#[tokio::test]
async fn renewal_whose_reply_is_lost_does_not_bring_a_released_claim_back() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.address()).await;
    let store = store_at(proxy.address);
    let event = key("evt_1");
    let claim = ClaimRequest::new(&event, ClaimToken::random(), LEASE);
    assert!(matches!(store.claim(&claim).await, Ok(Claim::Fresh { .. })));
    server.command(&["CONFIG", "RESETSTAT"]);
    proxy.set(Weather::SwallowReplies);
    let releasing = async {
        server_has_run(&server, "eval").await;
        server.command(&["DEL", &format!("tower-webhook:{event}")]);
        proxy.cut();
    };
    let (renewed, ()) = tokio::join!(store.renew(&claim), releasing);
    assert_eq!(renewed.expect_err("a broken connection").kind(), StoreErrorKind::Unavailable);
    assert_eq!(store.release(&event, claim.token).await.expect("an answer"), Hold::Held);
    assert_eq!(server.keys().len(), 0);
}

async fn server_has_run(server: &RedisServer, command: &str) {
    let name = format!("cmdstat_{command}:");
    eventually(command, async || server.command(&["INFO", "commandstats"]).contains(&name)).await;
}

/// Endings are asked again, since their tokens tell the server what it has done already. Renewals are not, as those of other claims.
#[tokio::test]
async fn endings_of_leased_events_are_asked_again_and_renewals_are_not() {
    let server = RedisServer::start();
    let proxy = Numbered::before(server.address()).await;
    let store = store_at(proxy.address);
    const IDS: [&str; 5] = ["bury", "complete", "release", "renew", "retry"];
    for id in IDS {
        enqueue(&store, id).await;
    }
    let leased = store.lease(&LeaseRequest::new(IDS.len(), LEASE)).await.expect("an answer");
    assert_eq!(leased.len(), IDS.len());
    for leased in &leased {
        let claim = leased.claim(LEASE);
        proxy.cut().await;
        let hold = match leased.key.id() {
            "bury" => store.bury(&claim, "hopeless").await,
            "complete" => store.complete(&claim, &Completion::succeeded("OK", LEASE)).await,
            "release" => store.release(&leased.key, leased.token).await,
            "retry" => store.retry(&claim, LEASE, "flaky").await,
            _ => {
                let made = proxy.made();
                let renewed = store.renew(&claim).await;
                assert_eq!(renewed.expect_err("a broken connection").kind(), StoreErrorKind::Unavailable);
                assert_eq!(proxy.made(), made, "it is not even connected again for it");
                store.peek(&claim).await.map(drop).expect("an answer");
                proxy.cut().await;
                let started = store.start(&claim).await;
                assert_eq!(started.expect_err("a broken connection").kind(), StoreErrorKind::Unavailable);
                continue;
            }
        };
        assert_eq!(hold.expect("an answer"), Hold::Held, "{}", leased.key);
    }
    let counts = store.counts().await.expect("an answer");
    assert_eq!((counts.waiting, counts.running, counts.completed, counts.dead), (2, 1, 1, 1));
}

/// The server carries an operator's verb out, and its reply is lost with the connection. Repeated, the verb would find nothing to do, and
/// report that nothing was done.
#[tokio::test(flavor = "multi_thread")]
async fn operators_verb_whose_reply_is_lost_is_an_error_and_not_a_count_of_none() {
    // How each script's own section begins: the store sends a script in full where the server does not know it.
    for (change, script) in [
        (Change::Requeue { completed_too: false }, "local requeued, without_body"),
        (Change::Discard { retention: LEASE }, "local discarded,"),
        (Change::Forget, "local forgotten,"),
    ] {
        let server = RedisServer::start();
        let proxy = Proxy::before(server.address()).await;
        let (store, other) = (store_at(proxy.address), store_at(server.address()));
        enqueue(&other, "evt_1").await;
        let leased = other.lease(&LeaseRequest::new(1, LEASE)).await.expect("an answer").remove(0);
        assert_eq!(other.bury(&leased.claim(LEASE), "hopeless").await.expect("an answer"), Hold::Held);
        proxy.set(Weather::SwallowRepliesFrom(script));
        let filter = Filter::all();
        let breaking = async {
            eventually("the server has carried it out", async || other.counts().await.expect("an answer").dead == 0)
                .await;
            proxy.cut();
        };
        let (changed, ()) = tokio::join!(store.change(&filter, change), breaking);
        assert_eq!(changed.expect_err("a broken connection").kind(), StoreErrorKind::Unavailable, "{change:?}");
        let again = store.change(&filter, change).await.expect("an answer");
        assert_eq!(again.events, 0, "{change:?} was made to all of them before");
    }
}

async fn enqueue(store: &RedisStore, id: &str) {
    let key = key(id);
    let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
    let request = StoredRequest::new("a head", "a body", UNIX_EPOCH);
    assert!(matches!(store.enqueue(&claim, &request).await, Ok(Claim::Fresh { .. })));
}
