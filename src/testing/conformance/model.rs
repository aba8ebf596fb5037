//! Random sequences of calls, compared with the reference.

use std::time::Duration;

use super::Harness;
use super::bench::{Caller, LONG, fail, without_attempt};
use super::reference::State;
use crate::EventKey;
use crate::store::{Claim, ClaimRequest, Completion, Fingerprint, Hold, Store, StoreError};
use crate::testing::split_mix::SplitMix;

const CHECK: &str = "model";
const EVENTS: usize = 3;
const STEPS: usize = 32;
/// Short waits between two long ones: together half a lease, so that none ends by them.
const SHORT_WAITS: u32 = 2;

/// Puts `sequences` random sequences of 32 steps through a new store each and compares every answer with what the
/// simplest possible store would say.
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
            fail(CHECK, story, &found.expected, &found.came);
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
enum Answer {
    Claim(Claim),
    Hold(Hold),
}

/// A step that was answered otherwise than by the reference.
struct Difference {
    at: usize,
    expected: Answer,
    came: Result<Answer, StoreError>,
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
                    let expected = refer(&mut states[event], caller, verb);
                    let came = self.call(event, caller, verb).await;
                    if came.as_ref().ok() != Some(&expected) {
                        return Some(Difference { at, expected, came });
                    }
                }
            }
        }
        None
    }

    async fn call(&self, event: usize, caller: Caller, verb: Verb) -> Result<Answer, StoreError> {
        let (key, token) = (EventKey::new("/model", None, &event.to_string()), caller.token());
        let claim = ClaimRequest::new(&key, token, self.span).fingerprint(body(caller));
        let hold = match verb {
            Verb::Claim => return self.store.claim(&claim).await.map(without_attempt).map(Answer::Claim),
            Verb::Renew => self.store.renew(&claim).await,
            Verb::Complete { failed, brief } => {
                let retention = if brief { self.span } else { LONG };
                let completion = Completion { failed, ..Completion::succeeded("done", retention) };
                self.store.complete(&claim, &completion).await
            }
            Verb::Release => self.store.release(&key, token).await,
        };
        hold.map(Answer::Hold)
    }
}

fn refer(state: &mut State, caller: Caller, verb: Verb) -> Answer {
    match verb {
        Verb::Claim => Answer::Claim(state.claim(caller, |one, other| body(one) == body(other))),
        Verb::Renew => Answer::Hold(state.renew(caller)),
        Verb::Complete { brief, .. } => Answer::Hold(state.complete(caller, brief)),
        Verb::Release => Answer::Hold(state.release(caller)),
    }
}

/// Two callers deliver one body, the other another.
fn body(caller: Caller) -> Fingerprint {
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
