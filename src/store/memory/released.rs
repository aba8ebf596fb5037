//! How often the events that were given up have been tried.

use std::collections::{HashMap, VecDeque};

use super::hash::KeyHash;

/// How many released events a shard remembers.
const LIMIT: usize = 256;

/// The attempts of events released lately; the ones released longest ago are forgotten first.
///
/// Only a courtesy to handlers that look at the attempt: nothing depends on its being complete.
#[derive(Debug, Default)]
pub(super) struct Released {
    attempts: HashMap<KeyHash, u32>,
    order: VecDeque<KeyHash>,
}

impl Released {
    /// Remembers how often `key`, which is not in here, was tried.
    pub(super) fn remember(&mut self, key: KeyHash, attempts: u32) {
        if self.order.len() == LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.attempts.remove(&oldest);
        }
        self.order.push_back(key);
        self.attempts.insert(key, attempts);
    }

    /// How often `key` was tried, which is forgotten here: its claim counts on.
    pub(super) fn take(&mut self, key: &KeyHash) -> u32 {
        if self.attempts.is_empty() {
            return 0;
        }
        let Some(attempts) = self.attempts.remove(key) else { return 0 };
        self.order.retain(|other| other != key);
        attempts
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::KeyHasher;
    use super::*;
    use crate::EventKey;

    #[test]
    fn the_longest_released_are_forgotten_first() {
        let hasher = KeyHasher::new();
        let keys: Vec<_> = (0..=LIMIT).map(|n| hasher.hash(&EventKey::new("", None, &n.to_string()))).collect();
        let mut released = Released::default();
        for key in &keys {
            released.remember(*key, 3);
        }
        assert_eq!(released.take(&keys[0]), 0);
        assert_eq!(released.take(&keys[1]), 3);
        assert_eq!(released.take(&keys[1]), 0, "taken is forgotten");
        assert_eq!((released.order.len(), released.attempts.len()), (LIMIT - 1, LIMIT - 1));
    }
}
