use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deadpool_redis::redis;

use super::client::{Client, Mode};
use super::entry::{self, optional};
use super::error::{CommandError, Result};
use super::queue::RedisQueue;
use super::record::{self, Progress, Record, State, Unreadable, milliseconds};
use super::scripts;
use crate::store::batcher::{Answers, BatchHandler};
use crate::store::queue::StoredRequest;
use crate::store::{Claim, ClaimRequest, Fingerprint};

/// How many events one script enqueues, and how many bytes of them, unless it is a single one: the server does nothing
/// else meanwhile.
const MOST: usize = 64;
const MOST_BYTES: usize = 1024 * 1024;

/// A request of more bytes is large. It passes through no script: it is uploaded, and the script takes it by its name.
const LARGE: usize = 64 * 1024;

/// The least time that an uploaded request is kept for its script.
const UPLOADED: Duration = Duration::from_secs(60);

/// The script's reply if it needs a request that is not there.
const NO_REQUEST: &[u8] = b"?";

/// How often requests are uploaded that had expired when their script ran.
const UPLOADS: usize = 3;

/// Enqueues events. Those that come during one script are enqueued by the next.
pub(super) struct Enqueuer {
    queue: Arc<RedisQueue>,
}

/// An event to enqueue.
pub(super) struct NewEvent {
    /// The key of its record.
    pub(super) key: String,
    fingerprint: Fingerprint,
    /// The record up to the arrival, the entry, the endpoint, type and order, and the name of the request.
    arguments: [Bytes; 6],
    request: Bytes,
}

/// The claim; `None` if the event's request is large and was not uploaded.
type Enqueued = Result<Option<Claim>>;

impl Enqueuer {
    pub(super) const fn new(queue: Arc<RedisQueue>) -> Self {
        Self { queue }
    }

    /// Enqueues by a script; then, by another, events whose requests are large. Those are only uploaded for new events.
    async fn enqueue(&self, events: &[NewEvent]) -> Result<Vec<Result<Claim, CommandError>>> {
        self.queue.client.check_slot()?;
        let mut claims = self.run_script(&events.iter().collect::<Vec<_>>()).await?;
        for _ in 0..UPLOADS {
            let large = claims.iter().zip(events).enumerate().filter(|(_, (claim, _))| matches!(claim, Ok(None)));
            let (indices, large): (Vec<_>, Vec<_>) = large.map(|(index, (_, event))| (index, event)).unzip();
            if large.is_empty() {
                break;
            }
            let enqueued = self.enqueue_large(&large).await;
            for (number, index) in indices.into_iter().enumerate() {
                claims[index] = enqueued.as_ref().map_or_else(|error| Err(error.clone()), |all| all[number].clone());
            }
        }
        let claims: Vec<_> = claims.into_iter().map(|claim| claim?.ok_or(CommandError::TimedOut)).collect();
        if claims.iter().any(|claim| matches!(claim, Ok(Claim::Fresh { .. }))) {
            self.queue.listener.notify();
        }
        Ok(claims)
    }

    /// If an event turns out to be known, its upload expires by itself: after a lost reply it may be that event's own.
    async fn enqueue_large(&self, events: &[&NewEvent]) -> Result<Vec<Enqueued>> {
        for event in events {
            self.upload(event).await?;
        }
        self.run_script(events).await
    }

    /// Writes a request by itself. An existing one is the same, and may be an enqueued event's: it must not expire.
    async fn upload(&self, event: &NewEvent) -> Result<()> {
        let client = &self.queue.client;
        let time = milliseconds(UPLOADED.max(client.timeout.saturating_mul(4)));
        let mut set = redis::cmd("SET");
        set.arg(client.request_key(event.request_name())).arg(&*event.request).arg("NX").arg("PX").arg(time);
        client.ask(Mode::Repeatable, &event.key, &set).await.map(drop)
    }

    /// Claims the events and appends them to the stream in one script. If too few replicas confirm it, that is an
    /// error, and the events are in the queue nevertheless. If the script fails half-way, that is an error for all of
    /// the events, and some are in the queue: the sender's next delivery finds them.
    async fn run_script(&self, events: &[&NewEvent]) -> Result<Vec<Enqueued>> {
        let client = &self.queue.client;
        let Some(first) = events.first() else { return Ok(Vec::new()) };
        let is_replicated: &[u8] = if client.replicas.is_some() { b"1" } else { b"" };
        let mut arguments = vec![client.prefix.as_bytes(), is_replicated];
        arguments.extend(events.iter().flat_map(|event| event.arguments()));
        let reply = client.run(Mode::Replicated, &scripts::ENQUEUE, &first.key, &arguments).await?;
        let (existing, confirmed) = reply.into_parts::<Vec<Option<Vec<u8>>>>()?;
        if existing.len() != events.len() {
            return Err(Unreadable.into());
        }
        Ok(events.iter().zip(existing).map(|(event, existing)| event.enqueued(existing, &confirmed)).collect())
    }
}

impl BatchHandler for Enqueuer {
    type Question = NewEvent;
    type Answer = Claim;

    async fn answer(&self, batch: &[NewEvent]) -> Answers<Claim> {
        match self.enqueue(batch).await {
            Ok(claims) => claims.into_iter().map(|claim| claim.map_err(Into::into)).collect(),
            Err(error) => batch.iter().map(|_| Err(error.clone().into())).collect(),
        }
    }

    fn fitting<'a>(waiting: impl ExactSizeIterator<Item = &'a NewEvent>) -> usize {
        let mut bytes = 0;
        let fits = |event: &&NewEvent| {
            bytes += event.bytes();
            bytes <= MOST_BYTES
        };
        waiting.take(MOST).take_while(fits).count().max(1)
    }

    /// The event stays in the queue, and is run.
    fn on_abandoned(&self, _: NewEvent, _: Claim) {}
}

impl NewEvent {
    pub(super) fn new(client: &Client, claim: &ClaimRequest<'_>, request: &StoredRequest) -> Self {
        let value = entry::write_request(request);
        let arguments = [
            record::queued(claim).into(),
            entry::encode(claim, request, value.len()).into(),
            claim.key.endpoint().to_owned().into(),
            optional(claim.event_type).into(),
            optional(request.order.as_ref().map(|order| &*order.key)).into(),
            record::token(claim.token).into(),
        ];
        Self { key: client.key(claim.key), fingerprint: claim.fingerprint, arguments, request: value }
    }

    fn request_name(&self) -> &[u8] {
        &self.arguments[5]
    }

    /// Reads the script's reply for this event: the record that prevented it, if any.
    fn enqueued(&self, existing: Option<Vec<u8>>, confirmed: &Result<()>) -> Enqueued {
        let claim = match existing {
            Some(existing) if existing == NO_REQUEST => return Ok(None),
            Some(existing) => Record::read(&existing)?.as_claim(self.fingerprint),
            None => Claim::Fresh { attempt: None },
        };
        if matches!(claim, Claim::Fresh { .. } | Claim::Accepted { .. }) {
            // Both tell the sender that the event is safe here.
            confirmed.clone()?;
        }
        Ok(Some(claim))
    }

    fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        let request: &[u8] = if self.request.len() > LARGE { b"" } else { &self.request };
        let arguments = self.arguments.iter().map(|argument| &**argument);
        std::iter::once(self.key.as_bytes()).chain(arguments).chain([request])
    }

    fn bytes(&self) -> usize {
        self.key.len() + self.arguments.iter().map(Bytes::len).sum::<usize>() + self.request.len()
    }
}

/// Reads the record, and writes nothing.
pub(super) async fn peek(client: &Client, claim: &ClaimRequest<'_>) -> Result<Option<Claim>> {
    client.check_slot()?;
    let key = client.key(claim.key);
    let reply = client.ask(Mode::Repeatable, &key, redis::cmd("GET").arg(&key)).await?;
    let Some(value) = reply.read::<Option<Vec<u8>>>()? else { return Ok(None) };
    let existing = Record::read(&value)?;
    let is_waiting = Progress::read(&value).is_some_and(|progress| progress.is_waiting());
    let is_own = existing.state == State::Queued && existing.token == claim.token && is_waiting;
    Ok(Some(if is_own { Claim::Fresh { attempt: None } } else { existing.as_claim(claim.fingerprint) }))
}
