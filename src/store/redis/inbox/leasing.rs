use std::sync::Arc;

use super::super::fault::{Fault, NoConnection};
use super::super::record::{self, milliseconds};
use super::super::store::{Shared, Way};
use super::entry::{Entry, read, text};
use super::scripts;
use crate::inbox::{KindLimits, LAPSED, LeaseRequest, Leased};
use crate::store::ClaimToken;
use crate::store::handed::{Handed, PutBack};

/// What one script hands out at the most: the server does nothing else meanwhile.
const MOST: usize = 512;

/// The longest lease, in milliseconds: 31 years, as in the scripts.
pub(super) const LONGEST_LEASE: u64 = 1_000_000_000_000;

impl Shared {
    /// Asks in a task of its own: if whoever wants them leaves before they come, the events are put back.
    pub(super) async fn lease(self: &Arc<Self>, request: &LeaseRequest<'_>) -> Result<Vec<Leased>, Fault> {
        let events = self.events()?;
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        let tokens: Vec<_> = (0..request.limit.min(MOST)).map(|_| record::leased_token()).collect();
        let (shared, arguments) = (self.clone(), self.lease_arguments(request, &tokens));
        let asking = tokio::spawn(async move {
            let leased = shared.lease_under(&events, &arguments, &tokens).await;
            leased.map(|leased| Handed::new(leased, shared))
        });
        // It only ends early with the runtime.
        let handed = asking.await.unwrap_or_else(|_| Err(NoConnection::Abandoned.into()));
        Ok(handed?.take())
    }

    async fn lease_under(
        &self,
        events: &str,
        arguments: &[String],
        tokens: &[ClaimToken],
    ) -> Result<Vec<Leased>, Fault> {
        loop {
            let (leased, has_more) = self.lease_some(events, arguments, tokens).await?;
            // Much was read that is for others, and is out of the way now.
            if !leased.is_empty() || !has_more {
                return Ok(leased);
            }
        }
    }

    async fn lease_some(
        &self,
        events: &str,
        arguments: &[String],
        tokens: &[ClaimToken],
    ) -> Result<(Vec<Leased>, bool), Fault> {
        let arguments: Vec<&[u8]> = arguments.iter().map(String::as_bytes).collect();
        let (reply, _) = self.run(Way::Shared, &scripts::LEASE.call(events, &arguments)).await?;
        let (rows, position, has_more): (Vec<Row>, Option<String>, bool) = read(reply)?;
        if let Some(position) = position {
            self.listener.read_up_to(position);
        }
        // One that cannot be read is left out, and its lease lapses: it must not hold up others.
        let leased = rows.into_iter().zip(tokens).filter_map(|(row, token)| leased(row, *token).ok());
        Ok((leased.collect(), has_more))
    }

    fn lease_arguments(&self, request: &LeaseRequest<'_>, tokens: &[ClaimToken]) -> Vec<String> {
        let full = |limits: Option<&KindLimits>| {
            let full = limits.iter().flat_map(|limits| limits.left.iter().filter(|(_, left)| **left == 0));
            full.map(|(kind, _)| kind.clone()).collect::<Vec<_>>()
        };
        let (except_endpoints, except_types) = (full(request.per_endpoint), full(request.per_type));
        let endpoints = request.endpoints;
        let numbers = [endpoints, &except_endpoints, &except_types].map(|names| names.len().to_string());
        let mut arguments = vec![
            self.prefix.to_string(),
            tokens.len().to_string(),
            milliseconds(request.lease).min(LONGEST_LEASE).to_string(),
            LAPSED.to_owned(),
        ];
        arguments.extend(numbers);
        arguments.extend(endpoints.iter().chain(&except_endpoints).map(ToString::to_string));
        arguments.extend(except_types.iter().map(|name| text(Some(name))));
        arguments.extend(tokens.iter().map(|token| record::token(*token)));
        arguments
    }
}

impl PutBack for Arc<Shared> {
    fn put_back(&self, events: Vec<Leased>) {
        let shared = self.clone();
        tokio::spawn(async move {
            for event in events {
                let _ = shared.release_leased(&event.key, event.token).await;
            }
        });
    }
}

/// The attempt, whether it is old news, the fingerprint, and what is in the entry.
type Row = (u32, bool, Vec<u8>, Vec<u8>, Vec<u8>);

fn leased((attempt, superseded, fingerprint, parts, body): Row, token: ClaimToken) -> Result<Leased, Fault> {
    let Entry { key, event_type, parcel } = Entry::read(parts, body)?;
    let mut leased = Leased::new(key, token, parcel);
    (leased.attempt, leased.superseded, leased.event_type) = (attempt, superseded, event_type);
    leased.fingerprint = record::read_fingerprint(&fingerprint)?;
    Ok(leased)
}
