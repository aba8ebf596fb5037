use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use deadpool_redis::redis;

use super::super::fault::Fault;
use super::super::record::{self, Record, State, Unreadable, milliseconds};
use super::super::store::{Shared, Way};
use super::entry::{self, read, text};
use super::scripts;
use crate::store::batcher::{Answers, BatchHandler};
use crate::store::queue::StoredRequest;
use crate::store::{Claim, ClaimRequest, Fingerprint};

/// How many events go into one script, and how many bytes of them, unless it is a single one: the server does nothing else meanwhile.
const MOST: usize = 64;
const HEAVIEST: usize = 1024 * 1024;

/// A parcel of more bytes does not pass through a script: it is written by itself, and the script accepts it by its name.
const LARGE: usize = 64 * 1024;

/// How long a parcel that was written by itself is there before a script has accepted its event, at the least.
const UPLOADED: Duration = Duration::from_secs(60);

/// The script's answer where it needs a parcel that is not there.
const NO_PARCEL: &[u8] = b"?";

/// How often a parcel is brought that was not there any more when its script ran.
const UPLOADS: usize = 3;

/// Accepts events, those that come while it is busy by one script.
pub(in super::super) struct Acceptor {
    shared: Arc<Shared>,
}

/// An event to accept.
pub(in super::super) struct Offer {
    fingerprint: Fingerprint,
    /// The key of its claim.
    pub(super) claim: String,
    /// Its record without the end, what is known of it, its endpoint, type and order, and the name of its parcel.
    facts: [Bytes; 6],
    parcel: Bytes,
}

impl Acceptor {
    pub(in super::super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Accepts by a script; then, by another, those whose parcels are large. These are written only for events that are new.
    async fn accept(&self, offers: &[Offer]) -> Result<Vec<Result<Claim, Fault>>, Fault> {
        self.shared.check_slot()?;
        let mut claims = self.accept_by_script(&offers.iter().collect::<Vec<_>>()).await?;
        for _ in 0..UPLOADS {
            let open = claims.iter().zip(offers).enumerate().filter(|(_, (claim, _))| matches!(claim, Ok(None)));
            let (places, open): (Vec<_>, Vec<_>) = open.map(|(place, (_, offer))| (place, offer)).unzip();
            if open.is_empty() {
                break;
            }
            let accepted = self.accept_large(&open).await;
            for (index, place) in places.into_iter().enumerate() {
                claims[place] = accepted.as_ref().map_or_else(|fault| Err(fault.clone()), |all| all[index].clone());
            }
        }
        let claims: Vec<_> = claims.into_iter().map(|claim| claim?.ok_or(Fault::TimedOut)).collect();
        if claims.iter().any(|claim| matches!(claim, Ok(Claim::Fresh { .. }))) {
            self.shared.listener.tell();
        }
        Ok(claims)
    }

    /// A parcel whose event turns out to be known is left to end by itself: after a lost reply it may be that event's own.
    async fn accept_large(&self, offers: &[&Offer]) -> Result<Vec<Result<Option<Claim>, Fault>>, Fault> {
        for offer in offers {
            self.upload(offer).await?;
        }
        self.accept_by_script(offers).await
    }

    /// Writes a parcel by itself. One that is there is the same, and may have been accepted: it must not end.
    async fn upload(&self, offer: &Offer) -> Result<(), Fault> {
        let time = milliseconds(UPLOADED.max(self.shared.timeout.saturating_mul(4)));
        let mut set = redis::cmd("SET");
        set.arg(self.shared.parcel_key(offer.name())).arg(&*offer.parcel).arg("NX").arg("PX").arg(time);
        self.shared.ask(Way::Shared, &offer.claim, &set).await.map(drop)
    }

    /// Claims the events and adds them to the stream in one script; `None` for one whose parcel is large and is not there. What
    /// replicas are to have, they have; if they do not confirm it, that is an error, and the events are there nevertheless. If
    /// the script fails half-way it is an error for all of them, and those before are there, too: the sender's next delivery
    /// finds them.
    async fn accept_by_script(&self, offers: &[&Offer]) -> Result<Vec<Result<Option<Claim>, Fault>>, Fault> {
        let Self { shared } = self;
        let Some(first) = offers.first() else { return Ok(Vec::new()) };
        let is_replicated: &[u8] = if shared.replicas.is_some() { b"1" } else { b"" };
        let mut arguments = vec![shared.prefix.as_bytes(), is_replicated];
        arguments.extend(offers.iter().flat_map(|offer| offer.arguments()));
        let (reply, confirmed) = shared.run(Way::Replicated, &scripts::ACCEPT.call(&first.claim, &arguments)).await?;
        let found: Vec<Option<Vec<u8>>> = read(reply)?;
        if found.len() != offers.len() {
            return Err(Unreadable.into());
        }
        Ok(offers.iter().zip(found).map(|(offer, found)| offer.judge(found, &confirmed)).collect())
    }
}

impl BatchHandler for Acceptor {
    type Question = Offer;
    type Answer = Claim;

    async fn answer(&self, batch: &[Offer]) -> Answers<Claim> {
        match self.accept(batch).await {
            Ok(claims) => claims.into_iter().map(|claim| claim.map_err(Into::into)).collect(),
            Err(fault) => batch.iter().map(|_| Err(fault.clone().into())).collect(),
        }
    }

    fn fitting<'a>(waiting: impl ExactSizeIterator<Item = &'a Offer>) -> usize {
        let mut weight = 0;
        let fits = |offer: &&Offer| {
            weight += offer.weight();
            weight <= HEAVIEST
        };
        waiting.take(MOST).take_while(fits).count().max(1)
    }

    /// It stays accepted: it is going to be run, whoever knows.
    fn on_abandoned(&self, _: Offer, _: Claim) {}
}

impl Offer {
    pub(in super::super) fn new(shared: &Shared, claim: &ClaimRequest<'_>, parcel: &StoredRequest) -> Self {
        let value = entry::write_parcel(parcel);
        let facts = [
            record::accepted(claim).into(),
            entry::facts(claim, parcel, value.len()).into(),
            claim.key.endpoint().to_owned().into(),
            text(claim.event_type).into(),
            text(parcel.order.as_ref().map(|order| &*order.key)).into(),
            record::token(claim.token).into(),
        ];
        Self { fingerprint: claim.fingerprint, claim: shared.key(claim.key), facts, parcel: value }
    }

    /// The name of its parcel.
    fn name(&self) -> &[u8] {
        &self.facts[5]
    }

    /// What is answered, where this was in the way.
    fn judge(&self, found: Option<Vec<u8>>, confirmed: &Result<(), Fault>) -> Result<Option<Claim>, Fault> {
        let claim = match found {
            Some(found) if found == NO_PARCEL => return Ok(None),
            Some(found) => Record::read(&found)?.answers(self.fingerprint),
            None => Claim::Fresh { attempt: None },
        };
        if matches!(claim, Claim::Fresh { .. } | Claim::Accepted { .. }) {
            // To the sender both mean that it is safe here.
            confirmed.clone()?;
        }
        Ok(Some(claim))
    }

    fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        let parcel: &[u8] = if self.parcel.len() > LARGE { b"" } else { &self.parcel };
        let facts = self.facts.iter().map(|argument| &**argument);
        std::iter::once(self.claim.as_bytes()).chain(facts).chain([parcel])
    }

    fn weight(&self) -> usize {
        self.claim.len() + self.facts.iter().map(Bytes::len).sum::<usize>() + self.parcel.len()
    }
}

impl Shared {
    /// Looks, and writes nothing.
    pub(super) async fn peek(&self, claim: &ClaimRequest<'_>) -> Result<Option<Claim>, Fault> {
        self.check_slot()?;
        let key = self.key(claim.key);
        let (reply, _) = self.ask(Way::Shared, &key, redis::cmd("GET").arg(&key)).await?;
        let Some(value) = read::<Option<Vec<u8>>>(reply)? else { return Ok(None) };
        let found = Record::read(&value)?;
        let is_own = found.state == State::Accepted && found.token == claim.token && entry::is_waiting(&value);
        Ok(Some(if is_own { Claim::Fresh { attempt: None } } else { found.answers(claim.fingerprint) }))
    }
}
