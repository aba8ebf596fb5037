//! Random sequences of calls, compared with a reference: the simplest state machine that answers like a store.
//!
//! The reference shares no rule with the stores of this crate, so that a mistake in theirs is not repeated here.

use std::time::Duration;

use super::fixture::{Caller, FRESH, LONG, fail, without_attempt};
use super::suite::{Case, Harness};
use crate::EventKey;
use crate::store::{Claim, ClaimRequest, Completion, Fingerprint, Hold, Store, StoreError};
use crate::testing::replay::SplitMix;

const EVENTS: usize = 3;
const STEPS: usize = 32;
/// Short waits between two long ones: together half a lease, so that none ends by them.
const SHORT_WAITS: u32 = 2;
/// How many sequences the suite tries: few, since on a real clock each takes seconds.
const SEQUENCES: u32 = 8;
const SEED: u64 = 0x5EED;

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    vec![Case::new("model", |harness| Box::pin(model(harness, SEED, SEQUENCES)))]
}

/// Puts `sequences` random sequences of 32 steps through a new store each and compares every answer with that of the
/// simplest possible store.
///
/// A step is a verb for one of three events by one of three callers, or a wait. Waits are a quarter of a lease or two
/// leases long, never near its end, so that a real clock's jitter does not matter. The same `seed` makes the same
/// sequences.
///
/// # Panics
///
/// If an answer differs, with the seed and the steps that led to it.
pub async fn model(harness: &impl Harness, seed: u64, sequences: u32) {
    let span = harness.lease().max(harness.retention());
    for number in 0..sequences {
        let steps = sequence(&mut SplitMix::new(seed ^ (u64::from(number) << 32)));
        let run = Run { span, store: harness.store().await };
        if let Some(found) = run.first_difference(harness, &steps).await {
            let story = format_args!("seed {seed}, sequence {number}, after {:?}", &steps[..=found.at]);
            fail(story, &found.expected, &found.came);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Call { event: usize, caller: Caller, verb: Verb },
    WaitShort,
    WaitLong,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Claim,
    Renew,
    Complete { failed: bool, brief: bool },
    Release,
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Claim(Claim),
    Hold(Hold),
}

/// A step that the store answered otherwise than the reference.
struct Difference {
    at: usize,
    expected: Reply,
    came: Result<Reply, StoreError>,
}

/// One sequence on one store. All leases and brief retentions are one `span` long.
struct Run<S> {
    span: Duration,
    store: S,
}

impl<S: Store> Run<S> {
    async fn first_difference(&self, harness: &impl Harness<Store = S>, steps: &[Step]) -> Option<Difference> {
        let mut states = [State::Free; EVENTS];
        for (at, step) in steps.iter().enumerate() {
            match *step {
                Step::WaitShort => harness.pass(self.span / 4).await,
                Step::WaitLong => {
                    harness.pass(self.span * 2).await;
                    states.iter_mut().for_each(State::wait_long);
                }
                Step::Call { event, caller, verb }
                    if !matches!(verb, Verb::Claim) && !states[event].is_settled_by_contract(caller) => {}
                Step::Call { event, caller, verb } => {
                    let expected = answer_of_reference(&mut states[event], caller, verb);
                    let came = self.call(event, caller, verb).await;
                    if came.as_ref().ok() != Some(&expected) {
                        return Some(Difference { at, expected, came });
                    }
                }
            }
        }
        None
    }

    async fn call(&self, event: usize, caller: Caller, verb: Verb) -> Result<Reply, StoreError> {
        let (key, token) = (EventKey::new("/model", None, &event.to_string()), caller.token());
        let claim = ClaimRequest::new(&key, token, self.span).fingerprint(body_of(caller));
        let hold = match verb {
            Verb::Claim => return self.store.claim(&claim).await.map(without_attempt).map(Reply::Claim),
            Verb::Renew => self.store.renew(&claim).await,
            Verb::Complete { failed, brief } => {
                let retention = if brief { self.span } else { LONG };
                let completion = Completion { failed, ..Completion::succeeded("done", retention) };
                self.store.complete(&claim, &completion).await
            }
            Verb::Release => self.store.release(&key, token).await,
        };
        hold.map(Reply::Hold)
    }
}

fn answer_of_reference(state: &mut State, caller: Caller, verb: Verb) -> Reply {
    match verb {
        Verb::Claim => Reply::Claim(state.claim(caller, |one, other| body_of(one) == body_of(other))),
        Verb::Renew => Reply::Hold(state.renew(caller)),
        Verb::Complete { brief, .. } => Reply::Hold(state.complete(caller, brief)),
        Verb::Release => Reply::Hold(state.release(caller)),
    }
}

/// Two callers deliver the same body, the third another.
fn body_of(caller: Caller) -> Fingerprint {
    Fingerprint::from_u64(if caller == Caller::Second { 2 } else { 1 })
}

fn sequence(random: &mut SplitMix) -> Vec<Step> {
    let mut short_waits = 0;
    let mut next = || match random.below(16) {
        0 => {
            short_waits = 0;
            Step::WaitLong
        }
        1 if short_waits < SHORT_WAITS => {
            short_waits += 1;
            Step::WaitShort
        }
        _ => call(random),
    };
    (0..STEPS).map(|_| next()).collect()
}

fn call(random: &mut SplitMix) -> Step {
    let caller = [Caller::First, Caller::Second, Caller::Third][random.below(3)];
    let verb = match random.below(8) {
        0..4 => Verb::Claim,
        4 => Verb::Renew,
        5 | 6 => Verb::Complete { failed: random.below(2) == 0, brief: random.below(2) == 0 },
        _ => Verb::Release,
    };
    Step::Call { event: random.below(EVENTS), caller, verb }
}

/// The reference's record of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Running { holder: Caller, lapsed: bool },
    Completed { holder: Caller, brief: bool },
}

impl State {
    /// `same_body` says whether two callers deliver the same body.
    pub(super) fn claim(&mut self, caller: Caller, same_body: impl Fn(Caller, Caller) -> bool) -> Claim {
        match *self {
            Self::Completed { holder, .. } => Claim::Completed { same_body: same_body(holder, caller) },
            Self::Running { holder, lapsed: false } if holder != caller => {
                Claim::InFlight { same_body: same_body(holder, caller) }
            }
            Self::Free | Self::Running { .. } => {
                *self = Self::Running { holder: caller, lapsed: false };
                FRESH
            }
        }
    }

    pub(super) fn renew(&mut self, caller: Caller) -> Hold {
        self.settle(caller, Self::Running { holder: caller, lapsed: false })
    }

    /// `brief` says whether the record expires with the next long wait.
    pub(super) fn complete(&mut self, caller: Caller, brief: bool) -> Hold {
        match *self {
            Self::Completed { holder, .. } if holder == caller => Hold::Held,
            _ => self.settle(caller, Self::Completed { holder: caller, brief }),
        }
    }

    pub(super) fn release(&mut self, caller: Caller) -> Hold {
        self.settle(caller, Self::Free)
    }

    /// Lets every lease lapse and every brief retention end.
    pub(super) fn wait_long(&mut self) {
        match self {
            Self::Running { lapsed, .. } => *lapsed = true,
            Self::Completed { brief: true, .. } => *self = Self::Free,
            Self::Free | Self::Completed { brief: false, .. } => {}
        }
    }

    /// Whether the contract says what `caller` is answered when it renews, completes or releases. A store may have no
    /// trace of a claim that is gone, or that lapsed under another token.
    pub(super) fn is_settled_by_contract(&self, caller: Caller) -> bool {
        match *self {
            Self::Free => false,
            Self::Running { holder, lapsed } => holder == caller || !lapsed,
            Self::Completed { .. } => true,
        }
    }

    fn settle(&mut self, caller: Caller, next: Self) -> Hold {
        match *self {
            Self::Running { holder, .. } if holder == caller => {
                *self = next;
                Hold::Held
            }
            _ => Hold::Lost,
        }
    }
}
