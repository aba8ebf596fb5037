use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::answer::AnswerBody;
use super::delivery::{Delivery, Reply};
use super::intake::Arrived;
use crate::machine::DetachOnDrop;

pin_project! {
    /// One delivery on its way to an answer.
    ///
    /// Dropped before the event is claimed, it leaves nothing behind. Dropped later, it goes on in a task of its own.
    pub struct ResponseFuture<S, B, R>
    where
        S: Service<Request<Full<Bytes>>>,
        S::Error: Send,
        S::Error: 'static,
        R: Send,
        R: 'static,
    {
        #[pin]
        stage: Stage<B, S, Reply<R, S::Error>>,
    }
}

pin_project! {
    #[project = StageProjected]
    enum Stage<B, S, T>
    where
        T: Send,
        T: 'static,
    {
        Answered { response: Option<T> },
        Collecting {
            #[pin]
            body: B,
            // Boxed, so that a refusal is a small future, and nothing of it is copied from stage to stage.
            delivery: Option<Box<Delivery<S>>>,
        },
        Running { running: DetachOnDrop<T> },
        PassingOn { answer: Pin<Box<dyn Future<Output = T> + Send>> },
    }
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<Full<Bytes>>>,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    pub(super) fn answered(response: Response<AnswerBody<R>>) -> Self {
        Self { stage: Stage::Answered { response: Some(Ok(response)) } }
    }

    pub(super) fn collecting(body: B, delivery: Box<Delivery<S>>) -> Self {
        Self { stage: Stage::Collecting { body, delivery: Some(delivery) } }
    }
}

impl<S, B, R> ResponseFuture<S, B, R>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    /// Calls the inner service with the request of a worker: its event is verified, claimed and settled elsewhere.
    pub(super) fn passing_on(mut inner: S, request: Request<Full<Bytes>>) -> Self {
        let answer = Box::pin(async move {
            poll_fn(|cx| inner.poll_ready(cx)).await?;
            inner.call(request).await.map(|response| response.map(AnswerBody::inner))
        });
        Self { stage: Stage::PassingOn { answer } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B, R>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: Send + 'static,
{
    type Output = Reply<R, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            match stage.as_mut().project() {
                StageProjected::Answered { response } => {
                    return response.take().map_or(Poll::Pending, Poll::Ready);
                }
                StageProjected::Collecting { body, delivery } => {
                    let Some(here) = delivery else { return Poll::Pending };
                    let collected = ready!(here.poll_collected(body, cx));
                    let Some(mut here) = delivery.take() else { return Poll::Pending };
                    match collected.and_then(|()| here.finish()) {
                        Ok(Arrived::Event(event)) => stage.set(Stage::Running { running: here.start(event) }),
                        Ok(Arrived::Handshake(answer)) => return Poll::Ready(Ok(here.greet(answer))),
                        Err(rejection) => return Poll::Ready(Ok(here.refuse(rejection))),
                    }
                }
                StageProjected::Running { running } => return Pin::new(running).poll(cx),
                StageProjected::PassingOn { answer } => return answer.as_mut().poll(cx),
            }
        }
    }
}

impl<S, B, R> fmt::Debug for ResponseFuture<S, B, R>
where
    S: Service<Request<Full<Bytes>>>,
    S::Error: Send + 'static,
    R: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
