use std::sync::Arc;

use bytes::Bytes;

use super::super::fault::Fault;
use super::super::record::{self, Record, Unreadable};
use super::super::store::{Shared, Way};
use super::entry::{self, read};
use super::scripts;
use crate::inbox::Parcel;
use crate::store::group::{Answers, Engine};
use crate::store::{Claim, ClaimRequest, Fingerprint};

/// How many events go into one script, and how many bytes of them, unless it is a single one: the server does nothing else meanwhile.
const MOST: usize = 64;
const HEAVIEST: usize = 1024 * 1024;

/// Accepts events, those that come while it is busy by one script.
pub(in super::super) struct Acceptor {
    shared: Arc<Shared>,
}

/// An event to accept.
pub(in super::super) struct Offer {
    fingerprint: Fingerprint,
    /// The key of its claim.
    pub(super) claim: String,
    /// What else the script is told of it.
    rest: [Bytes; 4],
}

impl Acceptor {
    pub(in super::super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Claims the events and adds them to the stream in one script. What replicas are to have, they have; if they do not confirm it,
    /// that is an error, and the events are there nevertheless. If the script fails half-way it is an error for all of them, and those
    /// before are there, too: the sender's next delivery finds them.
    async fn accept(&self, offers: &[Offer]) -> Result<Vec<Result<Claim, Fault>>, Fault> {
        let Self { shared } = self;
        let Some(first) = offers.first() else { return Ok(Vec::new()) };
        shared.check_slot()?;
        let is_replicated: &[u8] = if shared.replicas.is_some() { b"1" } else { b"" };
        let mut arguments = vec![shared.prefix.as_bytes(), is_replicated];
        arguments.extend(offers.iter().flat_map(Offer::arguments));
        let (reply, confirmed) = shared.run(Way::Replicated, &scripts::ACCEPT.call(&first.claim, &arguments)).await?;
        let found: Vec<Option<Vec<u8>>> = read(reply)?;
        if found.len() != offers.len() {
            return Err(Unreadable.into());
        }
        let claims: Vec<_> = offers.iter().zip(found).map(|(offer, found)| offer.judge(found, &confirmed)).collect();
        if claims.iter().any(|claim| matches!(claim, Ok(Claim::Fresh { .. }))) {
            shared.listener.tell();
        }
        Ok(claims)
    }
}

impl Engine for Acceptor {
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
    fn unheard(&self, _: Offer, _: Claim) {}
}

impl Offer {
    pub(in super::super) fn new(shared: &Shared, claim: &ClaimRequest<'_>, parcel: &Parcel) -> Self {
        let rest = [
            record::accepted(claim).into(),
            Bytes::from_static(if parcel.order.is_some() { b"wo" } else { b"w" }),
            entry::parts(claim, parcel).into(),
            parcel.body.clone(),
        ];
        Self { fingerprint: claim.fingerprint, claim: shared.key(claim.key), rest }
    }

    /// What is answered, where this was in the way.
    fn judge(&self, found: Option<Vec<u8>>, confirmed: &Result<(), Fault>) -> Result<Claim, Fault> {
        let claim = match found {
            Some(found) => Record::read(&found)?.answers(self.fingerprint),
            None => Claim::Fresh { attempt: None },
        };
        if matches!(claim, Claim::Fresh { .. } | Claim::Accepted { .. }) {
            // To the sender both mean that it is safe here.
            confirmed.clone()?;
        }
        Ok(claim)
    }

    fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.claim.as_bytes()).chain(self.rest.iter().map(|argument| &**argument))
    }

    fn weight(&self) -> usize {
        self.arguments().map(<[u8]>::len).sum()
    }
}
