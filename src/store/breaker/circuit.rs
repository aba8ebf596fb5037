//! The state machine of the circuit: closed, open, half-open. Time and chance are arguments.

use std::time::{Duration, Instant};

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Consecutive failures that open the circuit.
    pub(super) failures: u32,
    pub(super) first_cool_down: Duration,
    pub(super) longest_cool_down: Duration,
}

/// Whether the breaker asks the store for claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CircuitState {
    /// Every claim goes to the store.
    Closed,
    /// No claim goes to the store: it failed again and again, and is left alone for a while.
    Open,
    /// One claim is on its way to find out whether the store is back.
    HalfOpen,
}

/// The kind of a call, which decides what the call proves about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A claim through the closed circuit.
    Claim,
    /// The one claim that a half-open circuit lets through.
    Probe,
    /// A renewal, completion or release. It is never held back, so its success says nothing that a claim could rely on.
    Settlement,
}

/// The right to make one call. Its end is reported as succeeded, failed or abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permit {
    pub(super) role: Role,
    /// The circuit's state when the permit was given. The end of a call of an earlier state is ignored.
    pub(super) epoch: u64,
}

/// A transition that is reported to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    Opened { failures: u32, cool_down: Duration },
    Reopened { cool_down: Duration },
    Probing,
    Closed,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// A probe that never ends must not stop the receiver: from `until` on there may be another.
    HalfOpen {
        until: Instant,
    },
}

#[derive(Debug)]
pub(super) struct Circuit {
    policy: Policy,
    state: State,
    epoch: u64,
    /// Cool-downs since the circuit was last closed.
    cool_downs: u32,
}

impl Circuit {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, state: State::Closed { failures: 0 }, epoch: 0, cool_downs: 0 }
    }

    pub(super) fn state(&self) -> CircuitState {
        match self.state {
            State::Closed { .. } => CircuitState::Closed,
            State::Open { .. } => CircuitState::Open,
            State::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the circuit is closed and no call has failed since the last success.
    pub(super) fn is_healthy(&self) -> bool {
        matches!(self.state, State::Closed { failures: 0 })
    }

    /// Permits a claim, or refuses it.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Permit> {
        let role = match self.state {
            State::Closed { .. } => Role::Claim,
            State::Open { until } | State::HalfOpen { until } if until <= now => {
                self.enter(State::HalfOpen { until: now + self.policy.longest_cool_down });
                Role::Probe
            }
            State::Open { .. } | State::HalfOpen { .. } => return None,
        };
        Some(Permit { role, epoch: self.epoch })
    }

    /// Notes that the store answered. A probe closes the circuit however late it is: it was sent after the failures.
    pub(super) fn succeeded(&mut self, permit: Permit) -> Option<Transition> {
        match (permit.role, &mut self.state) {
            (Role::Claim, State::Closed { failures }) if permit.epoch == self.epoch => *failures = 0,
            (Role::Probe, State::Open { .. } | State::HalfOpen { .. }) => {
                self.cool_downs = 0;
                self.enter(State::Closed { failures: 0 });
                return Some(Transition::Closed);
            }
            _ => {}
        }
        None
    }

    /// Notes that the store failed, or did not answer. `chance`, in `[0, 1)`, keeps instances from coming back all at
    /// once.
    pub(super) fn failed(&mut self, permit: Permit, now: Instant, chance: f64) -> Option<Transition> {
        if permit.epoch != self.epoch {
            return None;
        }
        match (permit.role, &mut self.state) {
            (Role::Probe, State::HalfOpen { .. }) => {
                let cool_down = self.open(now, chance);
                Some(Transition::Reopened { cool_down })
            }
            (Role::Claim | Role::Settlement, State::Closed { failures }) => {
                *failures += 1;
                let failures = *failures;
                (failures >= self.policy.failures)
                    .then(|| Transition::Opened { failures, cool_down: self.open(now, chance) })
            }
            _ => None,
        }
    }

    /// Notes that the caller left before the store could answer, which proves nothing: the next claim may be the probe.
    pub(super) fn abandoned(&mut self, permit: Permit, now: Instant) {
        if permit.role == Role::Probe && permit.epoch == self.epoch {
            self.enter(State::Open { until: now });
        }
    }

    fn open(&mut self, now: Instant, chance: f64) -> Duration {
        let Policy { first_cool_down, longest_cool_down, .. } = self.policy;
        let doubled = first_cool_down.saturating_mul(1 << self.cool_downs.min(31));
        let cool_down = doubled.min(longest_cool_down).mul_f64(1.0 - chance / 2.0);
        self.cool_downs = self.cool_downs.saturating_add(1);
        self.enter(State::Open { until: now + cool_down });
        cool_down
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests;
