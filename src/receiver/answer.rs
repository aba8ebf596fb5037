use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, RETRY_AFTER};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::config::Config;
use super::report;
use crate::EventKey;
use crate::handler::{Failure, HandlerError};
use crate::head::Head;
use crate::outcome::Outcome;
use crate::rejection::{Rejection, RejectionKind};

impl Config {
    /// Answers a refusal with a status, and with nothing that tells one failed check from another.
    pub(super) fn refuse<B>(&self, rejection: Rejection) -> Response<AnswerBody<B>> {
        let answer = match &self.refusal {
            Some(answer) => answer(&rejection, self.status_of(rejection.kind())),
            None => self.plain_refusal(rejection.kind()),
        };
        let mut response = own(answer);
        match rejection.kind().status() {
            StatusCode::SERVICE_UNAVAILABLE => {
                response.headers_mut().entry(RETRY_AFTER).or_insert_with(|| self.retry_after.clone());
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                response.headers_mut().entry(ALLOW).or_insert_with(|| self.allow.clone());
            }
            _ => {}
        }
        with_outcome(response, Outcome::Refused(rejection))
    }

    /// A failed verification gets the scheme's own status, which its sender may understand.
    fn status_of(&self, kind: RejectionKind) -> StatusCode {
        match (kind, kind.status()) {
            (RejectionKind::MissingSignature, _) => self.unsigned_status,
            (_, StatusCode::UNAUTHORIZED) => self.forged_status,
            (_, status) => status,
        }
    }

    /// The status, and no word on why a verification failed.
    fn plain_refusal(&self, kind: RejectionKind) -> Response<Bytes> {
        plain(self.status_of(kind), text(kind.status()))
    }

    /// A request of another method: 405, unless the provider asks whether this endpoint is there.
    pub(super) fn answer_other_method<B>(&self, head: &Head<'_>) -> Response<AnswerBody<B>> {
        match self.scheme.probe(head) {
            Some(Ok(answer)) => {
                report::probe(self, head.parts());
                Self::answer_handshake(answer)
            }
            Some(Err(rejection)) => self.refuse_and_report(rejection, head.parts()),
            None => self.refuse_and_report(RejectionKind::MethodNotAllowed.into(), head.parts()),
        }
    }

    pub(super) fn answer_handshake<B>(answer: Response<Bytes>) -> Response<AnswerBody<B>> {
        with_outcome(own(answer), Outcome::Handshake)
    }

    /// A refusal before the event was known, with its report to telemetry.
    pub(super) fn refuse_and_report<B>(&self, rejection: Rejection, parts: &Parts) -> Response<AnswerBody<B>> {
        report::refusal(self, &rejection, parts, None);
        self.refuse(rejection)
    }

    pub(super) fn answer_duplicate<B>(&self, key: &EventKey) -> Response<AnswerBody<B>> {
        let answer = self.duplicate.as_ref().map_or_else(|| Response::new(Bytes::new()), |answer| answer(key));
        with_outcome(own(answer), Outcome::Duplicate)
    }

    /// The event is stored, so the sender may forget it.
    pub(super) fn answer_accepted<B>(&self) -> Response<AnswerBody<B>> {
        let mut answer = Response::new(Bytes::new());
        if let Some(inbox) = &self.inbox {
            *answer.status_mut() = inbox.accepted_status;
        }
        with_outcome(own(answer), Outcome::Accepted)
    }

    /// The sender must stop sending the event, so it gets a 200 whatever the handler's status was.
    pub(super) fn answer_permanent_failure<B>(outcome: Outcome) -> Response<AnswerBody<B>> {
        with_outcome(own(Response::new(Bytes::new())), outcome)
    }

    /// The sender must send the event again, so it gets an error even if the handler's status was a success.
    pub(super) fn answer_released<B>(failure: Option<&Failure>, outcome: Outcome) -> Response<AnswerBody<B>> {
        let failure = failure.cloned().unwrap_or_else(|| Failure::transient("released"));
        with_outcome(own(HandlerError::from_failure(failure).into()), outcome)
    }

    pub(super) fn answer_panic<B>() -> Response<AnswerBody<B>> {
        with_outcome(own(plain(StatusCode::INTERNAL_SERVER_ERROR, "")), Outcome::Panicked)
    }
}

/// The inner service's response, as it is.
pub(super) fn pass_on<B>(response: Response<B>, outcome: Outcome) -> Response<AnswerBody<B>> {
    with_outcome(response.map(AnswerBody::inner), outcome)
}

fn plain(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    response
}

fn text(status: StatusCode) -> &'static str {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => "method not allowed\n",
        StatusCode::PAYLOAD_TOO_LARGE => "the body is too large\n",
        StatusCode::REQUEST_TIMEOUT => "the body came too slowly\n",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "the body must not have a content encoding\n",
        StatusCode::BAD_REQUEST => "the body cannot be used\n",
        StatusCode::CONFLICT => "the event was delivered before with another body\n",
        StatusCode::SERVICE_UNAVAILABLE => "try again later\n",
        _ => "",
    }
}

#[inline]
fn own<B>(response: Response<Bytes>) -> Response<AnswerBody<B>> {
    response.map(AnswerBody::own)
}

#[inline]
fn with_outcome<B>(mut response: Response<B>, outcome: Outcome) -> Response<B> {
    response.extensions_mut().insert(outcome);
    response
}

pin_project! {
    /// The body of a response: the inner service's, or the layer's own.
    #[derive(Debug)]
    pub struct AnswerBody<B> {
        #[pin]
        source: Source<B>,
    }
}

pin_project! {
    #[project = SourceProjected]
    #[derive(Debug)]
    enum Source<B> {
        Inner { #[pin] body: B },
        Own { unsent: Bytes },
    }
}

impl<B> AnswerBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self { source: Source::Inner { body } }
    }

    pub(super) fn own(bytes: Bytes) -> Self {
        Self { source: Source::Own { unsent: bytes } }
    }
}

/// An empty body, which layers such as tower-http's `TimeoutLayer` answer with.
impl<B> Default for AnswerBody<B> {
    fn default() -> Self {
        Self::own(Bytes::new())
    }
}

impl<B: Body<Data = Bytes>> Body for AnswerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().source.project() {
            SourceProjected::Inner { body } => body.poll_frame(cx),
            SourceProjected::Own { unsent } if unsent.is_empty() => Poll::Ready(None),
            SourceProjected::Own { unsent } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(unsent))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Inner { body } => body.is_end_stream(),
            Source::Own { unsent } => unsent.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Inner { body } => body.size_hint(),
            Source::Own { unsent } => SizeHint::with_exact(unsent.len() as u64),
        }
    }
}
