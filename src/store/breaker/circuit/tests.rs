use proptest::prelude::*;

use super::*;

const POLICY: Policy =
    Policy { failures: 3, first_cool_down: Duration::from_secs(1), longest_cool_down: Duration::from_secs(4) };

/// A circuit and the time by it.
struct Bench {
    circuit: Circuit,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { circuit: Circuit::new(POLICY), now: Instant::now() }
    }

    fn opened() -> Self {
        let mut bench = Self::new();
        let tickets: Vec<_> = (0..POLICY.failures).map(|_| bench.admitted()).collect();
        for ticket in tickets {
            bench.fails(ticket);
        }
        assert_eq!(bench.circuit.state(), CircuitState::Open);
        bench
    }

    fn admitted(&mut self) -> Ticket {
        self.circuit.admit(self.now).expect("a ticket")
    }

    fn fails(&mut self, ticket: Ticket) {
        self.circuit.failed(ticket, self.now, 0.0);
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn probes_after(&mut self, seconds: u64) -> Ticket {
        self.pass(seconds - 1);
        assert_eq!(self.circuit.admit(self.now), None, "the cool-down is not over");
        self.pass(1);
        let ticket = self.admitted();
        assert_eq!(ticket.role, Role::Probe);
        ticket
    }
}

#[test]
fn opens_after_consecutive_failures_and_not_before() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        for _ in 1..POLICY.failures {
            let ticket = bench.admitted();
            bench.fails(ticket);
        }
        let ticket = bench.admitted();
        assert_eq!(bench.circuit.succeeded(ticket), None);
        assert!(bench.circuit.is_calm());
    }
    Bench::opened();
}

#[test]
fn settlements_open_it_and_do_not_close_it() {
    let mut bench = Bench::new();
    let settlement = Ticket { role: Role::Settlement, epoch: bench.circuit.epoch() };
    for _ in 0..POLICY.failures {
        bench.fails(settlement);
        bench.circuit.succeeded(settlement);
    }
    assert_eq!(bench.circuit.state(), CircuitState::Open);
    bench.circuit.succeeded(Ticket { role: Role::Settlement, epoch: bench.circuit.epoch() });
    assert_eq!(bench.circuit.state(), CircuitState::Open);
}

#[test]
fn half_open_admits_exactly_one() {
    let mut bench = Bench::opened();
    let probe = bench.probes_after(1);
    assert_eq!(bench.circuit.state(), CircuitState::HalfOpen);
    for _ in 0..1_000 {
        assert_eq!(bench.circuit.admit(bench.now), None);
    }
    assert_eq!(bench.circuit.succeeded(probe), Some(Change::Closed));
    assert!(bench.circuit.is_calm());
}

#[test]
fn cool_downs_double_up_to_the_longest_and_begin_anew() {
    let mut bench = Bench::opened();
    for seconds in [1, 2, 4, 4, 4] {
        let probe = bench.probes_after(seconds);
        bench.fails(probe);
    }
    let probe = bench.probes_after(4);
    bench.circuit.succeeded(probe);
    for _ in 0..POLICY.failures {
        let ticket = bench.admitted();
        bench.fails(ticket);
    }
    bench.probes_after(1);
}

#[test]
fn chance_shortens_a_cool_down_by_half_at_most() {
    let mut bench = Bench::new();
    let ticket = bench.admitted();
    bench.fails(ticket);
    bench.fails(ticket);
    let cool_down = Duration::from_millis(500);
    assert_eq!(bench.circuit.failed(ticket, bench.now, 1.0), Some(Change::Opened { failures: 3, cool_down }));
}

#[test]
fn abandoned_probe_leaves_its_place_at_once() {
    let mut bench = Bench::opened();
    let probe = bench.probes_after(1);
    bench.circuit.abandoned(probe, bench.now);
    assert_eq!(bench.admitted().role, Role::Probe);
    bench.circuit.abandoned(probe, bench.now);
    assert_eq!(bench.circuit.admit(bench.now), None, "it has only one place to leave");
}

#[test]
fn probe_that_never_ends_is_replaced_and_may_still_succeed() {
    let mut bench = Bench::opened();
    let first = bench.probes_after(1);
    let second = bench.probes_after(4);
    bench.fails(first);
    assert_eq!(bench.circuit.state(), CircuitState::HalfOpen, "its failure is no longer news");
    assert_eq!(bench.circuit.succeeded(first), Some(Change::Closed));
    bench.fails(second);
    assert!(bench.circuit.is_calm());
}

#[test]
fn calls_from_before_an_outage_do_not_bring_it_back() {
    let mut bench = Bench::new();
    let hung: Vec<_> = (0..1_000).map(|_| bench.admitted()).collect();
    hung.iter().take(3).for_each(|ticket| bench.fails(*ticket));
    let probe = bench.probes_after(1);
    hung.iter().take(100).for_each(|ticket| {
        bench.fails(*ticket);
        bench.circuit.succeeded(*ticket);
    });
    assert_eq!(bench.circuit.state(), CircuitState::HalfOpen);
    bench.circuit.succeeded(probe);
    hung.iter().for_each(|ticket| bench.fails(*ticket));
    assert!(bench.circuit.is_calm());
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
    /// Whatever happens: what is open lets nothing through, what is half open one call, and neither lasts for ever.
    #[test]
    fn never_floods_and_never_wedges(steps in steps(), chance in 0.0..1.0f64) {
        let mut bench = Bench::new();
        let mut calls: Vec<Ticket> = Vec::new();
        let mut last_probe: Option<Instant> = None;
        for step in steps {
            let before = bench.circuit.state();
            match step {
                Step::Admit => {
                    let ticket = bench.circuit.admit(bench.now);
                    match (before, ticket.map(|ticket| ticket.role)) {
                        (CircuitState::Closed, role) => prop_assert_eq!(role, Some(Role::Claim)),
                        (_, None) => {}
                        (CircuitState::Open, role) => prop_assert_eq!(role, Some(Role::Probe)),
                        (CircuitState::HalfOpen, role) => {
                            prop_assert_eq!(role, Some(Role::Probe));
                            let patience = bench.now - last_probe.expect("there was one");
                            prop_assert!(patience >= POLICY.longest_cool_down);
                        }
                    }
                    if ticket.is_some_and(|ticket| ticket.role == Role::Probe) {
                        last_probe = Some(bench.now);
                    }
                    calls.extend(ticket);
                }
                Step::Settle => calls.push(Ticket { role: Role::Settlement, epoch: bench.circuit.epoch() }),
                Step::Pass(millis) => bench.now += Duration::from_millis(millis),
                Step::Succeed(_) | Step::Fail(_) | Step::Abandon(_) if calls.is_empty() => {}
                Step::Succeed(n) => {
                    let ticket = calls.swap_remove(n % calls.len());
                    bench.circuit.succeeded(ticket);
                    let closes = before == CircuitState::Closed || ticket.role == Role::Probe;
                    prop_assert_eq!(bench.circuit.state() == CircuitState::Closed, closes);
                }
                Step::Fail(n) => {
                    let ticket = calls.swap_remove(n % calls.len());
                    bench.circuit.failed(ticket, bench.now, chance);
                    prop_assert!(before == CircuitState::Closed || bench.circuit.state() != CircuitState::Closed);
                }
                Step::Abandon(n) => {
                    let ticket = calls.swap_remove(n % calls.len());
                    bench.circuit.abandoned(ticket, bench.now);
                    let closed = CircuitState::Closed;
                    prop_assert_eq!(before == closed, bench.circuit.state() == closed);
                }
            }
        }
        bench.now += POLICY.longest_cool_down;
        prop_assert!(bench.circuit.admit(bench.now).is_some(), "wedged in {:?}", bench.circuit);
    }
}
