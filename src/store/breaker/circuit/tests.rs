use proptest::prelude::*;

use super::*;

const POLICY: Policy =
    Policy { failures: 3, first_cool_down: Duration::from_secs(1), longest_cool_down: Duration::from_secs(4) };

/// A circuit, and the time.
struct Fixture {
    circuit: Circuit,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        Self { circuit: Circuit::new(POLICY), now: Instant::now() }
    }

    fn opened() -> Self {
        let mut fixture = Self::new();
        let permits: Vec<_> = (0..POLICY.failures).map(|_| fixture.admitted()).collect();
        for permit in permits {
            fixture.fails(permit);
        }
        assert_eq!(fixture.circuit.state(), CircuitState::Open);
        fixture
    }

    fn admitted(&mut self) -> Permit {
        self.circuit.admit(self.now).expect("a permit")
    }

    fn fails(&mut self, permit: Permit) {
        self.circuit.failed(permit, self.now, 0.0);
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn probes_after(&mut self, seconds: u64) -> Permit {
        self.pass(seconds - 1);
        assert_eq!(self.circuit.admit(self.now), None, "the cool-down is not over");
        self.pass(1);
        let permit = self.admitted();
        assert_eq!(permit.role, Role::Probe);
        permit
    }
}

#[test]
fn opens_after_consecutive_failures_and_not_before() {
    let mut fixture = Fixture::new();
    for _ in 0..10 {
        for _ in 1..POLICY.failures {
            let permit = fixture.admitted();
            fixture.fails(permit);
        }
        let permit = fixture.admitted();
        assert_eq!(fixture.circuit.succeeded(permit), None);
        assert!(fixture.circuit.is_healthy());
    }
    Fixture::opened();
}

#[test]
fn settlements_open_it_and_do_not_close_it() {
    let mut fixture = Fixture::new();
    let settlement = Permit { role: Role::Settlement, epoch: fixture.circuit.epoch() };
    for _ in 0..POLICY.failures {
        fixture.fails(settlement);
        fixture.circuit.succeeded(settlement);
    }
    assert_eq!(fixture.circuit.state(), CircuitState::Open);
    fixture.circuit.succeeded(Permit { role: Role::Settlement, epoch: fixture.circuit.epoch() });
    assert_eq!(fixture.circuit.state(), CircuitState::Open);
}

#[test]
fn half_open_admits_exactly_one() {
    let mut fixture = Fixture::opened();
    let probe = fixture.probes_after(1);
    assert_eq!(fixture.circuit.state(), CircuitState::HalfOpen);
    for _ in 0..1_000 {
        assert_eq!(fixture.circuit.admit(fixture.now), None);
    }
    assert_eq!(fixture.circuit.succeeded(probe), Some(Transition::Closed));
    assert!(fixture.circuit.is_healthy());
}

#[test]
fn cool_downs_double_up_to_the_longest_and_begin_anew() {
    let mut fixture = Fixture::opened();
    for seconds in [1, 2, 4, 4, 4] {
        let probe = fixture.probes_after(seconds);
        fixture.fails(probe);
    }
    let probe = fixture.probes_after(4);
    fixture.circuit.succeeded(probe);
    for _ in 0..POLICY.failures {
        let permit = fixture.admitted();
        fixture.fails(permit);
    }
    fixture.probes_after(1);
}

#[test]
fn chance_shortens_a_cool_down_by_half_at_most() {
    let mut fixture = Fixture::new();
    let permit = fixture.admitted();
    fixture.fails(permit);
    fixture.fails(permit);
    let cool_down = Duration::from_millis(500);
    assert_eq!(fixture.circuit.failed(permit, fixture.now, 1.0), Some(Transition::Opened { failures: 3, cool_down }));
}

#[test]
fn abandoned_probe_is_replaced_at_once() {
    let mut fixture = Fixture::opened();
    let probe = fixture.probes_after(1);
    fixture.circuit.abandoned(probe, fixture.now);
    assert_eq!(fixture.admitted().role, Role::Probe);
    fixture.circuit.abandoned(probe, fixture.now);
    assert_eq!(fixture.circuit.admit(fixture.now), None, "a probe is abandoned once");
}

#[test]
fn probe_that_never_ends_is_replaced_and_may_still_succeed() {
    let mut fixture = Fixture::opened();
    let first = fixture.probes_after(1);
    let second = fixture.probes_after(4);
    fixture.fails(first);
    assert_eq!(fixture.circuit.state(), CircuitState::HalfOpen, "the failure of a replaced probe is ignored");
    assert_eq!(fixture.circuit.succeeded(first), Some(Transition::Closed));
    fixture.fails(second);
    assert!(fixture.circuit.is_healthy());
}

#[test]
fn calls_from_before_an_outage_do_not_bring_it_back() {
    let mut fixture = Fixture::new();
    let hung: Vec<_> = (0..1_000).map(|_| fixture.admitted()).collect();
    hung.iter().take(3).for_each(|permit| fixture.fails(*permit));
    let probe = fixture.probes_after(1);
    hung.iter().take(100).for_each(|permit| {
        fixture.fails(*permit);
        fixture.circuit.succeeded(*permit);
    });
    assert_eq!(fixture.circuit.state(), CircuitState::HalfOpen);
    fixture.circuit.succeeded(probe);
    hung.iter().for_each(|permit| fixture.fails(*permit));
    assert!(fixture.circuit.is_healthy());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Admit,
    Settle,
    Succeed(usize),
    Fail(usize),
    Abandon(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Admit),
        1 => Just(Step::Settle),
        2 => any::<usize>().prop_map(Step::Succeed),
        6 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::Abandon),
        2 => (0..3_000u64).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    /// After any calls, an open circuit permits no claim, a half-open one permits one, and neither state lasts for
    /// ever.
    #[test]
    fn never_floods_and_never_locks_up(steps in steps(), chance in 0.0..1.0f64) {
        let mut fixture = Fixture::new();
        let mut calls: Vec<Permit> = Vec::new();
        let mut last_probe: Option<Instant> = None;
        for step in steps {
            let before = fixture.circuit.state();
            match step {
                Step::Admit => {
                    let permit = fixture.circuit.admit(fixture.now);
                    match (before, permit.map(|permit| permit.role)) {
                        (CircuitState::Closed, role) => prop_assert_eq!(role, Some(Role::Claim)),
                        (_, None) => {}
                        (CircuitState::Open, role) => prop_assert_eq!(role, Some(Role::Probe)),
                        (CircuitState::HalfOpen, role) => {
                            prop_assert_eq!(role, Some(Role::Probe));
                            let patience = fixture.now - last_probe.expect("there was one");
                            prop_assert!(patience >= POLICY.longest_cool_down);
                        }
                    }
                    if permit.is_some_and(|permit| permit.role == Role::Probe) {
                        last_probe = Some(fixture.now);
                    }
                    calls.extend(permit);
                }
                Step::Settle => calls.push(Permit { role: Role::Settlement, epoch: fixture.circuit.epoch() }),
                Step::Pass(millis) => fixture.now += Duration::from_millis(millis),
                Step::Succeed(_) | Step::Fail(_) | Step::Abandon(_) if calls.is_empty() => {}
                Step::Succeed(n) => {
                    let permit = calls.swap_remove(n % calls.len());
                    fixture.circuit.succeeded(permit);
                    let closes = before == CircuitState::Closed || permit.role == Role::Probe;
                    prop_assert_eq!(fixture.circuit.state() == CircuitState::Closed, closes);
                }
                Step::Fail(n) => {
                    let permit = calls.swap_remove(n % calls.len());
                    fixture.circuit.failed(permit, fixture.now, chance);
                    prop_assert!(before == CircuitState::Closed || fixture.circuit.state() != CircuitState::Closed);
                }
                Step::Abandon(n) => {
                    let permit = calls.swap_remove(n % calls.len());
                    fixture.circuit.abandoned(permit, fixture.now);
                    let closed = CircuitState::Closed;
                    prop_assert_eq!(before == closed, fixture.circuit.state() == closed);
                }
            }
        }
        fixture.now += POLICY.longest_cool_down;
        prop_assert!(fixture.circuit.admit(fixture.now).is_some(), "locked up in {:?}", fixture.circuit);
    }
}
