//! Telling the store how the work ended.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use super::admission::{Admission, Phase};
use super::claim_state::Stage;
use super::context::{Context, DetachedContext};
use super::detach::in_background;
use super::ledger::Settlement;
use super::run::Renewal;
use super::timing::{Backoff, either, unless};
use super::verdict::{CompletionRecord, RetryReason, Verdict};
use super::waiters::FirstEnded;
use crate::store::{COMMITTED, Hold, NOT_COMMITTED, StoreErrorKind};
use crate::telemetry;

/// Pauses between attempts to reach a store that is away.
const AWAY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// Pauses while a transaction holds the record.
const LOCKED_PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(200)];

/// The machine waits no longer for a store that is away: it tells the operator that the event may run again.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3600);

/// How the claim was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Completed,
    /// The work is done. The store cannot be told, and is asked again in the background.
    CompletionPending,
    /// Completed as permanently failed.
    Failed,
    /// Released. An inline claim is one, too, if the store could not be asked: its lease ends by itself.
    Released,
    /// The handler answered as if it had committed the completion, and had not: released.
    NotCommitted,
    /// The store cannot say what became of the claim.
    Unknown,
    /// Another delivery took the claim over: what this one did is not the event's outcome, be it done or failed.
    Lost,
}

/// Settles the claim as the verdict says. A settlement that goes on in the background takes the admission with it.
pub(super) async fn settle(cx: &Context<'_>, admission: &mut Option<Admission>, verdict: Verdict) -> Settled {
    let settled = if cx.claim.is_enlisted() {
        // Boxed: it is large, few handlers enlist, and every delivery's future would be as large.
        Box::pin(settle_enlisted(cx, &verdict)).await
    } else {
        match &verdict {
            Verdict::Complete(record) => complete(cx, admission, &verdict, record).await,
            Verdict::Release(_) => release(cx, admission, &verdict).await,
        }
    };
    if settled == Settled::Failed {
        tell_of_failure(cx, &verdict);
    }
    settled
}

/// Calls the hook for an event that the store has remembered as failed.
fn tell_of_failure(cx: &Context<'_>, verdict: &Verdict) {
    if let (Some(hook), Verdict::Complete(CompletionRecord { failed: true, summary })) =
        (&cx.terms.on_permanent, verdict)
    {
        hook.call(cx.claim, summary);
    }
}

async fn complete(
    cx: &Context<'_>,
    admission: &mut Option<Admission>,
    verdict: &Verdict,
    record: &CompletionRecord,
) -> Settled {
    let hold = complete_first(cx, verdict, record).await;
    if hold != Some(Hold::Lost) {
        // The work is done, though the store may not have been told: duplicates that wait for it are told.
        cx.machine.waiters.ended(&cx.claim.key, FirstEnded::Completed);
    }
    let hold = match hold {
        Some(hold) => Some(hold),
        None => {
            let retry = Retry::new(cx, admission.take(), verdict);
            if !cx.terms.settle_in_place {
                tokio::spawn(async move {
                    if retry.until_settled().await == Some(Hold::Held) {
                        tell_of_failure(&retry.detached.context(), &retry.verdict);
                    }
                });
                return Settled::CompletionPending;
            }
            // Boxed: it is large and rare.
            Box::pin(retry.until_settled()).await
        }
    };
    match hold {
        Some(Hold::Held) if record.failed => Settled::Failed,
        Some(Hold::Held) => Settled::Completed,
        Some(Hold::Lost) => {
            cx.claim.mark_lost();
            Settled::Lost
        }
        None => Settled::Unknown,
    }
}

/// The first attempt to complete. A store that does not answer at once may take longer than the lease: this process
/// remembers that the work is done until the store does.
async fn complete_first(cx: &Context<'_>, verdict: &Verdict, record: &CompletionRecord) -> Option<Hold> {
    let completing = pin!(ask_once(cx, verdict));
    let hold = unless(completing, || {
        cx.machine.pending.remember(cx.claim, record);
        std::future::pending()
    })
    .await;
    match hold {
        Some(_) => cx.machine.pending.forget(cx.claim),
        None => cx.machine.pending.remember(cx.claim, record),
    }
    hold
}

async fn release(cx: &Context<'_>, admission: &mut Option<Admission>, verdict: &Verdict) -> Settled {
    let mut released = release_once(cx, verdict).await;
    // A worker repeats the release, since only it knows how the attempt ended, and whether the handler was called at
    // all.
    if released.is_none() && cx.terms.settle_in_place {
        let retry = Retry::new(cx, admission.take(), verdict);
        released = Box::pin(retry.until_settled()).await;
    }
    match released {
        Some(Hold::Held) => Settled::Released,
        Some(Hold::Lost) => Settled::Lost,
        None if cx.terms.settle_in_place => Settled::Unknown,
        // An inline release is not repeated: the sender retries, and the lease ends by itself.
        None => Settled::Released,
    }
}

/// One attempt to release. If the store cannot be asked, the lease ends by itself.
async fn release_once(cx: &Context<'_>, verdict: &Verdict) -> Option<Hold> {
    cx.claim.mark_lost();
    let released = ask_once(cx, verdict).await;
    // If the claim was lost, another delivery runs the event now: duplicates wait for that one.
    if released != Some(Hold::Lost) {
        cx.machine.waiters.ended(&cx.claim.key, FirstEnded::Failed);
    }
    released
}

/// Releases the claim from where nothing can be awaited.
pub(super) fn release_in_background(cx: &Context<'_>) {
    // At once, and not when the release is through: the handler may have passed its event on.
    cx.claim.mark_lost();
    cx.claim.set_stage(Stage::NothingToDo);
    let (detached, admission) = (cx.detached(), cx.machine.hold());
    in_background(async move {
        release_once(&detached.context(), &Verdict::Release(None)).await;
        drop(admission);
    });
}

/// One attempt to settle; `None` if the store could not be asked.
async fn ask_once(cx: &Context<'_>, verdict: &Verdict) -> Option<Hold> {
    let request = cx.request();
    cx.ask(verb(verdict), cx.ledger().settle(&request, settlement(cx, verdict))).await
}

fn settlement<'a>(cx: &Context<'_>, verdict: &'a Verdict) -> Settlement<'a> {
    Settlement { verdict, attempt: cx.claim.attempt(), retention: cx.terms.retention }
}

/// The verb's name in telemetry.
const fn verb(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Complete(_) => "complete",
        Verdict::Release(_) => "release",
    }
}

/// A settlement that the store could not be told of. It keeps the admission, so that the drain waits for it.
struct Retry {
    detached: DetachedContext,
    verdict: Verdict,
    _admission: Option<Admission>,
}

impl Retry {
    fn new(cx: &Context<'_>, admission: Option<Admission>, verdict: &Verdict) -> Self {
        Self { detached: cx.detached(), verdict: verdict.clone(), _admission: admission }
    }

    /// Asks until the store confirms or refuses, with the lease renewed meanwhile.
    async fn until_settled(&self) -> Option<Hold> {
        let cx = &self.detached.context();
        // Dropped without waiting for its last request, which may reach the store after the settlement. It cannot bring
        // the claim back: what is repeated here, a completion or the end of a worker's lease, leaves a record that no
        // store renews. A store writes a claim anew only where there is no record, as after an inline release.
        let _renewal = Renewal::while_settling(cx);
        let aborted = async {
            cx.machine.gate.reached(Phase::Aborting).await;
            None
        };
        let hold = either(self.ask(cx), aborted).await;
        match hold {
            Some(Hold::Held) => telemetry::settled_late(&cx.claim.key),
            Some(Hold::Lost) => telemetry::settlement_refused(&cx.claim.key),
            None => telemetry::settlement_given_up(&cx.claim.key),
        }
        cx.machine.pending.forget(cx.claim);
        hold
    }

    async fn ask(&self, cx: &Context<'_>) -> Option<Hold> {
        let started = Instant::now();
        let mut backoff = Backoff::new(AWAY_PAUSES);
        while started.elapsed() < GIVE_UP_AFTER {
            backoff.pause().await;
            let hold = match self.verdict {
                Verdict::Complete(_) => ask_once(cx, &self.verdict).await,
                Verdict::Release(_) => release_once(cx, &self.verdict).await,
            };
            if hold.is_some() {
                return hold;
            }
        }
        None
    }
}

/// Settles a claim whose completion the handler has put into its own transaction. Only the store knows what came of
/// that: the reply to the commit may be lost, and the handler may not have committed.
async fn settle_enlisted(cx: &Context<'_>, verdict: &Verdict) -> Settled {
    cx.claim.mark_lost();
    if let Verdict::Complete(record) = verdict
        && record.failed
    {
        // Rolled back, and given up for good: a release would ask for another run.
        return confirm(cx, verdict, Settled::Failed).await;
    }
    let release = match verdict {
        Verdict::Complete(_) => &Verdict::Release(Some(RetryReason::new(NOT_COMMITTED))),
        Verdict::Release(_) => verdict,
    };
    let released = ask_until_unlocked(cx, release).await;
    // Either this delivery's transaction has completed the claim, or another delivery has it. A completion tells which:
    // after a lost release it is `Held` only if this token's own transaction has completed the record, and it writes
    // nothing (`Store::enlistment`).
    if released == Some(Hold::Lost) {
        let committed = CompletionRecord { failed: false, summary: Cow::Borrowed(COMMITTED) };
        return confirm(cx, &Verdict::Complete(committed), Settled::Completed).await;
    }
    cx.machine.waiters.ended(&cx.claim.key, FirstEnded::Failed);
    match (released, verdict) {
        (None, _) => Settled::Unknown,
        (Some(_), Verdict::Complete(_)) => Settled::NotCommitted,
        (Some(_), Verdict::Release(_)) => Settled::Released,
    }
}

/// Returns `if_own` if the record has the token of this delivery.
async fn confirm(cx: &Context<'_>, completion: &Verdict, if_own: Settled) -> Settled {
    match ask_until_unlocked(cx, completion).await {
        Some(Hold::Held) => {
            cx.machine.waiters.ended(&cx.claim.key, FirstEnded::Completed);
            if_own
        }
        Some(Hold::Lost) => Settled::Lost,
        None => Settled::Unknown,
    }
}

/// Asks until no transaction holds the record any more. One that was dropped is rolled back a moment later.
async fn ask_until_unlocked(cx: &Context<'_>, verdict: &Verdict) -> Option<Hold> {
    let request = cx.request();
    let answer = async {
        let mut backoff = Backoff::new(LOCKED_PAUSES);
        loop {
            match cx.ledger().settle(&request, settlement(cx, verdict)).await {
                Err(error) if error.kind() == StoreErrorKind::Locked => backoff.pause().await,
                answer => return answer,
            }
        }
    };
    cx.ask(verb(verdict), answer).await
}
