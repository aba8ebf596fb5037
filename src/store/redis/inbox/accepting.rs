use super::super::fault::Fault;
use super::super::record;
use super::super::store::{Answer, Shared, Way};
use super::entry::{self, text};
use super::scripts;
use crate::inbox::{Parcel, unix_millis};
use crate::store::{Claim, ClaimRequest};

impl Shared {
    /// Claims the event and adds it to the stream in one script. What replicas are to have, they have; if they do not confirm it,
    /// that is an error, and the event is there nevertheless.
    pub(super) async fn accept(&self, claim: &ClaimRequest<'_>, parcel: &Parcel) -> Result<Claim, Fault> {
        let (events, key) = (self.events()?, self.key(claim.key));
        let (record, token) = (record::accepted(claim), record::token(claim.token));
        let fingerprint = record::fingerprint(claim.fingerprint);
        let (received, event_type) = (unix_millis(parcel.received_at).to_string(), text(claim.event_type));
        let order = text(parcel.order.as_ref().map(|order| &*order.key));
        let sequence = parcel.order.as_ref().and_then(|order| order.sequence).map_or_else(String::new, entry::sequence);
        let arguments: [&[u8]; 13] = [
            events.as_bytes(),
            record.as_bytes(),
            token.as_bytes(),
            if self.replicas.is_some() { b"1" } else { b"" },
            if order.is_empty() { b"" } else { b"o" },
            claim.key.as_str().as_bytes(),
            event_type.as_bytes(),
            fingerprint.as_bytes(),
            received.as_bytes(),
            order.as_bytes(),
            sequence.as_bytes(),
            &parcel.head,
            &parcel.body,
        ];
        let answer = Answer::read(self.run(Way::Replicated, &scripts::ACCEPT.call(&key, &arguments)).await?)?;
        let claim = answer.found.map_or(Claim::Fresh { attempt: None }, |found| found.answers(claim));
        if matches!(claim, Claim::Fresh { .. } | Claim::Accepted { .. }) {
            // To the sender both mean that it is safe here.
            answer.confirmed?;
        }
        if matches!(claim, Claim::Fresh { .. }) {
            self.listener.tell();
        }
        Ok(claim)
    }
}
