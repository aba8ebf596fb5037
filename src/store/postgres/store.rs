use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use xxhash_rust::xxh3::xxh3_64;

use super::PostgresStoreBuilder;
use super::access::Access;
use super::bell::Bell;
use super::bid::{Bid, Bidden};
use super::bound::Bound;
use super::claims::Claims;
use super::ear::Ear;
use super::leases::Leases;
use super::migration::Migrator;
use super::purge::Purge;
use super::schema::Statements;
use super::settle::{Settle, Settled};
use super::settles::Settles;
use super::waiting::Waiting;
use crate::EventKey;
use crate::store::batcher::Batcher;
use crate::store::queue::StoredRequest;
use crate::store::{
    Claim, ClaimRequest, Dialect, Ending, Enlistment, Hold, Store, StoreError, StoreErrorKind, StoreFuture,
};

/// How long it is waited before a row that another transaction has in hand is asked for again. What this store's own
/// statements hold is free by the second time; what somebody's transaction holds longer than all of them counts as held.
const PAUSES: [Duration; 7] = {
    let ms = Duration::from_millis;
    [ms(1), ms(2), ms(5), ms(10), ms(25), ms(50), ms(100)]
};

/// How many connections claims are spread over, by key. A second one works while the first waits for the disk: a quarter more of
/// them at 64 at once. Each key has one of them, so that its claims meet in one batch.
const CLAIM_LANES: usize = 2;

/// Remembers events in a table of Postgres. See the [module](super) for how.
///
/// Clones share their connections.
#[derive(Clone)]
pub struct PostgresStore {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) access: Access,
    pub(super) statements: Statements,
    enlistment: Enlistment,
    claims: [Batcher<Claims>; CLAIM_LANES],
    settles: Batcher<Settles>,
    purge: Arc<Purge>,
    pub(super) leases: Batcher<Leases>,
    pub(super) bound: Arc<Bound>,
    pub(super) waiting: Batcher<Waiting>,
    pub(super) bell: Bell,
    pub(super) ear: Ear,
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

    /// Brings the table to the schema of this release: creates it, or adds the columns and indexes that an earlier release did not
    /// know. To be called at every start, by any number of instances at once, while others are at work.
    ///
    /// - The catalogue is looked at first. If nothing is missing, the table is not locked, and the role needs no right to change it.
    /// - Columns are added under a `lock_timeout` of 50 ms, again and again for up to a minute, so that claims do not queue up behind
    ///   a migration that waits for a handler's open transaction.
    /// - Indexes of an existing table are created `CONCURRENTLY`. That waits for open transactions, for however long they take, and
    ///   delays nobody. An index that an earlier try left `INVALID` is dropped first.
    /// - One instance migrates at a time; the others wait for it, however long it takes.
    /// - The number of the schema is written into the table's comment, behind whatever else is there. A table of a later release is
    ///   left as it is.
    ///
    /// # Errors
    ///
    /// If the database cannot be reached, the schema does not exist, the user may not change what is missing, or other transactions
    /// hold the table for longer than a minute.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        Ok(Migrator::run(&self.shared.statements.migration, self.shared.access.migration_route()).await?)
    }

    /// All of the table's statements, for teams that run their own migrations. Each can be run again. On a table that is in
    /// use, add `CONCURRENTLY` to those that create indexes: without it they lock the table, even if the index is there.
    #[must_use]
    pub fn schema_sql(&self) -> &str {
        &self.shared.statements.schema
    }

    /// Deletes the rows whose retention is over, in small batches, and says how many they were; and removes bodies that are
    /// [kept](PostgresStoreBuilder::keep_completed_bodies) no longer. This happens by itself too, unless
    /// the store is built with [`purge_by_hand`](PostgresStoreBuilder::purge_by_hand).
    ///
    /// # Errors
    ///
    /// If the database cannot be asked; what was deleted by then stays so.
    pub async fn purge(&self) -> Result<u64, StoreError> {
        Ok(self.shared.purge.run().await?)
    }

    pub(super) fn from_parts(
        access: Access,
        statements: Statements,
        deadline: Duration,
        purge_every: Option<Duration>,
    ) -> Self {
        let bell = Bell::new(&access, deadline, &statements);
        let bound = Arc::new(Bound::new());
        let settles = Batcher::new(Settles::new(&access, deadline, &statements, bell.clone(), &bound));
        let claims = [(); CLAIM_LANES]
            .map(|()| Batcher::new(Claims::new(&access, deadline, &statements, settles.clone(), bell.clone(), &bound)));
        let leases = Batcher::new(Leases::new(&access, deadline, &statements, settles.clone(), &bound));
        let waiting = Batcher::new(Waiting::new(&access, deadline, &statements));
        let ear = Ear::new(access.clone(), statements.channel.clone());
        let purge = Purge::new(access.clone(), &statements, purge_every);
        let enlistment = Enlistment::new(Dialect::Postgres, statements.complete.clone());
        let enlistment = if access.pooled { enlistment.unprepared() } else { enlistment };
        let purge = Arc::new(purge);
        let shared =
            Shared { access, statements, enlistment, claims, settles, purge, leases, bound, waiting, bell, ear };
        Self { shared: Arc::new(shared) }
    }

    /// Claims an event, to run it at once or to keep its parcel for a worker.
    pub(super) async fn bid(
        &self,
        request: &ClaimRequest<'_>,
        parcel: Option<&StoredRequest>,
    ) -> Result<Claim, StoreError> {
        self.shared.purge.nudge();
        let mut pauses = PAUSES.into_iter();
        loop {
            let same_body = match self.shared.claims_of(request.key).ask(Bid::new(request, parcel)).await? {
                Bidden::Answered(claim) => return Ok(claim),
                Bidden::Fresh { attempt, .. } => {
                    return Ok(Claim::Fresh { attempt: parcel.is_none().then_some(attempt) });
                }
                Bidden::Contended { same_body } => same_body,
            };
            let Some(pause) = pauses.next() else { return Ok(Claim::InFlight { same_body }) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Asks until the row is nobody else's, or for as long as is sensible: then `held`, which is for a row that somebody holds.
    pub(super) async fn settle_row(
        &self,
        question: impl Fn() -> Settle + Send,
        held: impl FnOnce() -> Result<Hold, StoreError> + Send,
    ) -> Result<Hold, StoreError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            match self.shared.settles.ask(question()).await? {
                Settled::Done(hold) | Settled::Freed { hold, .. } => return Ok(hold),
                Settled::Contended => {}
            }
            let Some(pause) = pauses.next() else { return held() };
            tokio::time::sleep(pause).await;
        }
    }
}

impl Shared {
    fn claims_of(&self, key: &EventKey) -> &Batcher<Claims> {
        &self.claims[xxh3_64(key.as_str().as_bytes()) as usize % CLAIM_LANES]
    }
}

impl Store for PostgresStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move { self.bid(request, None).await })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            // Whoever holds the row keeps everybody else from taking the claim over.
            self.settle_row(|| Settle::renew(claim), || Ok(Hold::Held)).await
        })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            let settle = || match ending {
                Ending::Complete(completion) => Settle::complete(claim, &completion),
                Ending::Release => Settle::release(claim.key, claim.token),
                Ending::Retry { after, reason } => Settle::retry(claim, after, reason),
                Ending::Bury { reason } => Settle::bury(claim, reason),
            };
            self.settle_row(settle, locked).await
        })
    }

    fn enlistment(&self) -> Option<Enlistment> {
        Some(self.shared.enlistment.clone())
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.shared.statements.table;
        f.debug_struct("PostgresStore").field("table", &format_args!("{table}")).finish_non_exhaustive()
    }
}

pub(super) fn locked() -> Result<Hold, StoreError> {
    Err(StoreError::new(StoreErrorKind::Locked))
}
