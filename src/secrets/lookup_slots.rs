use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many lookups may run at once, and which of them strangers cannot take.
///
/// Anyone can make up names of tenants. A quarter of the slots is therefore kept for tenants that the lookup has found before:
/// while made-up names fill the others, an expired answer can still be asked for again.
pub(super) struct LookupSlots {
    all: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

/// The right to run one lookup, given back when it is dropped.
pub(super) struct Slot {
    _stranger: Option<OwnedSemaphorePermit>,
    _slot: Option<OwnedSemaphorePermit>,
}

impl LookupSlots {
    /// At least one, and no more than a semaphore can count.
    pub(super) fn new(lookups: usize) -> Self {
        let lookups = lookups.clamp(1, Semaphore::MAX_PERMITS);
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { all: semaphore(lookups), strangers: semaphore(lookups - lookups / 4) }
    }

    /// Waits for a slot, in the order of arrival.
    pub(super) async fn acquire(&self, found_before: bool) -> Slot {
        // Neither semaphore is ever closed, so both permits are there.
        let stranger = if found_before { None } else { self.strangers.clone().acquire_owned().await.ok() };
        Slot { _stranger: stranger, _slot: self.all.clone().acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn strangers_leave_a_quarter_to_tenants_found_before() {
        let slots = LookupSlots::new(4);
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(slots.acquire(false).await);
        }
        assert!(slots.strangers.try_acquire().is_err());
        held.push(slots.acquire(true).await);
        assert!(slots.all.try_acquire().is_err());
        held.clear();
        assert_eq!((slots.all.available_permits(), slots.strangers.available_permits()), (4, 3));
    }

    #[test]
    fn any_number_makes_at_least_one_slot() {
        for (lookups, all, strangers) in [(0, 1, 1), (1, 1, 1), (2, 2, 2), (32, 32, 24)] {
            let slots = LookupSlots::new(lookups);
            assert_eq!((slots.all.available_permits(), slots.strangers.available_permits()), (all, strangers));
        }
        LookupSlots::new(usize::MAX);
    }
}
