//! The replay guard: a body passes under the id that it first came with, and under no other.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::context::Context;
use crate::EventKey;
use crate::identity::typed_digest;
use crate::key::RESERVED;
use crate::rejection::RejectionKind;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold};

/// A second key beside the event's own: the body and the type, bound to the id that they came under first.
#[derive(Debug)]
pub(crate) struct ReplayGuard {
    /// The event's endpoint and tenant, and `tower-webhook:replay-guard:` with a SHA-256 in hex for the id. No event
    /// has such an id, because ids that begin like that are refused.
    pub(crate) key: EventKey,
    /// One for all deliveries under one id: whichever of them comes next takes up what another left unfinished.
    pub(crate) token: ClaimToken,
    /// Of the id: the store's "other body" means "other id" here. Cut from a cryptographic hash, because whoever
    /// replays can pick an id at leisure; bound to the body, so that the search for one serves a single delivery.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) window: Duration,
}

impl ReplayGuard {
    /// Guards the event with this key.
    pub(crate) fn new(event: &EventKey, event_type: Option<&str>, body: &[u8], window: Duration) -> Self {
        let digest = typed_digest(event_type, body);
        let id = format!("{RESERVED}replay-guard:{}", hex::encode(digest));
        let bound = Sha256::new().chain_update(digest).chain_update(event.id()).finalize();
        let (mut short, mut token) = ([0; 8], [0; 16]);
        short.copy_from_slice(&bound[..8]);
        token.copy_from_slice(&bound[8..24]);
        Self {
            key: EventKey::new(event.endpoint(), event.tenant(), &id),
            token: ClaimToken::from_bytes(token),
            fingerprint: Fingerprint::from_u64(u64::from_be_bytes(short)),
            window,
        }
    }

    /// The claim that binds the body to the id.
    pub(crate) fn request<'a>(&'a self, event_type: Option<&'a str>, lease: Duration) -> ClaimRequest<'a> {
        ClaimRequest::new(&self.key, self.token, lease).fingerprint(self.fingerprint).event_type(event_type)
    }
}

/// Lets a body pass under the id that it first came with, and under no other.
///
/// This comes before the claim of the event: if the process ends in between, the sender's retry has the same id and
/// passes. For the same reason nothing has to be undone if this is dropped or if the store fails half-way.
pub(super) async fn pass(cx: &Context<'_>, guard: &ReplayGuard) -> Result<(), RejectionKind> {
    let request = guard.request(cx.claim.event_type.as_deref(), cx.terms.lease);
    match cx.ask("claim for the replay guard", cx.machine.store.claim(&request)).await {
        Some(Claim::Fresh { .. }) => bind(cx, &request, guard.window).await,
        Some(
            Claim::InFlight { same_body: same_id }
            | Claim::Accepted { same_body: same_id }
            | Claim::Completed { same_body: same_id },
        ) => same_id.then_some(()).ok_or(RejectionKind::Replayed),
        None => Err(RejectionKind::StoreUnavailable),
    }
}

/// Remembers under which id the body came.
async fn bind(cx: &Context<'_>, claim: &ClaimRequest<'_>, window: Duration) -> Result<(), RejectionKind> {
    let completion = Completion::succeeded("replay guard", window);
    match cx.ask("complete for the replay guard", cx.machine.store.complete(claim, &completion)).await {
        Some(Hold::Held) => Ok(()),
        // Another id took the claim over after a lease's time, or so it seems: the sender's retry finds out.
        Some(Hold::Lost) | None => Err(RejectionKind::StoreUnavailable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn guard(tenant: Option<&str>, id: &str, event_type: Option<&str>, body: &str) -> ReplayGuard {
        ReplayGuard::new(&EventKey::new("/hook", tenant, id), event_type, body.as_bytes(), WINDOW)
    }

    #[test]
    fn one_body_and_type_have_one_key_whatever_the_id() {
        let (one, other) = (guard(None, "a", Some("t"), "x"), guard(None, "b", Some("t"), "x"));
        assert_eq!(one.key, other.key);
        assert_ne!((one.token, one.fingerprint), (other.token, other.fingerprint));
        let again = guard(None, "a", Some("t"), "x");
        assert_eq!((one.token, one.fingerprint), (again.token, again.fingerprint));
    }

    #[test]
    fn other_bodies_types_and_tenants_have_other_keys() {
        let one = guard(None, "a", Some("t"), "x");
        for other in [
            guard(None, "a", Some("t"), "y"),
            guard(None, "a", Some("u"), "x"),
            guard(None, "a", None, "x"),
            guard(Some("tenant"), "a", Some("t"), "x"),
        ] {
            assert_ne!(one.key, other.key);
        }
        assert_ne!(one.fingerprint, guard(None, "a", Some("t"), "y").fingerprint, "bound to the body");
    }

    #[test]
    fn key_is_the_endpoints_with_an_id_that_no_event_has() {
        let guard = guard(Some("tenant"), "a", None, "x");
        assert_eq!((guard.key.endpoint(), guard.key.tenant()), ("/hook", Some("tenant")));
        let digest = guard.key.id().strip_prefix("tower-webhook:replay-guard:").expect("the reserved prefix");
        assert_eq!(digest, hex::encode(typed_digest(None, b"x")));
    }
}
