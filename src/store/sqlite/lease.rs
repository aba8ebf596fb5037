//! Leases due events to workers: picks them, and marks them as leased, in one transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection as _, Executor, Row as _, SqliteConnection};

use super::connection::{Connection, Database, retry_while_locked};
use super::fault::Fault;
use super::operation::Operation;
use super::pick::pick;
use super::record::{fingerprint, token, unknown};
use super::statements::statement;
use super::time::millis;
use super::writer::{ATTEMPTS, Writer};
use crate::EventKey;
use crate::clock::from_unix_millis;
use crate::store::Ending;
use crate::store::batcher::{Answers, BatchHandler, Batcher};
use crate::store::in_transit::{InTransit, Releaser};
use crate::store::queue::{LAPSED, LeaseRequest, Leased, Order, OwnedLeaseRequest, StoredRequest, UNREADABLE};
use crate::telemetry;

/// Leases in a task of its own, so that a caller that leaves does not interrupt a transaction.
pub(super) struct LeaseHandler {
    operations: Batcher<Arc<Writer>>,
    reader: Arc<Connection>,
}

impl LeaseHandler {
    pub(super) fn new(operations: &Batcher<Arc<Writer>>, reader: &Arc<Connection>) -> Self {
        Self { operations: operations.clone(), reader: reader.clone() }
    }

    /// Looks first, on a connection that waits for no lock: a worker with nothing to do must not take the write lock
    /// every time.
    async fn lease(&self, request: &LeaseRequest<'_>) -> Result<InTransit<Releases>, Fault> {
        let events = if self.is_due(request).await? { self.lease_due(request).await? } else { Vec::new() };
        Ok(InTransit::new(events, Releases { operations: self.operations.clone(), lease: request.lease }))
    }

    async fn is_due(&self, request: &LeaseRequest<'_>) -> Result<bool, Fault> {
        let mut acquired = self.reader.acquire().await?;
        let (statements, now) = (&self.reader.database.statements, self.reader.database.times.now());
        let at_most_one = LeaseRequest { limit: request.limit.min(1), ..*request };
        let picked = pick(&mut acquired.connection, statements, &at_most_one, &now).await;
        Ok(!acquired.release(picked)?.is_empty())
    }

    /// Leases on the connection of the batches, so that neither waits for the other's lock.
    async fn lease_due(&self, request: &LeaseRequest<'_>) -> Result<Vec<Leased>, Fault> {
        let writer = &self.operations.handler().connection;
        let mut acquired = writer.acquire().await?;
        let leased = lease_readable(&mut acquired.connection, &writer.database, request).await;
        acquired.release(leased)
    }
}

impl BatchHandler for LeaseHandler {
    type Question = OwnedLeaseRequest;
    type Answer = InTransit<Releases>;

    async fn answer(&self, batch: &[OwnedLeaseRequest]) -> Answers<Self::Answer> {
        let mut answers = Vec::with_capacity(batch.len());
        for request in batch {
            answers.push(self.lease(&request.borrowed()).await.map_err(Into::into));
        }
        answers
    }

    /// Drops the answer, which releases its events.
    fn on_abandoned(&self, _: OwnedLeaseRequest, _: Self::Answer) {}
}

/// Releases events whose worker has left. While another connection holds the write lock it asks again, for as long as
/// they are leased: no worker could get them until then.
pub(super) struct Releases {
    operations: Batcher<Arc<Writer>>,
    lease: Duration,
}

impl Releaser for Releases {
    fn release(&self, events: Vec<Leased>) {
        for event in events {
            let (operations, lease) = (self.operations.clone(), self.lease);
            tokio::spawn(async move {
                let release = Operation::settle(&event.claim(lease), &Ending::Release);
                // Callers that still wait for an answer are told of any other fault.
                let _ = retry_while_locked(lease, || operations.ask(release.clone())).await;
            });
        }
    }
}

/// Leases again if every event that was picked is unreadable: there may be others behind.
async fn lease_readable(
    connection: &mut SqliteConnection,
    database: &Database,
    request: &LeaseRequest<'_>,
) -> Result<Vec<Leased>, Fault> {
    for _ in 0..ATTEMPTS {
        let (events, unreadable) = lease_picked(connection, database, request).await?;
        if !events.is_empty() || unreadable == 0 {
            return Ok(events);
        }
    }
    Ok(Vec::new())
}

/// Leases the events that are due now. Those that cannot be read become dead letters; their number is returned, too.
async fn lease_picked(
    connection: &mut SqliteConnection,
    database: &Database,
    request: &LeaseRequest<'_>,
) -> Result<(Vec<Leased>, usize), Fault> {
    let Database { statements, times, .. } = database;
    // Begun before the pick, so that no other process leases the same events.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let now = times.now();
    let picked = pick(&mut transaction, statements, request, &now).await?;
    let ids = picked.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let lease = statement(&statements.lease)
        .bind(now.boot_id.clone())
        .bind(now.since_boot + millis(request.lease))
        .bind(now.wall)
        .bind(format!("{LAPSED}\n"))
        .bind(format!("[{ids}]"));
    let rows = transaction.fetch_all(lease).await?;
    let positions: HashMap<_, _> = picked.iter().enumerate().map(|(position, id)| (*id, position)).collect();
    let (mut events, mut unreadable) = (Vec::with_capacity(rows.len()), 0);
    for row in &rows {
        let id: i64 = row.try_get("id")?;
        match event(row) {
            Ok(event) => events.push((positions.get(&id).copied(), event)),
            Err(error) => {
                telemetry::event_unreadable(id, &error);
                let bury = statement(&statements.bury_unreadable).bind(id).bind(now.wall).bind(UNREADABLE);
                transaction.execute(bury).await?;
                unreadable += 1;
            }
        }
    }
    transaction.commit().await?;
    events.sort_by_key(|(position, _)| *position);
    Ok((events.into_iter().map(|(_, event)| event).collect(), unreadable))
}

fn event(row: &SqliteRow) -> Result<Leased, sqlx::Error> {
    let key = EventKey::parse(row.try_get("key")?).ok_or_else(|| unknown("key"))?;
    let mut leased = Leased::new(key, token(row)?, stored_request(row)?);
    leased.attempt = row.try_get::<i64, _>("attempts")?.try_into().unwrap_or(u32::MAX);
    leased.event_type = row.try_get::<Option<&str>, _>("event_type")?.map(Into::into);
    leased.fingerprint = fingerprint(row)?;
    leased.started = row.try_get::<Option<bool>, _>("handler_started")?.unwrap_or_default();
    leased.superseded = row.try_get("superseded")?;
    Ok(leased)
}

/// Reads a request. It is empty if another program has deleted it: a worker makes that a dead letter.
pub(super) fn stored_request(row: &SqliteRow) -> Result<StoredRequest, sqlx::Error> {
    let bytes = |column| row.try_get::<Option<Vec<u8>>, _>(column).map(|bytes| Bytes::from(bytes.unwrap_or_default()));
    let request = StoredRequest::new(bytes("head")?, bytes("body")?, from_unix_millis(row.try_get("received_at")?));
    let Some(key) = row.try_get::<Option<&str>, _>("order_key")? else { return Ok(request) };
    let mut order = Order::of(key);
    order.sequence = row.try_get("sequence")?;
    Ok(request.ordered(order))
}
