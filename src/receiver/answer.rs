use bytes::Bytes;
use http::header::{ALLOW, RETRY_AFTER};
use http::{Response, StatusCode};

use super::body::AnswerBody;
use super::config::Config;
use crate::EventKey;
use crate::handler::{Failure, HandlerError};
use crate::head::Head;
use crate::outcome::Outcome;
use crate::rejection::{Rejection, RejectionKind};
use crate::telemetry::{self, Delivered};

impl Config {
    /// What the sender learns of a refusal: a status, and nothing that tells one failed check from another.
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

    /// What failed verification gets the scheme's own status, which its sender may understand.
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
                telemetry::delivered(&Outcome::Handshake, &Delivered::UNKNOWN);
                Self::answer_handshake(answer)
            }
            Some(Err(rejection)) => self.refuse_and_tell(rejection),
            None => self.refuse_and_tell(RejectionKind::MethodNotAllowed.into()),
        }
    }

    pub(super) fn answer_handshake<B>(answer: Response<Bytes>) -> Response<AnswerBody<B>> {
        with_outcome(own(answer), Outcome::Handshake)
    }

    /// A refusal before the event was known, with its one word to the operator.
    pub(super) fn refuse_and_tell<B>(&self, rejection: Rejection) -> Response<AnswerBody<B>> {
        let response = self.refuse(rejection.clone());
        telemetry::delivered(&Outcome::Refused(rejection), &Delivered::UNKNOWN);
        response
    }

    pub(super) fn answer_duplicate<B>(&self, key: &EventKey) -> Response<AnswerBody<B>> {
        let answer = self.duplicate.as_ref().map_or_else(|| Response::new(Bytes::new()), |answer| answer(key));
        with_outcome(own(answer), Outcome::Duplicate)
    }

    /// The event is kept: as far as the sender is concerned, it is done.
    pub(super) fn answer_accepted<B>(&self) -> Response<AnswerBody<B>> {
        let mut answer = Response::new(Bytes::new());
        if let Some(inbox) = &self.inbox {
            *answer.status_mut() = inbox.accepted_status;
        }
        with_outcome(own(answer), Outcome::Accepted)
    }

    /// The sender is to stop, so it gets a 200 whatever the handler's status was.
    pub(super) fn answer_permanent_failure<B>(outcome: Outcome) -> Response<AnswerBody<B>> {
        with_outcome(own(Response::new(Bytes::new())), outcome)
    }

    /// The sender is to try again, whatever success the handler's status suggests.
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
