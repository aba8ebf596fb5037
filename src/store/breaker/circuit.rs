//! Closed, open, half-open: the state machine alone. Time and chance are arguments.

use std::time::{Duration, Instant};

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Consecutive failures that open it.
    pub(super) failures: u32,
    pub(super) first_cool_down: Duration,
    pub(super) longest_cool_down: Duration,
}

/// Whether the store is asked for claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CircuitState {
    /// It is.
    Closed,
    /// It is not: it failed again and again, and is left alone for a while.
    Open,
    /// One claim is on its way to find out whether it is back.
    HalfOpen,
}

/// What a call may prove about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A claim through the closed circuit.
    Claim,
    /// The one claim that a half-open circuit lets through.
    Probe,
    /// A renewal, completion or release: never held back, so its success says nothing that a claim could rely on.
    Settlement,
}

/// The right to make one call, to be given back as succeeded, failed or abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) role: Role,
    /// Which of the circuit's states it was written in: what comes of it later is no longer news.
    pub(super) epoch: u64,
}

/// What the operator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
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
    /// A probe that never ends must not end the receiver: from `until` on there may be another.
    HalfOpen {
        until: Instant,
    },
}

#[derive(Debug)]
pub(super) struct Circuit {
    policy: Policy,
    state: State,
    epoch: u64,
    /// Cool-downs since it was last closed.
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

    /// Closed, and without a failure to forget.
    pub(super) fn is_calm(&self) -> bool {
        matches!(self.state, State::Closed { failures: 0 })
    }

    /// Whether a claim may pass, and as what.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Ticket> {
        let role = match self.state {
            State::Closed { .. } => Role::Claim,
            State::Open { until } | State::HalfOpen { until } if until <= now => {
                self.enter(State::HalfOpen { until: now + self.policy.longest_cool_down });
                Role::Probe
            }
            State::Open { .. } | State::HalfOpen { .. } => return None,
        };
        Some(Ticket { role, epoch: self.epoch })
    }

    /// The store answered. A probe closes the circuit however late: it was sent after the failures.
    pub(super) fn succeeded(&mut self, ticket: Ticket) -> Option<Change> {
        match (ticket.role, &mut self.state) {
            (Role::Claim, State::Closed { failures }) if ticket.epoch == self.epoch => *failures = 0,
            (Role::Probe, State::Open { .. } | State::HalfOpen { .. }) => {
                self.cool_downs = 0;
                self.enter(State::Closed { failures: 0 });
                return Some(Change::Closed);
            }
            _ => {}
        }
        None
    }

    /// The store failed, or did not answer. `chance`, in `[0, 1)`, keeps instances from coming back all at once.
    pub(super) fn failed(&mut self, ticket: Ticket, now: Instant, chance: f64) -> Option<Change> {
        if ticket.epoch != self.epoch {
            return None;
        }
        match (ticket.role, &mut self.state) {
            (Role::Probe, State::HalfOpen { .. }) => {
                let cool_down = self.open(now, chance);
                Some(Change::Reopened { cool_down })
            }
            (Role::Claim | Role::Settlement, State::Closed { failures }) => {
                *failures += 1;
                let failures = *failures;
                (failures >= self.policy.failures)
                    .then(|| Change::Opened { failures, cool_down: self.open(now, chance) })
            }
            _ => None,
        }
    }

    /// The caller went away before the store could answer, which proves nothing: the next one may be the probe.
    pub(super) fn abandoned(&mut self, ticket: Ticket, now: Instant) {
        if ticket.role == Role::Probe && ticket.epoch == self.epoch {
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
