use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use tokio::time::Instant;

use super::admission::{Admission, Phase};
use super::deadline::{either, unless};
use super::renewal::Renewal;
use super::{Claimant, Ended, Machine, NotReady, Terms, Verdict, Work, within};
use crate::claimant::Stage;
use crate::rejection::RejectionKind;
use crate::store::erased::Setback;

const PANICKED: Setback = Setback::new("the handler panicked");
const NOT_READY: Setback = Setback::before_the_call("the inner service refused to become ready");
const PANICKED_NOT_READY: Setback = Setback::before_the_call("the inner service panicked before it was ready");

/// A delivery that holds its claim and a place to run in.
pub(super) struct Run<'a> {
    pub(super) machine: &'a Arc<Machine>,
    pub(super) terms: &'a Terms,
    pub(super) claimant: &'a Arc<Claimant>,
    /// Unless whoever resumed it holds one, or the settlement goes on in the background with it.
    pub(super) admission: Option<Admission>,
    /// When the claim was asked for: its lease began then, or later.
    pub(super) since: Instant,
}

/// How the work itself ended.
enum Worked {
    Done,
    NotReady,
    Panicked,
    /// Not begun or dropped half-way, because of the drain's deadline, a lost claim, or no place to run in.
    Dropped(RejectionKind),
}

impl Run<'_> {
    /// Works, and settles whatever the end.
    pub(super) async fn finish<W: Work>(&mut self, work: &mut W) -> Ended {
        let unsettled = Unsettled(self);
        let (worked, verdict) = self.work(work).await;
        self.claimant.enter(Stage::Settling);
        unsettled.settling();
        let settled = self.settle(&verdict).await;
        match worked {
            Worked::Done => Ended::Ran(settled),
            Worked::NotReady => Ended::NotReady(Some(settled)),
            Worked::Panicked => Ended::Panicked(settled),
            Worked::Dropped(why) => Ended::Refused(why.into()),
        }
    }

    /// Polls the work with panics caught. The first time that it is pending, the lease's renewal is started and the
    /// reasons to stop half-way are listened to; work that never is costs neither.
    async fn work<W: Work>(&self, work: &mut W) -> (Worked, Verdict) {
        // The claim may have been answered after the drain's deadline.
        if self.machine.gate.is_at(Phase::Aborting) {
            return (Worked::Dropped(RejectionKind::Draining), Verdict::Release(None));
        }
        let is_ready = AtomicBool::new(false);
        let mut working = pin!(async {
            // Ready already, unless the claim was taken over after waiting without a place.
            match within(self.terms.ready_wait, work.ready()).await {
                Some(Ok(())) => {
                    is_ready.store(true, Ordering::Relaxed);
                    (Worked::Done, work.run().await)
                }
                Some(Err(NotReady)) => (Worked::NotReady, Verdict::Release(Some(NOT_READY))),
                None => (Worked::Dropped(RejectionKind::Busy), Verdict::Release(None)),
            }
        });
        let caught = pin!(poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| working.as_mut().poll(cx)));
            polled.unwrap_or_else(|_| {
                let setback = if is_ready.load(Ordering::Relaxed) { PANICKED } else { PANICKED_NOT_READY };
                Poll::Ready((Worked::Panicked, Verdict::Release(Some(setback))))
            })
        }));
        let renewal = OnceLock::new();
        let worked = unless(caught, || async {
            let begun = || Renewal::start(self.machine, self.terms, self.claimant, self.since + self.terms.lease / 3);
            (Worked::Dropped(self.until_stopped(renewal.get_or_init(begun)).await), Verdict::Release(None))
        })
        .await;
        if let Some(renewal) = renewal.into_inner() {
            renewal.end().await;
        }
        worked
    }

    /// Ready when the work is to be dropped half-way.
    async fn until_stopped(&self, renewal: &Renewal) -> RejectionKind {
        let aborted = async {
            self.machine.gate.reached(Phase::Aborting).await;
            RejectionKind::Draining
        };
        let lost = async {
            renewal.lost().await;
            if !self.terms.drop_when_lost {
                std::future::pending::<()>().await;
            }
            RejectionKind::ClaimLost
        };
        either(aborted, lost).await
    }
}

/// Work that nobody has settled. Dropped in that state, its claim is released in the background.
struct Unsettled<'a>(&'a Run<'a>);

impl Unsettled<'_> {
    /// From here on the settlement is under way, and is the one to finish.
    fn settling(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        self.0.machine.release_in_background(self.0.terms, self.0.claimant);
    }
}
