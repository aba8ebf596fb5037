//! The running claims of a shard.

use std::time::Duration;

use hashbrown::HashTable;

use super::hash::KeyHash;
use crate::store::ClaimToken;

/// Tables smaller than this are not worth making smaller.
const SMALL: usize = 64;

/// One running claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) key: KeyHash,
    pub(super) token: ClaimToken,
    /// When another token may take the claim over, in time since the store was built.
    pub(super) lease_until: Duration,
    pub(super) fingerprint: u32,
    pub(super) attempt: u32,
}

/// The claims of a shard that are running, or that lapsed and were not taken over.
#[derive(Debug, Default)]
pub(super) struct RunningClaims {
    claims: HashTable<Running>,
    /// No claim's lease ends before this.
    first_end: Duration,
}

impl RunningClaims {
    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    pub(super) fn insert(&mut self, claim: Running) {
        self.first_end = if self.claims.is_empty() { claim.lease_until } else { self.first_end.min(claim.lease_until) };
        self.claims.insert_unique(claim.key.table(), claim, table_hash);
    }

    /// Replaces the claim of the same key.
    pub(super) fn replace(&mut self, claim: Running) {
        self.first_end = self.first_end.min(claim.lease_until);
        if let Some(held) = self.get_mut(&claim.key) {
            *held = claim;
        }
    }

    pub(super) fn get(&self, key: &KeyHash) -> Option<&Running> {
        self.claims.find(key.table(), |claim| claim.key == *key)
    }

    /// Removes the claim if `token` holds it.
    pub(super) fn remove(&mut self, key: &KeyHash, token: ClaimToken) -> Option<Running> {
        let held = |claim: &Running| claim.key == *key && claim.token == token;
        let (claim, _) = self.claims.find_entry(key.table(), held).ok()?.remove();
        self.shrink();
        Some(claim)
    }

    /// Removes the claims whose lease ended at `limit` or before, and calls `dropped` with each.
    ///
    /// A full shard calls this at every claim that it has to refuse, so the walk is skipped while it cannot succeed.
    pub(super) fn drop_lapsed(&mut self, limit: Duration, mut dropped: impl FnMut(&Running)) {
        if self.first_end > limit {
            return;
        }
        let mut first_end = Duration::MAX;
        self.claims.retain(|claim| {
            let keep = claim.lease_until > limit;
            if keep {
                first_end = first_end.min(claim.lease_until);
            } else {
                dropped(claim);
            }
            keep
        });
        self.first_end = first_end;
        self.shrink();
    }

    fn get_mut(&mut self, key: &KeyHash) -> Option<&mut Running> {
        self.claims.find_mut(key.table(), |claim| claim.key == *key)
    }

    /// Gives memory back, so that a burst of running claims does not hold it for ever.
    fn shrink(&mut self) {
        if self.claims.capacity() > SMALL && self.claims.len() < self.claims.capacity() / 8 {
            self.claims.shrink_to(self.claims.len() * 2, table_hash);
        }
    }
}

fn table_hash(claim: &Running) -> u64 {
    claim.key.table()
}

#[cfg(test)]
mod tests {
    use super::super::hash::KeyHasher;
    use super::*;
    use crate::EventKey;

    fn claims(count: u64) -> Vec<Running> {
        let hasher = KeyHasher::new();
        let claim = |n: u64| Running {
            key: hasher.hash(&EventKey::new("", None, &n.to_string())),
            token: ClaimToken::random(),
            lease_until: Duration::from_secs(n),
            fingerprint: 0,
            attempt: 1,
        };
        (0..count).map(claim).collect()
    }

    #[test]
    fn memory_of_a_burst_is_given_back() {
        let (mut running, claims) = (RunningClaims::default(), claims(10_000));
        claims.iter().for_each(|claim| running.insert(*claim));
        assert!(running.claims.capacity() >= 10_000);

        for claim in &claims {
            assert!(running.remove(&claim.key, claim.token).is_some());
        }
        assert_eq!(running.len(), 0);
        assert!(running.claims.capacity() <= SMALL);
    }

    #[test]
    fn only_claims_lapsed_by_the_limit_are_dropped() {
        let (mut running, claims) = (RunningClaims::default(), claims(10));
        claims.iter().for_each(|claim| running.insert(*claim));
        let mut dropped = 0;
        running.drop_lapsed(Duration::from_secs(4), |_| dropped += 1);

        assert_eq!((dropped, running.len()), (5, 5));
        assert_eq!(running.first_end, Duration::from_secs(5));
        assert!(running.get(&claims[4].key).is_none());
        assert!(running.get(&claims[5].key).is_some());
    }

    #[test]
    fn another_token_removes_nothing() {
        let (mut running, claims) = (RunningClaims::default(), claims(1));
        running.insert(claims[0]);
        assert!(running.remove(&claims[0].key, ClaimToken::random()).is_none());
        assert_eq!(running.len(), 1);
    }
}
