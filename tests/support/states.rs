//! The tables of `docs/states.md`, and events in each state that they tell of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use tower_webhook::EventKey;
use tower_webhook::queue::{Filter, LeaseRequest, Leased, Order, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Ending, Hold, Store};

pub(crate) const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(24 * 3600);
const ORDER: &str = "account";

pub(crate) const INLINE: [&str; 4] = ["running", "completed", "failed", "released"];
pub(crate) const QUEUED: [&str; 7] =
    ["waiting", "behind another", "running", "lapsed", "completed", "dead", "discarded"];

/// The columns of a record: `None` for one that holds nothing, and the text of one that holds text.
pub(crate) type Found = BTreeMap<String, Option<String>>;

/// One table of the page: the cells of each column, by the state.
pub(crate) struct StateTable {
    cells: BTreeMap<String, BTreeMap<String, String>>,
}

impl StateTable {
    /// The table below this heading.
    pub(crate) fn below(heading: &str) -> Self {
        let section = section(heading);
        let mut rows = section.lines().filter(|line| line.starts_with('|')).map(cells);
        let states = rows.next().expect("a header").split_off(1);
        let mut table = Self { cells: BTreeMap::new() };
        for row in rows.skip(1) {
            assert_eq!(row.len(), states.len() + 1, "{row:?}");
            for name in quoted(row[0]) {
                let cells = states.iter().zip(&row[1..]).map(|(state, cell)| ((*state).to_owned(), (*cell).to_owned()));
                assert!(table.cells.insert(name.to_owned(), cells.collect()).is_none(), "{name} is there twice");
            }
        }
        table
    }

    pub(crate) fn cell(&self, name: &str, state: &str) -> &str {
        &self.cells[name][state]
    }

    /// The cells of `state` that records in this state contradict. All records hold something where the page says so,
    /// none where it has a dash, and some of them where it has both. Where a cell quotes a text, they hold this text.
    pub(crate) fn contradictions(&self, state: &str, records: &[Found]) -> Vec<String> {
        assert!(!records.is_empty(), "{state}");
        let named: BTreeSet<_> = self.cells.keys().collect();
        for found in records {
            assert_eq!(found.keys().collect::<BTreeSet<_>>(), named, "{state}");
        }
        let contradiction = |(name, cells): (&String, &BTreeMap<String, String>)| {
            let cell = cells.get(state).unwrap_or_else(|| panic!("the page has no state {state}"));
            let values: Vec<_> = records.iter().filter_map(|found| found[name].as_deref()).collect();
            let holding = values.len();
            let is_other = |text: &str| values.iter().any(|value| !value.is_empty() && *value != text);
            let is_right = match cell.as_str() {
                "–" => holding == 0,
                cell if cell.ends_with("or –") => 0 < holding && holding < records.len(),
                cell if quoted(cell).next().is_some_and(|text| cell.len() == text.len() + 2 && is_other(text)) => false,
                _ => holding == records.len(),
            };
            let said = || format!("{state}, {name}: {cell:?}, and {holding} of {} hold {values:?}", records.len());
            (!is_right).then(said)
        };
        self.cells.iter().filter_map(contradiction).collect()
    }
}

/// The part of the page below this heading.
pub(crate) fn section(heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/states.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (_, rest) = page.split_once(&format!("\n### {heading}\n")).expect("the heading");
    rest.split("\n#").next().expect("a section").to_owned()
}

/// The cells of a row.
pub(crate) fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// The names in a cell.
pub(crate) fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(['`', '*']).skip(1).step_by(2)
}

/// What distinguishes the events that are brought into one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// No type, no sequence, never tried; and no order, unless the state needs one.
    Bare,
    /// With a type and a sequence. Its handler was started once, and is to be tried again.
    Retried,
    /// The same; it then became a dead letter, and was requeued.
    Requeued,
}

impl Past {
    pub(crate) const ALL: [Self; 3] = [Self::Bare, Self::Retried, Self::Requeued];

    /// For how long the store keeps the bodies of completed events.
    pub(crate) fn bodies(self) -> Option<Duration> {
        match self {
            Self::Bare => None,
            Self::Retried => Some(Duration::from_secs(60)),
            Self::Requeued => Some(Duration::ZERO),
        }
    }

    fn event_type(self) -> Option<&'static str> {
        (self != Self::Bare).then_some("invoice.paid")
    }

    fn order(self, is_needed: bool) -> Option<Order> {
        match self {
            Self::Bare => is_needed.then(|| Order::of(ORDER)),
            Self::Retried | Self::Requeued => Some(Order::of(ORDER).sequence(7)),
        }
    }
}

pub(crate) fn key() -> EventKey {
    EventKey::new("/webhooks", None, "evt_1")
}

fn other_key() -> EventKey {
    EventKey::new("/others", None, "evt_2")
}

/// Brings an event that is run inline into this state.
pub(crate) async fn bring_inline(store: &impl Store, state: &str, event_type: Option<&str>) {
    let key = key();
    let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE).event_type(event_type);
    assert!(matches!(store.claim(&claim).await.expect("an answer"), Claim::Fresh { .. }));
    let ending = match state {
        "running" => return,
        "completed" => Ending::Complete(Completion::succeeded("200 OK", DAY)),
        "failed" => Ending::Complete(Completion::failed("no such account", DAY)),
        _ => Ending::Release,
    };
    assert_eq!(store.settle(&claim, ending).await.expect("an answer"), Hold::Held);
}

/// Brings a queued event into this state, but for time that has to pass: a lapsed event is running.
pub(crate) async fn bring_queued(queue: &impl Queue, state: &str, past: Past) {
    let is_behind = state == "behind another";
    if is_behind && past != Past::Requeued {
        enqueue(queue, &other_key(), None, Some(Order::of(ORDER))).await;
    }
    enqueue(queue, &key(), past.event_type(), past.order(is_behind)).await;
    if past != Past::Bare && !(is_behind && past == Past::Retried) {
        let leased = lease(queue).await;
        assert_eq!(queue.start(&leased.claim(LEASE)).await.expect("an answer"), Hold::Held);
        settle(queue, &leased, Ending::Retry { after: Duration::ZERO, reason: "flaky" }).await;
    }
    if past == Past::Requeued {
        let leased = lease(queue).await;
        settle(queue, &leased, Ending::Bury { reason: "hopeless" }).await;
        if is_behind {
            enqueue(queue, &other_key(), None, Some(Order::of(ORDER))).await;
        }
        assert_eq!(queue.requeue(&Filter::one(key()), false).await.expect("an answer").events, 1);
    }
    match state {
        "waiting" | "behind another" => {}
        "running" | "lapsed" => drop(lease(queue).await),
        "completed" => {
            let leased = lease(queue).await;
            settle(queue, &leased, Ending::Complete(Completion::succeeded("200 OK", DAY))).await;
        }
        "dead" => {
            let leased = lease(queue).await;
            settle(queue, &leased, Ending::Bury { reason: "hopeless" }).await;
        }
        _ => assert_eq!(queue.discard(&Filter::one(key()), DAY).await.expect("an answer"), 1),
    }
}

/// Leases the event, which is the only one that is due.
pub(crate) async fn lease(queue: &impl Queue) -> Leased {
    let mut leased = queue.lease(&LeaseRequest::new(10, LEASE)).await.expect("an answer");
    assert_eq!(leased.iter().map(|leased| &leased.key).collect::<Vec<_>>(), [&key()]);
    leased.remove(0)
}

async fn enqueue(queue: &impl Queue, key: &EventKey, event_type: Option<&str>, order: Option<Order>) {
    let request = StoredRequest::new("a head", "a body", SystemTime::UNIX_EPOCH + DAY);
    let request = match order {
        Some(order) => request.ordered(order),
        None => request,
    };
    let claim = ClaimRequest::new(key, ClaimToken::random(), LEASE).event_type(event_type);
    assert!(matches!(queue.enqueue(&claim, &request).await.expect("an answer"), Claim::Fresh { .. }));
}

async fn settle(queue: &impl Queue, leased: &Leased, ending: Ending<'_>) {
    assert_eq!(queue.settle(&leased.claim(LEASE), ending).await.expect("an answer"), Hold::Held);
}
