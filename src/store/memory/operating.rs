//! The queue, as operators see it.

use super::entry::Now;
use super::queue::EventQueue;
use crate::EventKey;
use crate::store::queue::{Change, Changed, EventState, Filter, Page, QueueCounts, QueuedEvent};

const DISCARDED: &str = "discarded by an operator";

impl EventQueue {
    pub(super) fn waiting(&self, up_to: u64) -> u64 {
        up_to.min(self.index.waiting.len() as u64)
    }

    pub(super) fn counts(&mut self, now: Now) -> QueueCounts {
        QueueCounts {
            waiting: self.index.waiting.len() as u64,
            running: self.index.running as u64,
            completed: self.index.completed() as u64,
            dead: self.index.dead as u64,
            oldest_waiting: self.index.waiting.oldest(now),
        }
    }

    pub(super) fn list(&self, filter: &Filter, page: &Page) -> Vec<QueuedEvent> {
        let after = page.after.map_or(0, |last| last.saturating_add(1));
        let events = self.events(filter, after).take(page.limit);
        events.map(|event| QueuedEvent { failures: Vec::new(), request: None, ..event.clone() }).collect()
    }

    pub(super) fn get(&self, key: &EventKey) -> Option<QueuedEvent> {
        self.entries.get(key).map(|entry| entry.event.clone())
    }

    pub(super) fn change(&mut self, filter: &Filter, change: Change, now: Now) -> Changed {
        let keys = self.matching(filter, change.states());
        match change {
            Change::Requeue { .. } => return self.requeue(keys, now),
            Change::Discard { retention } => {
                keys.iter()
                    .for_each(|key| self.change_one(key, now, |entry| entry.complete(DISCARDED, retention, now)));
            }
            Change::Forget => keys.iter().for_each(|key| self.remove(key)),
        }
        Changed::new(keys.len() as u64)
    }

    fn requeue(&mut self, keys: Vec<EventKey>, now: Now) -> Changed {
        let mut requeued = Changed::default();
        for key in keys {
            let arrival = self.next_arrival();
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            if entry.event.request.is_none() {
                requeued.without_body += 1;
                continue;
            }
            self.index.take(entry);
            self.index.arrivals.remove(&entry.event.arrival);
            entry.requeue(arrival, now);
            self.arrive(&key, now);
            requeued.events += 1;
        }
        requeued
    }

    fn matching(&self, filter: &Filter, states: &[EventState]) -> Vec<EventKey> {
        let events = self.events(filter, 0).filter(|event| states.contains(&event.state));
        events.map(|event| event.key.clone()).collect()
    }

    /// Events that match, from an arrival on. One that is asked for by its key is not searched for.
    fn events(&self, filter: &Filter, from: u64) -> impl Iterator<Item = &QueuedEvent> {
        let (one, all) = match &filter.key {
            Some(key) => (self.entries.get(key).map(|entry| &entry.event), None),
            None => (None, Some(self.index.arrivals.range(from..))),
        };
        let all = all.into_iter().flatten().filter_map(|(_, key)| Some(&self.entries.get(key)?.event));
        one.into_iter().chain(all).filter(move |event| event.arrival >= from && filter.matches(event))
    }
}
