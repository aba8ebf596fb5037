//! Leases whose reply is lost, late or not received: the server has leased events, and no worker knows of them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::DedicatedConnection;
use super::settle_batch::SettleBatch;
use super::settlement::SettleItem;
use super::statements::{Statements, statement};
use super::values::{event_key, milliseconds, token};
use crate::lock::lock;
use crate::store::ClaimToken;
use crate::store::batcher::Batcher;
use crate::store::in_transit::Releaser;
use crate::store::queue::Leased;

/// The first pause between two looks, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// How long events are searched for that are not found.
const LONGEST_SEARCH: Duration = Duration::from_secs(60);

/// How long one look may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Widens the range of lease ends in which a search looks. This process measures how long ago the lease was asked for,
/// and the server's clock may measure a little more.
const SLACK: Duration = Duration::from_secs(1);

/// Searches for the events of lost leases, and releases them.
#[derive(Clone)]
pub(super) struct LostLeases {
    shared: Arc<Shared>,
}

struct Shared {
    connection: Arc<DedicatedConnection>,
    find_leased_sql: Arc<str>,
    settlements: Batcher<SettleBatch>,
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
    /// Events were found, and their release was asked for.
    found: bool,
    /// The server has answered a look.
    looked: bool,
}

impl LostLeases {
    pub(super) fn new(
        connection: Arc<DedicatedConnection>,
        statements: &Statements,
        settlements: Batcher<SettleBatch>,
    ) -> Self {
        let (find_leased_sql, searches) = (statements.text("find_leased"), Mutex::default());
        Self { shared: Arc::new(Shared { connection, find_leased_sql, settlements, searches }) }
    }

    /// Searches in the background for events that are leased under these tokens.
    pub(super) fn search_later(&self, tokens: Vec<ClaimToken>, asked_at: Instant, lease: Duration) {
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

/// A lease whose events are dropped on their way to the worker.
pub(super) struct DroppedLease {
    pub(super) lost_leases: LostLeases,
    pub(super) asked_at: Instant,
    pub(super) lease: Duration,
}

impl Releaser for DroppedLease {
    fn release(&self, events: Vec<Leased>) {
        for event in &events {
            self.lost_leases.shared.settlements.tell(SettleItem::release(&event.key, event.token));
        }
        // If a release fails, the search repeats it.
        let tokens = events.iter().map(|event| event.token).collect();
        self.lost_leases.open(Search {
            tokens,
            asked_at: self.asked_at,
            lease: self.lease,
            found: true,
            looked: false,
        });
    }
}

impl Shared {
    fn searches(&self) -> MutexGuard<'_, Searches> {
        lock(&self.searches)
    }

    /// Looks until every event that was found is released, or its lease has ended by itself. A statement that is under
    /// way may take effect after the first look.
    async fn search(self: Arc<Self>) {
        let mut task = SearchTask { shared: &self, ended: false };
        let [mut pause, longest] = PAUSES;
        loop {
            let open: Vec<Search> = {
                let mut searches = self.searches();
                searches.open.retain(Search::goes_on);
                searches.under_way = !searches.open.is_empty();
                searches.open.clone()
            };
            if open.is_empty() {
                task.ended = true;
                return;
            }
            for search in open {
                if let Some(found) = self.release_found(&search).await {
                    self.note(&search, found);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Releases the events of a lease that are found. Returns whether there were any, if the server answers.
    async fn release_found(&self, search: &Search) -> Option<bool> {
        let query = || {
            statement(&self.find_leased_sql)
                .bind(search.tokens.iter().map(|token| token.as_bytes().to_vec()).collect::<Vec<_>>())
                .bind(milliseconds(search.lease))
                .bind(milliseconds(search.asked_at.elapsed() + SLACK))
        };
        let rows = self.connection.fetch_all(Instant::now() + DEADLINE, query).await.ok()?;
        for row in &rows {
            if let (Ok(key), Ok(token)) = (event_key(row), token(row, "token")) {
                self.settlements.tell(SettleItem::release(&key, token));
            }
        }
        Some(!rows.is_empty())
    }

    /// Notes the outcome of a look. Events that were found before, and are not found any more, are released.
    fn note(&self, looked: &Search, found: bool) {
        let mut searches = self.searches();
        searches.open.retain(|search| search.tokens != looked.tokens || found || !search.found);
        for search in searches.open.iter_mut().filter(|search| search.tokens == looked.tokens) {
            (search.found, search.looked) = (search.found || found, true);
        }
    }
}

impl Search {
    /// A search ends when the lease has ended by itself. If the server has answered and there is nothing for long
    /// enough, the statement never reached it.
    fn goes_on(&self) -> bool {
        let since = self.asked_at.elapsed();
        since < self.lease && (self.found || !self.looked || since < LONGEST_SEARCH)
    }
}

/// The task that searches. If it is dropped half-way, as its runtime is, it is not under way any more.
struct SearchTask<'a> {
    shared: &'a Shared,
    ended: bool,
}

impl Drop for SearchTask<'_> {
    fn drop(&mut self) {
        // After an orderly end, another task may be running by now.
        if !self.ended {
            self.shared.searches().under_way = false;
        }
    }
}
