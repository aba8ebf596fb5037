//! Tells when the server has seen a part of a body, and when it is done with a request.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http_body_util::BodyExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::support::Receiver;
use crate::support::socket::PATIENCE;

pub(crate) struct Watch {
    frames: UnboundedReceiver<()>,
    ends: UnboundedReceiver<()>,
}

/// The receiver's app, and a watch over it.
pub(crate) fn watched(receiver: &Receiver) -> (Router, Watch) {
    let (frame, frames) = unbounded_channel();
    let (end, ends) = unbounded_channel();
    let watching = from_fn(move |request: Request, next: Next| {
        let (frame, end) = (frame.clone(), SendOnDrop(end.clone()));
        async move {
            let _end = end;
            next.run(request.map(|body| telling(body, frame))).await
        }
    });
    (receiver.app.clone().layer(watching), Watch { frames, ends })
}

impl Watch {
    /// The next frame of a body was read.
    pub(crate) async fn frame(&mut self) {
        tokio::time::timeout(PATIENCE, self.frames.recv()).await.expect("a frame");
    }

    /// The next request was answered or given up.
    pub(crate) async fn end(&mut self) {
        tokio::time::timeout(PATIENCE, self.ends.recv()).await.expect("an end");
    }
}

fn telling(body: Body, frames: UnboundedSender<()>) -> Body {
    Body::new(body.map_frame(move |frame| {
        let _ = frames.send(());
        frame
    }))
}

struct SendOnDrop(UnboundedSender<()>);

impl Drop for SendOnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}
