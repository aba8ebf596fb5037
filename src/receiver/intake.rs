use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderName, Request, Response};
use http_body::{Body, Frame};

use super::config::Config;
use crate::EventKey;
use crate::head::Head;
use crate::identity::{Identity, identify};
use crate::machine::{ClaimState, Deadline, InboxLedger, Ledger, ReplayGuard};
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::{Proof, Verified, Verifying};
use crate::secrets::{Found, Lookup, SecretSet};
use crate::store::{BodyHashes, ClaimToken, Fingerprint};
use crate::telemetry;

/// The first allocation for a body in several frames is no larger than this, whatever length was announced.
const FIRST_BUFFER: usize = 64 * 1024;

/// How many frames are taken before other tasks have their turn.
const FRAMES_AT_ONCE: usize = 64;

/// A delivery whose body is arriving: nothing is stored yet, and dropping it costs nothing.
pub(super) struct Intake {
    pub(super) parts: Parts,
    pub(super) received_at: SystemTime,
    checking: Checking,
    pub(super) tenant: Option<Arc<str>>,
    body: Gathered,
    deadline: Deadline,
}

/// How far the verification has come.
enum Checking {
    LookingUp(Proof, Lookup),
    Verifying(Verifying),
    /// The whole body is here, and does not verify.
    Refused(Bytes),
    /// No verification is in progress.
    Idle,
}

/// A genuine delivery: an event or a handshake.
pub(super) enum Arrived {
    Event(ArrivedEvent),
    /// No event: the provider checks whether this endpoint answers as it should.
    Handshake(Response<Bytes>),
}

/// A genuine event, once its whole body is here.
pub(super) struct ArrivedEvent {
    pub(super) body: Bytes,
    pub(super) claim: Arc<ClaimState>,
    pub(super) guard: Option<Box<ReplayGuard>>,
    pub(super) verified: Verified,
}

impl Intake {
    pub(super) fn new(parts: Parts, now: SystemTime, deadline: Deadline) -> Self {
        Self { received_at: now, checking: Checking::Idle, tenant: None, body: Gathered::default(), deadline, parts }
    }

    /// Takes the secrets for this delivery, or begins to look them up.
    pub(super) fn begin(&mut self, config: &Config, proof: Proof) -> Result<(), Rejection> {
        match config.scheme.secrets().begin(&Head::new(&self.parts, self.received_at))? {
            Found::Now(set) => self.found(proof, &set)?,
            Found::Later(lookup) => self.checking = Checking::LookingUp(proof, lookup),
        }
        Ok(())
    }

    fn found(&mut self, proof: Proof, secrets: &Arc<SecretSet>) -> Result<(), Rejection> {
        self.checking = Checking::Verifying(Verifying::start(proof, secrets, self.received_at)?);
        Ok(())
    }

    /// Ready once the whole body is here and fed to the MACs.
    pub(super) fn poll_collected<B>(
        &mut self,
        mut body: Pin<&mut B>,
        limit: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Rejection>>
    where
        B: Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        ready!(self.poll_secrets(cx))?;
        for _ in 0..FRAMES_AT_ONCE {
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.take(frame, limit)?,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(unreadable(&*error.into()))),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    return self.deadline.poll_over(cx).map(|()| Err(RejectionKind::BodyTooSlow.into()));
                }
            }
            if body.is_end_stream() {
                return Poll::Ready(Ok(()));
            }
        }
        // A body that is never pending must not keep the thread for itself, nor outrun its deadline.
        cx.waker().wake_by_ref();
        self.deadline.poll_over(cx).map(|()| Err(RejectionKind::BodyTooSlow.into()))
    }

    fn poll_secrets(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Rejection>> {
        let Checking::LookingUp(_, lookup) = &mut self.checking else { return Poll::Ready(Ok(())) };
        let snapshot = ready!(lookup.as_mut().poll(cx))?;
        let Checking::LookingUp(proof, _) = std::mem::replace(&mut self.checking, Checking::Idle) else {
            return Poll::Ready(Ok(()));
        };
        self.tenant = snapshot.tenant;
        Poll::Ready(self.found(proof, &snapshot.set))
    }

    /// Keeps one frame and feeds it to the MACs. Trailers are dropped: nothing signed them.
    fn take<D: Buf>(&mut self, frame: Frame<D>, limit: usize) -> Result<(), Rejection> {
        let Ok(mut data) = frame.into_data() else { return Ok(()) };
        if data.remaining() > limit.saturating_sub(self.body.len()) {
            return Err(RejectionKind::BodyTooLarge.into());
        }
        // For `Bytes`, which is what servers send, this is no copy.
        let data = data.copy_to_bytes(data.remaining());
        if let Checking::Verifying(verifying) = &mut self.checking {
            verifying.feed(&data);
        }
        self.body.push(data);
        Ok(())
    }

    /// Verifies the complete body: the signature first, then which event it carries.
    pub(super) fn finish(&mut self, config: &Config) -> Result<Arrived, Rejection> {
        let Checking::Verifying(verifying) = &mut self.checking else {
            return Err(RejectionKind::SecretsUnavailable.into());
        };
        let body = std::mem::take(&mut self.body).into_bytes();
        let head = Head::new(&self.parts, self.received_at);
        let verified = match verifying.finish(&*config.scheme, &head, &body) {
            Ok(verified) => verified,
            Err(rejection) => {
                self.checking = Checking::Refused(body);
                return Err(rejection);
            }
        };
        self.checking = Checking::Idle;
        if let Some(answer) = config.scheme.handshake(&body, verified.key()) {
            return Ok(Arrived::Handshake(answer));
        }
        let identity = identify(&config.id, &config.event_type, &head, &body, verified.id())?;
        let (claim, guard) = self.prepare_claim(config, &head, &verified, identity, &body);
        Ok(Arrived::Event(ArrivedEvent { body, claim: Arc::new(claim), guard, verified }))
    }

    /// The head of a refused delivery, and its body if that was read.
    pub(super) fn take_refused(&mut self) -> (Parts, Option<Bytes>) {
        let (nothing, ()) = Request::default().into_parts();
        let body = match std::mem::replace(&mut self.checking, Checking::Idle) {
            Checking::Refused(body) => Some(body),
            _ => None,
        };
        (std::mem::replace(&mut self.parts, nothing), body)
    }

    /// The claim that this delivery is going to ask for, and its replay guard. An event without an id is known by its
    /// claim's token.
    fn prepare_claim(
        &self,
        config: &Config,
        head: &Head<'_>,
        verified: &Verified,
        identity: Identity<'_>,
        body: &Bytes,
    ) -> (ClaimState, Option<Box<ReplayGuard>>) {
        let tenant = self.tenant.as_deref();
        let endpoint = config.endpoint.of_event(&self.parts, config.scheme.name(), tenant.is_some());
        let event_type = identity.event_type.map(|text| Box::from(&*text));
        let token = ClaimToken::random();
        let deduplicated = identity.id.is_some();
        let guards = config.guard_window(verified.coverage()).filter(|_| deduplicated);
        let (key, fingerprint) = match &identity.id {
            Some(id) => {
                let key = EventKey::new(endpoint, tenant, id);
                let hashes = BodyHashes::of(&key, body);
                // The replay guard refuses what this would hint at.
                if telemetry::IS_ON && guards.is_none() && config.id.is_beside_the_body() {
                    self.note_body(config, &key, event_type.as_deref(), hashes, verified);
                }
                (key, Fingerprint::from_hashes(hashes))
            }
            None => (EventKey::new(endpoint, tenant, &token.to_string()), Fingerprint::default()),
        };
        let ledger: Arc<dyn Ledger> = match &config.inbox {
            Some(inbox) => {
                let facts = config.stored_facts(verified, deduplicated);
                let identifies = |name: &HeaderName| config.id.reads(name) || config.event_type.reads(name);
                let request = inbox.stored_request((&self.parts, head), body, &key, &facts, identifies);
                Arc::new(InboxLedger { queue: inbox.queue.clone(), request })
            }
            None if deduplicated => config.inline.clone(),
            None => config.no_id.clone(),
        };
        let guard = guards.map(|window| {
            // No signature covers a type in a header: it only counts where two types may share their bytes.
            let event_type = event_type.as_deref().filter(|_| config.id.is_typed());
            Box::new(ReplayGuard::new(&key, event_type, body, window))
        });
        let claim = ClaimState::new(ledger, key, token, fingerprint).typed(event_type).deduplicated(deduplicated);
        (claim, guard)
    }
}

impl Intake {
    /// Tells the operator if this body came under another id shortly before.
    fn note_body(
        &self,
        config: &Config,
        key: &EventKey,
        event_type: Option<&str>,
        hashes: BodyHashes,
        verified: &Verified,
    ) {
        let event_type = event_type.filter(|_| config.id.is_typed());
        if config.advice.is_body_of_another_id(key, event_type, hashes, self.received_at) {
            let id_is_signed = config.id.is_authenticated_by(verified.coverage());
            config.advice.body_under_two_ids(key, config.scheme.name(), id_is_signed, config.clock.monotonic());
        }
    }
}

/// A body cut short, or cut off by an outer layer's limit.
fn unreadable(error: &(dyn std::error::Error + 'static)) -> Rejection {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return RejectionKind::BodyTooLarge.into();
        }
        cause = error.source();
    }
    RejectionKind::BodyIncomplete.into()
}

/// The body so far. The frame of a body that comes in one is kept as it is.
#[derive(Default)]
struct Gathered {
    first: Bytes,
    rest: BytesMut,
}

impl Gathered {
    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.rest.is_empty() {
            self.rest.reserve((self.first.len() + data.len()).max(FIRST_BUFFER.min(4 * self.first.len())));
            self.rest.put(std::mem::take(&mut self.first));
        }
        self.rest.put(data);
    }

    fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}
