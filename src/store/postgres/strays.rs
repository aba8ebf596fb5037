use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::Instant;

use super::lane::Lane;
use super::schema::Statements;
use super::settle::Settle;
use super::settles::Settles;
use super::text::milliseconds;
use crate::EventKey;
use crate::store::ClaimToken;
use crate::store::batcher::Batcher;
use crate::store::in_transit::PutBack;
use crate::store::queue::Leased;

/// Between two looks, at first; and at the most.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// For how long it is looked for events that are not there.
const LONGEST_SEARCH: Duration = Duration::from_secs(60);

/// How long a look may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Added to the time since a lease was asked for: clocks of two machines run at about the same speed.
const SLACK: Duration = Duration::from_secs(1);

/// Puts back events of leases whose answer never came, or came too late, or was not heard: nobody knows that they are leased.
#[derive(Clone)]
pub(super) struct Strays {
    shared: Arc<Shared>,
}

struct Shared {
    lane: Arc<Lane>,
    sql: Arc<str>,
    settles: Batcher<Settles>,
    searches: Mutex<Searches>,
}

#[derive(Default)]
struct Searches {
    open: Vec<Search>,
    under_way: bool,
}

/// A lease whose outcome is not known.
#[derive(Clone)]
struct Search {
    tokens: Vec<ClaimToken>,
    asked_at: Instant,
    lease: Duration,
    /// There are events, and they were told to be put back.
    found: bool,
    /// The server was asked, and answered.
    looked: bool,
}

impl Strays {
    pub(super) fn new(lane: Arc<Lane>, statements: &Statements, settles: Batcher<Settles>) -> Self {
        let (sql, searches) = (statements.strays.clone(), Mutex::default());
        Self { shared: Arc::new(Shared { lane, sql, settles, searches }) }
    }

    /// Events may be leased under these tokens, and nobody knows of any.
    pub(super) fn search(&self, tokens: Vec<ClaimToken>, asked_at: Instant, lease: Duration) {
        self.open(Search { tokens, asked_at, lease, found: false, looked: false });
    }

    fn open(&self, search: Search) {
        let mut searches = self.shared.searches();
        searches.open.push(search);
        if !searches.under_way {
            searches.under_way = true;
            drop(searches);
            tokio::spawn(self.shared.clone().search());
        }
    }
}

/// Where the events of one lease are put back, if nobody takes them.
pub(super) struct Returns {
    pub(super) strays: Strays,
    pub(super) asked_at: Instant,
    pub(super) lease: Duration,
}

impl PutBack for Returns {
    fn put_back(&self, events: Vec<Leased>) {
        for event in &events {
            self.strays.shared.settles.tell(Settle::release(&event.key, event.token));
        }
        // If that fails, it is told again.
        let tokens = events.iter().map(|event| event.token).collect();
        self.strays.open(Search { tokens, asked_at: self.asked_at, lease: self.lease, found: true, looked: false });
    }
}

impl Shared {
    fn searches(&self) -> MutexGuard<'_, Searches> {
        self.searches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until every event that was found is put back, or its lease has ended by itself. A statement that is under way may
    /// take effect later than it is first looked.
    async fn search(self: Arc<Self>) {
        let mut task = Task { shared: &self, ended: false };
        let [mut pause, longest] = PAUSES;
        loop {
            let open: Vec<Search> = {
                let mut searches = self.searches();
                searches.open.retain(Search::is_worth_a_look);
                searches.under_way = !searches.open.is_empty();
                searches.open.clone()
            };
            if open.is_empty() {
                task.ended = true;
                return;
            }
            for search in open {
                if let Some(found) = self.look(&search).await {
                    self.note(&search, found);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Puts back what is there of a lease; whether there was something, if it is known.
    async fn look(&self, search: &Search) -> Option<bool> {
        let query = || {
            sqlx::query(AssertSqlSafe(self.sql.clone()))
                .bind(search.tokens.iter().map(|token| token.as_bytes().to_vec()).collect::<Vec<_>>())
                .bind(milliseconds(search.lease))
                .bind(milliseconds(search.asked_at.elapsed() + SLACK))
        };
        let rows = self.lane.run_until(Instant::now() + DEADLINE, query).await.ok()?;
        for row in &rows {
            let key = row.try_get("key").ok().and_then(EventKey::parse);
            if let (Some(key), Ok(token)) = (key, row.try_get("token")) {
                self.settles.tell(Settle::release(&key, ClaimToken::from_bytes(token)));
            }
        }
        Some(!rows.is_empty())
    }

    /// What was found before, and is not there any more, is put back.
    fn note(&self, seen: &Search, found: bool) {
        let mut searches = self.searches();
        searches.open.retain(|search| search.tokens != seen.tokens || found || !search.found);
        for search in searches.open.iter_mut().filter(|search| search.tokens == seen.tokens) {
            (search.found, search.looked) = (search.found || found, true);
        }
    }
}

impl Search {
    /// Until the lease has ended by itself. If the server can be asked and there is nothing, the statement never reached it.
    fn is_worth_a_look(&self) -> bool {
        let since = self.asked_at.elapsed();
        since < self.lease && (self.found || !self.looked || since < LONGEST_SEARCH)
    }
}

/// The task that looks. Dropped half-way, as its runtime is, it is not under way any more.
struct Task<'a> {
    shared: &'a Shared,
    ended: bool,
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        // Ended in order, another task may be under way by now.
        if !self.ended {
            self.shared.searches().under_way = false;
        }
    }
}
