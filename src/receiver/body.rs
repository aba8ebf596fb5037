use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

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
