//! Diagnoses refused deliveries for the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use tokio::runtime::Handle;

use super::endpoint::EndpointName;
use crate::clock::Clock;
use crate::head::Head;
use crate::rejection::{Rejection, RejectionKind};
use crate::route;
use crate::scheme::{Effort, Refused, Scheme, Suspects, investigate};
use crate::secrets::{Found, SecretSet};
use crate::telemetry::{self, Delivered};
use crate::throttle::{Shortened, Throttles};

/// The most work of one diagnosis: as much as it is to hash this many bytes.
const EFFORT: Effort = Effort::of_bytes(16 * 1024 * 1024);

/// Diagnoses one delivery at a time, and one a minute for each endpoint: anyone can send deliveries that are refused.
pub(super) struct Explainer {
    suspects: Suspects,
    endpoints: Throttles<()>,
    is_busy: AtomicBool,
}

impl Explainer {
    pub(super) fn new(suspects: Suspects) -> Self {
        Self { suspects, endpoints: Throttles::default(), is_busy: AtomicBool::new(false) }
    }

    /// The turn to diagnose a delivery, if none is being diagnosed and it is time for one of this endpoint.
    fn turn(self: &Arc<Self>, endpoint: &str, now: Instant) -> Option<Turn> {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            return None;
        }
        let turn = Turn(self.clone());
        self.endpoints.count(endpoint, (), now).map(|_| turn)
    }

    /// Diagnoses a refused delivery in a task of its own, if it is time and anything records the diagnosis.
    pub(super) fn explain(
        self: &Arc<Self>,
        scheme: &Arc<dyn Scheme>,
        endpoint: &EndpointName,
        clock: &dyn Clock,
        refused: RefusedDelivery,
    ) {
        if !telemetry::tells_refusals() || !is_failed_verification(refused.rejection.kind()) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let Some(turn) = self.turn(endpoint.of(&refused.parts, scheme.name()), clock.monotonic()) else { return };
        runtime.spawn(diagnose(turn, scheme.clone(), endpoint.clone(), refused));
    }
}

/// The right to diagnose. While it lives, no other delivery is diagnosed.
struct Turn(Arc<Explainer>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}

/// A delivery that was refused, and whose sender has its answer.
pub(super) struct RefusedDelivery {
    pub(super) rejection: Rejection,
    pub(super) parts: Parts,
    pub(super) received_at: SystemTime,
    /// The whole body, if it was read before the delivery was refused.
    pub(super) body: Option<Bytes>,
}

async fn diagnose(turn: Turn, scheme: Arc<dyn Scheme>, endpoint: EndpointName, refused: RefusedDelivery) {
    let (secrets, tenant) = secrets_for(&*scheme, &refused).await;
    let explainer = turn.0.clone();
    // In a thread for work that blocks: no delivery waits for it.
    let investigating = tokio::task::spawn_blocking(move || {
        let RefusedDelivery { rejection, parts, received_at, body } = &refused;
        let head = Head::new(parts, *received_at);
        let of_scheme = Refused { head, body: body.as_deref(), rejection: rejection.clone(), secrets };
        (investigate(&*scheme, &of_scheme, &explainer.suspects, EFFORT), scheme, refused)
    });
    // A scheme that panics explains nothing.
    if let Ok((diagnosis, scheme, refused)) = investigating.await {
        let about = Delivered {
            endpoint: Some(endpoint.of(&refused.parts, scheme.name())),
            scheme: Some(scheme.name()),
            tenant: tenant.as_deref().map(Shortened),
            path: Some(Shortened(route::requested_uri(&refused.parts).path())),
            ..Delivered::UNKNOWN
        };
        telemetry::diagnosed(refused.rejection.kind().as_str(), &diagnosis, &about);
    }
}

/// The scheme's secrets for a delivery, and its tenant. For one whose body was not read, none is looked up.
async fn secrets_for(scheme: &dyn Scheme, refused: &RefusedDelivery) -> (Option<Arc<SecretSet>>, Option<Arc<str>>) {
    let nothing = (None, None);
    if refused.body.is_none() {
        return nothing;
    }
    match scheme.secrets().begin(&Head::new(&refused.parts, refused.received_at)) {
        Ok(Found::Now(set)) => (Some(Arc::clone(&set)), None),
        Ok(Found::Later(lookup)) => lookup.await.map_or(nothing, |found| (Some(found.set), found.tenant)),
        Err(_) => nothing,
    }
}

/// Whether a diagnosis can find out more than the rejection says.
fn is_failed_verification(kind: RejectionKind) -> bool {
    matches!(kind, RejectionKind::SignatureMismatch | RejectionKind::Stale | RejectionKind::Early)
}
