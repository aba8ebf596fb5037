//! The store: each verb of the contracts, as a question to the batch that answers it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use xxhash_rust::xxh3::xxh3_64;

use super::backlog::{BacklogBatch, BacklogQuery, BacklogReply, PeekItem};
use super::claim_item::{ClaimItem, ClaimReply};
use super::claims::ClaimBatch;
use super::connector::Connector;
use super::housekeeping::Purge;
use super::lease::LeaseBatch;
use super::migrator::Migrator;
use super::operators::ChangedRows;
use super::scan_start::ScanStart;
use super::schema::Schema;
use super::settle_batch::SettleBatch;
use super::settlement::{SettleItem, SettleReply};
use super::statements::Statements;
use super::wake::{Listener, Notifier, Promoter};
use super::{PostgresStoreBuilder, operators};
use crate::EventKey;
use crate::store::batcher::Batcher;
use crate::store::queue::{
    Change, Changed, Filter, LeaseRequest, Leased, OwnedLeaseRequest, Page, Queue, QueueCounts, QueuedEvent,
    StoredRequest,
};
use crate::store::{
    Claim, ClaimRequest, Dialect, Ending, Enlistment, Hold, Store, StoreError, StoreErrorKind, StoreFuture,
};

/// While another transaction holds its row, a call is repeated after these pauses. The store's own statements have let
/// go of the row by the second time. A transaction that holds it longer than all pauses counts as its holder.
const PAUSES: [Duration; 7] = {
    let ms = Duration::from_millis;
    [ms(1), ms(2), ms(5), ms(10), ms(25), ms(50), ms(100)]
};

/// How many connections claims are spread over. A second one works while the first waits for the disk: a quarter more
/// claims, with 64 at once. Each key has one of them, so that its claims meet in one batch.
const CLAIM_CONNECTIONS: usize = 2;

/// Remembers events in a table of Postgres. See the [module](super) for how.
///
/// Clones share their connections.
///
/// ```no_run
/// use sqlx::PgPool;
/// use tower_webhook::store::PostgresStore;
/// use tower_webhook::{WebhookLayer, scheme};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = PgPool::connect("postgres://app@localhost/app").await?;
/// let store = PostgresStore::new(pool);
/// store.migrate().await?;
/// for warning in store.check().await?.warnings {
///     eprintln!("{warning}");
/// }
/// let layer = WebhookLayer::new(scheme::stripe("whsec_…")?, store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) connector: Connector,
    pub(super) statements: Statements,
    pub(super) schema: Schema,
    enlistment: Enlistment,
    claims: [Batcher<ClaimBatch>; CLAIM_CONNECTIONS],
    settlements: Batcher<SettleBatch>,
    leases: Batcher<LeaseBatch>,
    backlog: Batcher<BacklogBatch>,
    purge: Arc<Purge>,
    promoter: Promoter,
    notifier: Notifier,
    listener: Listener,
}

impl PostgresStore {
    /// A store in the table `webhook_events`.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self::builder(pool).build()
    }

    /// A store with another table, deadline or purge.
    pub fn builder(pool: PgPool) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(pool)
    }

    /// Brings the table to the schema of this release: creates it, or adds the columns and indexes that an earlier
    /// release did not know. Call it at every start. Any number of instances may call it at once, while others work.
    ///
    /// - The catalogue is read first. If nothing is missing, the table is not locked, nothing is written or logged, and
    ///   the role needs no right to change it.
    /// - Columns are added under a `lock_timeout` of 50 ms, again and again for up to a minute, so that claims do not
    ///   queue up behind a migration that waits for a handler's open transaction.
    /// - Indexes of an existing table are created `CONCURRENTLY`. That waits for open transactions, for however long
    ///   they take, and delays no claim. An index that an earlier try left `INVALID` is dropped first.
    /// - One instance migrates at a time. The others wait for it, however long it takes.
    /// - The number of the schema is appended to the table's comment. A table of a later release is left as it is.
    ///
    /// # Errors
    ///
    /// If the database cannot be reached, the schema does not exist, the role may not make a change that is missing, or
    /// other transactions hold the table for longer than a minute.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Ok(Migrator::run(&self.shared.schema, &self.shared.connector).await?)
    }

    /// All statements that make the table, for teams that run their own migrations. Each can be repeated. On a table
    /// that is in use, add `CONCURRENTLY` to those that create indexes: without it they lock the table, even if the
    /// index is there.
    #[must_use]
    pub fn schema_sql(&self) -> &str {
        &self.shared.schema.sql
    }

    /// Deletes the rows whose retention is over, in small batches, and returns how many they were. Also removes bodies
    /// whose [retention](PostgresStoreBuilder::keep_completed_bodies) is over. This happens by itself too, unless the
    /// store is built with [`purge_by_hand`](PostgresStoreBuilder::purge_by_hand).
    ///
    /// # Errors
    ///
    /// If a statement fails. Rows that were deleted by then stay deleted.
    pub async fn purge(&self) -> Result<u64, StoreError> {
        Ok(self.shared.purge.run().await?)
    }

    pub(super) fn from_parts(connector: Connector, statements: Statements, purge_every: Option<Duration>) -> Self {
        let scan_start = Arc::new(ScanStart::new());
        let promoter = Promoter::new(&statements, scan_start.clone());
        let notifier = Notifier::new(&connector, &statements);
        let listener = Listener::new(connector.clone(), statements.text("channel"));
        let settlements = Batcher::new(SettleBatch::new(&connector, &statements, &scan_start, &promoter, &notifier));
        let claims = [(); CLAIM_CONNECTIONS]
            .map(|()| ClaimBatch::new(&connector, &statements, &settlements, &promoter, &notifier))
            .map(Batcher::new);
        let leases = LeaseBatch::new(&connector, &statements, &settlements, &scan_start, &promoter);
        let backlog = BacklogBatch::new(&connector, &statements);
        let enlistment = Enlistment::new(Dialect::Postgres, statements.complete());
        let shared = Shared {
            enlistment: if connector.pooled { enlistment.unprepared() } else { enlistment },
            schema: Schema::new(&statements),
            purge: Arc::new(Purge::new(connector.clone(), &statements, purge_every)),
            claims,
            settlements,
            leases: Batcher::new(leases),
            backlog: Batcher::new(backlog),
            promoter,
            notifier,
            listener,
            connector,
            statements,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Claims an event, to run it at once or to enqueue it with its request.
    async fn claim_or_enqueue(
        &self,
        claim: &ClaimRequest<'_>,
        request: Option<&StoredRequest>,
    ) -> Result<Claim, StoreError> {
        self.shared.purge.start_if_due();
        let mut pauses = PAUSES.into_iter();
        loop {
            let claims = self.shared.claims_of(claim.key);
            let same_body = match claims.ask(ClaimItem::new(claim, request)).await? {
                ClaimReply::Answered(claim) => return Ok(claim),
                ClaimReply::Fresh { attempt, .. } => {
                    return Ok(Claim::Fresh { attempt: request.is_none().then_some(attempt) });
                }
                ClaimReply::Contended { same_body } => same_body,
            };
            let Some(pause) = pauses.next() else { return Ok(Claim::InFlight { same_body }) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Settles a claim. While another transaction holds the row, the settlement is repeated, up to the last pause; then
    /// the reply is `when_locked`.
    async fn settle_row(
        &self,
        settlement: impl Fn() -> SettleItem + Send,
        when_locked: Result<Hold, StoreErrorKind>,
    ) -> Result<Hold, StoreError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            match self.shared.settlements.ask(settlement()).await? {
                SettleReply::Done(hold) | SettleReply::Freed { hold, .. } => return Ok(hold),
                SettleReply::Contended => {}
            }
            let Some(pause) = pauses.next() else { return when_locked.map_err(StoreError::new) };
            tokio::time::sleep(pause).await;
        }
    }
}

impl Shared {
    fn claims_of(&self, key: &EventKey) -> &Batcher<ClaimBatch> {
        &self.claims[xxh3_64(key.as_str().as_bytes()) as usize % CLAIM_CONNECTIONS]
    }
}

impl Store for PostgresStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(self.claim_or_enqueue(request, None))
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        // The transaction that holds the row keeps all other callers from taking the claim over.
        Box::pin(self.settle_row(|| SettleItem::renew(claim), Ok(Hold::Held)))
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(self.settle_row(move || SettleItem::end(claim, ending), Err(StoreErrorKind::Locked)))
    }

    fn enlistment(&self) -> Option<Enlistment> {
        Some(self.shared.enlistment.clone())
    }
}

/// Events are rows of the same table, committed before they are acknowledged. See the [module](super) for how.
///
/// `counts` looks at every event that is still remembered, and the other verbs of operators at as many as their
/// filter's key, state or page leaves: they are for people, not for a loop.
impl Queue for PostgresStore {
    fn enqueue<'a>(&'a self, claim: &'a ClaimRequest<'a>, request: &'a StoredRequest) -> StoreFuture<'a, Claim> {
        Box::pin(self.claim_or_enqueue(claim, Some(request)))
    }

    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Option<Claim>> {
        Box::pin(async move {
            match self.shared.backlog.ask(BacklogQuery::Peek(PeekItem::new(claim))).await? {
                BacklogReply::Peeked(claim) => Ok(claim),
                BacklogReply::Count(_) => Err(StoreError::corrupt("the reply to another query")),
            }
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> StoreFuture<'a, Vec<Leased>> {
        Box::pin(async move {
            if request.limit == 0 {
                return Ok(Vec::new());
            }
            Ok(self.shared.leases.ask(OwnedLeaseRequest::new(request)).await?.take())
        })
    }

    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(self.settle_row(|| SettleItem::start(claim), Err(StoreErrorKind::Locked)))
    }

    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.shared.listener.listen(&self.shared.notifier);
        Box::pin(self.shared.notifier.notified())
    }

    fn waiting(&self, up_to: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            match self.shared.backlog.ask(BacklogQuery::Count(up_to)).await? {
                BacklogReply::Count(count) => Ok(count),
                BacklogReply::Peeked(_) => Err(StoreError::corrupt("the reply to another query")),
            }
        })
    }

    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> StoreFuture<'a, Vec<QueuedEvent>> {
        let Shared { connector, statements, .. } = &*self.shared;
        Box::pin(async move { Ok(operators::list(connector, statements, filter, page).await?) })
    }

    fn get<'a>(&'a self, key: &'a EventKey) -> StoreFuture<'a, Option<QueuedEvent>> {
        let Shared { connector, statements, .. } = &*self.shared;
        Box::pin(async move { Ok(operators::get(connector, statements, key).await?) })
    }

    fn change<'a>(&'a self, filter: &'a Filter, change: Change) -> StoreFuture<'a, Changed> {
        let Shared { connector, statements, promoter, notifier, .. } = &*self.shared;
        Box::pin(async move {
            let ChangedRows { events, without_body, orders } =
                operators::change(connector, statements, filter, change).await?;
            if events > 0 {
                promoter.promote_next_over_pool(connector, &orders).await;
                notifier.notify();
            }
            Ok(Changed::new(events).without_body(without_body))
        })
    }

    fn counts(&self) -> StoreFuture<'_, QueueCounts> {
        let Shared { connector, statements, .. } = &*self.shared;
        Box::pin(async move { Ok(operators::counts(connector, statements).await?) })
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.shared.statements.table;
        f.debug_struct("PostgresStore").field("table", &format_args!("{table}")).finish_non_exhaustive()
    }
}
