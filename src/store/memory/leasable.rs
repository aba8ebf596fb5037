//! The events that may be leased, by endpoint and type, each in the order in which they became due.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::ops::Bound;
use std::time::Duration;

use crate::store::queue::{LeaseBudget, LeaseRequest};

/// When an event is due, or when its lease ends, and its number in the order of arrival.
pub(super) type Position = (Duration, u64);

/// The type of an event, as [`QueuedEvent`](crate::queue::QueuedEvent) has it.
type EventType = Option<Box<str>>;

/// One set of positions for each endpoint and type. A lease looks at one event of every kind that it has no room for,
/// however many of that kind are due, and at no event of an endpoint that it does not ask for.
#[derive(Debug, Default)]
pub(super) struct Leasable {
    endpoints: HashMap<Box<str>, Types>,
}

/// The positions of one endpoint.
#[derive(Debug, Default)]
struct Types {
    positions: HashMap<EventType, BTreeSet<Position>>,
    /// The first position of every type.
    firsts: BTreeSet<Position>,
}

impl Leasable {
    pub(super) fn insert(&mut self, endpoint: &str, event_type: &EventType, position: Position) {
        match self.endpoints.get_mut(endpoint) {
            Some(types) => types.insert(event_type, position),
            None => self.endpoints.entry(endpoint.into()).or_default().insert(event_type, position),
        }
    }

    pub(super) fn remove(&mut self, endpoint: &str, event_type: &EventType, position: Position) {
        let Some(types) = self.endpoints.get_mut(endpoint) else { return };
        types.remove(event_type, position);
        if types.positions.is_empty() {
            self.endpoints.remove(endpoint);
        }
    }

    /// Chooses the positions that `request` gets: those that have been due the longest first.
    ///
    /// `type_of` looks up the type of the event that arrived as a number.
    pub(super) fn choose<'a>(
        &self,
        request: &LeaseRequest<'_>,
        now: Duration,
        type_of: impl Fn(u64) -> Option<&'a EventType>,
    ) -> Vec<Position> {
        let (endpoints, mut budget) = (self.asked_for(request), LeaseBudget::new(request));
        // The next candidates, with the index of their endpoint, and whether they are the first of their type.
        let mut next: BinaryHeap<_> = endpoints.iter().enumerate().filter_map(first_of_endpoint).collect();
        let mut chosen = Vec::new();
        while chosen.len() < request.limit
            && let Some(Reverse((position, index, is_first))) = next.pop()
            && position.0 <= now
        {
            let (endpoint, types) = endpoints[index];
            if !budget.has_endpoint(endpoint) {
                continue;
            }
            if is_first && let Some(other) = behind(&types.firsts, position) {
                next.push(Reverse((other, index, true)));
            }
            let Some(event_type) = type_of(position.1) else { continue };
            if budget.try_take(endpoint, event_type.as_deref()) {
                chosen.push(position);
                let same_type = types.positions.get(event_type).and_then(|positions| behind(positions, position));
                next.extend(same_type.map(|same_type| Reverse((same_type, index, false))));
            }
        }
        chosen
    }

    fn asked_for(&self, request: &LeaseRequest<'_>) -> Vec<(&str, &Types)> {
        if request.endpoints.is_empty() {
            return self.endpoints.iter().map(|(endpoint, types)| (&**endpoint, types)).collect();
        }
        // A request may name an endpoint twice.
        let names: BTreeSet<&str> = request.endpoints.iter().map(AsRef::as_ref).collect();
        let found = names.into_iter().filter_map(|name| self.endpoints.get_key_value(name));
        found.map(|(endpoint, types)| (&**endpoint, types)).collect()
    }
}

impl Types {
    fn insert(&mut self, event_type: &EventType, position: Position) {
        let Some(positions) = self.positions.get_mut(event_type) else {
            self.positions.insert(event_type.clone(), [position].into());
            self.firsts.insert(position);
            return;
        };
        if let Some(first) = positions.first().copied()
            && position < first
        {
            self.firsts.remove(&first);
            self.firsts.insert(position);
        }
        positions.insert(position);
    }

    fn remove(&mut self, event_type: &EventType, position: Position) {
        let Some(positions) = self.positions.get_mut(event_type) else { return };
        positions.remove(&position);
        let first = positions.first().copied();
        if first.is_none() {
            self.positions.remove(event_type);
        }
        if self.firsts.remove(&position) {
            self.firsts.extend(first);
        }
    }
}

type Candidate = Reverse<(Position, usize, bool)>;

fn first_of_endpoint((index, (_, types)): (usize, &(&str, &Types))) -> Option<Candidate> {
    Some(Reverse((*types.firsts.first()?, index, true)))
}

fn behind(positions: &BTreeSet<Position>, position: Position) -> Option<Position> {
    positions.range((Bound::Excluded(position), Bound::Unbounded)).next().copied()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::store::queue::KindLimits;

    const NOW: Duration = Duration::from_secs(10);

    /// Events, each with its endpoint and type; the number of an event is its index.
    struct Fixture {
        events: Vec<(&'static str, EventType)>,
        leasable: Leasable,
        looked_at: Cell<usize>,
    }

    impl Fixture {
        fn new(events: &[(&'static str, Option<&str>)]) -> Self {
            let events: Vec<_> = events.iter().map(|(endpoint, kind)| (*endpoint, kind.map(Box::from))).collect();
            let mut leasable = Leasable::default();
            for (arrival, (endpoint, event_type)) in events.iter().enumerate() {
                leasable.insert(endpoint, event_type, (Duration::ZERO, arrival as u64));
            }
            Self { events, leasable, looked_at: Cell::new(0) }
        }

        fn chooses(&self, request: &LeaseRequest<'_>) -> Vec<u64> {
            self.looked_at.set(0);
            let type_of = |arrival: u64| {
                self.looked_at.set(self.looked_at.get() + 1);
                Some(&self.events[arrival as usize].1)
            };
            self.leasable.choose(request, NOW, type_of).into_iter().map(|(_, arrival)| arrival).collect()
        }

        fn removes(&mut self, arrival: usize) {
            let (endpoint, event_type) = &self.events[arrival];
            self.leasable.remove(endpoint, event_type, (Duration::ZERO, arrival as u64));
        }
    }

    fn any(limit: usize) -> LeaseRequest<'static> {
        LeaseRequest::new(limit, Duration::from_secs(30))
    }

    #[test]
    fn kinds_are_merged_in_the_order_in_which_they_are_due() {
        let mut fixture =
            Fixture::new(&[("/a", Some("x")), ("/b", Some("x")), ("/a", None), ("/a", Some("x")), ("/b", None)]);
        assert_eq!(fixture.chooses(&any(10)), [0, 1, 2, 3, 4]);
        assert_eq!(fixture.chooses(&any(3)), [0, 1, 2]);
        fixture.removes(0);
        fixture.removes(1);
        assert_eq!(fixture.chooses(&any(10)), [2, 3, 4]);
        let (x, later) = (Some(Box::from("x")), NOW + Duration::from_nanos(1));
        fixture.leasable.insert("/a", &x, (Duration::ZERO, 0));
        fixture.leasable.insert("/b", &x, (later, 1));
        assert_eq!(fixture.chooses(&any(10)), [0, 2, 3, 4], "what is due later is left");
        for arrival in [0, 2, 3, 4] {
            fixture.removes(arrival);
        }
        fixture.leasable.remove("/b", &x, (later, 1));
        assert!(fixture.leasable.endpoints.is_empty());
    }

    #[test]
    fn endpoint_that_is_named_twice_is_asked_once() {
        let fixture = Fixture::new(&[("/a", None), ("/b", None)]);
        let names = ["/a", "/a", "/nowhere"].map(Box::from);
        let mut request = any(10);
        request.endpoints = &names;
        assert_eq!(fixture.chooses(&request), [0]);
    }

    #[test]
    fn events_of_other_endpoints_and_of_full_kinds_are_not_walked() {
        let mut events = vec![("/busy", Some("x")); 10_000];
        events.extend(vec![("/b", Some("full")); 10_000]);
        events.extend([("/b", Some("free")), ("/a", None)]);
        let fixture = Fixture::new(&events);
        let names = ["/a"].map(Box::from);
        let mut request = any(64);
        request.endpoints = &names;
        assert_eq!(fixture.chooses(&request), [20_001]);
        assert_eq!(fixture.looked_at.get(), 1);

        let (endpoints, types) = (KindLimits::new(64).with("/busy", 0), KindLimits::new(64).with("full", 0));
        let mut request = any(64);
        (request.per_endpoint, request.per_type) = (Some(&endpoints), Some(&types));
        assert_eq!(fixture.chooses(&request), [20_000, 20_001]);
        assert!(fixture.looked_at.get() <= 3, "{}", fixture.looked_at.get());
    }

    #[test]
    fn lease_that_fills_a_kind_up_goes_on_to_others() {
        let mut events = vec![("/a", Some("x")); 1_000];
        events.extend(vec![("/a", Some("y")); 1_000]);
        events.extend(vec![("/b", Some("x")); 1_000]);
        let fixture = Fixture::new(&events);
        let (endpoints, types) = (KindLimits::new(3), KindLimits::new(2));
        let mut request = any(64);
        (request.per_endpoint, request.per_type) = (Some(&endpoints), Some(&types));
        assert_eq!(fixture.chooses(&request), [0, 1, 1_000]);
        request.per_endpoint = None;
        assert_eq!(fixture.chooses(&request), [0, 1, 1_000, 1_001]);
        assert!(fixture.looked_at.get() <= 7, "{}", fixture.looked_at.get());
    }
}
