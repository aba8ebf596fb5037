//! The claims that this instance got from the store.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use super::journal::end;
use crate::EventKey;
use crate::store::record::{self, Record, State};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint};

/// The claims that this instance got from the store: those that run, and those that were completed lately. While the
/// store is away, their events are not run a second time.
#[derive(Default)]
pub(super) struct StoreClaims {
    claims: HashMap<EventKey, StoreClaim>,
    /// Completions that the store has not confirmed, in their order.
    unconfirmed: BTreeMap<u64, EventKey>,
    next_number: u64,
    /// Completed events that may make room, oldest first. Those that have been claimed anew since are passed over.
    done: VecDeque<(EventKey, ClaimToken)>,
}

struct StoreClaim {
    token: ClaimToken,
    fingerprint: Fingerprint,
    progress: Progress,
    /// The end of the lease, or of the retention.
    until: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Running,
    /// Completed; the store has not confirmed it.
    Unconfirmed {
        number: u64,
    },
    Done,
}

impl StoreClaims {
    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// Answers a claim of an event that is running here, or was completed here without a confirmation of the store: the
    /// store may have seen its lease lapse during an outage.
    pub(super) fn known_only_here(&self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let claim = self.claims.get(request.key).filter(|claim| claim.progress != Progress::Done)?;
        claim.answer(request, now).filter(|answer| !matches!(answer, Claim::Fresh { .. }))
    }

    /// Answers a claim while the store cannot be asked.
    pub(super) fn claim(&mut self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let claim = self.claims.get_mut(request.key)?;
        let answer = claim.answer(request, now)?;
        if matches!(answer, Claim::Fresh { .. }) {
            if claim.token != request.token {
                return None;
            }
            claim.until = end(now, request.lease);
        }
        Some(answer)
    }

    /// Adds a claim that the store has given.
    pub(super) fn insert_running(&mut self, request: &ClaimRequest<'_>, now: Instant) {
        let claim = StoreClaim {
            token: request.token,
            fingerprint: request.fingerprint,
            progress: Progress::Running,
            until: end(now, request.lease),
        };
        self.insert(request.key.clone(), claim);
    }

    /// Extends the lease of a running claim. Returns whether the claim is here and the store has not confirmed its
    /// completion.
    pub(super) fn renew(&mut self, request: &ClaimRequest<'_>, now: Instant) -> bool {
        let Some(claim) = self.find(request.key, request.token) else { return false };
        if claim.progress == Progress::Running {
            claim.until = end(now, request.lease);
        }
        claim.progress != Progress::Done
    }

    /// Notes that the event is completed, whatever the store is going to answer.
    pub(super) fn complete(&mut self, request: &ClaimRequest<'_>, completion: &Completion<'_>, now: Instant) {
        let (until, number) = (end(now, completion.retention), self.next_number);
        match self.find(request.key, request.token) {
            Some(claim) if claim.progress == Progress::Running => {
                (claim.progress, claim.until) = (Progress::Unconfirmed { number }, until);
            }
            _ => return,
        }
        self.unconfirmed.insert(number, request.key.clone());
        self.next_number += 1;
    }

    /// Notes that the store has the completion.
    pub(super) fn confirm(&mut self, key: &EventKey, token: ClaimToken) {
        let Some(claim) = self.find(key, token) else { return };
        if let Progress::Unconfirmed { number } = claim.progress {
            claim.progress = Progress::Done;
            self.unconfirmed.remove(&number);
            self.done.push_back((key.clone(), token));
        }
    }

    /// Adds an event that was completed without the store, and that the store knows by now.
    pub(super) fn insert_done(&mut self, key: &EventKey, token: ClaimToken, fingerprint: Fingerprint, until: Instant) {
        self.insert(key.clone(), StoreClaim { token, fingerprint, progress: Progress::Done, until });
        self.done.push_back((key.clone(), token));
    }

    /// Forgets a claim that the store would not renew. If the event is completed, that may be because the store knows
    /// it.
    pub(super) fn forget_running(&mut self, key: &EventKey, token: ClaimToken) {
        if self.find(key, token).is_some_and(|claim| claim.progress == Progress::Running) {
            self.remove(key);
        }
    }

    /// Forgets a claim that was released, or whose event was completed under another token.
    pub(super) fn forget(&mut self, key: &EventKey, token: ClaimToken) {
        if self.find(key, token).is_some() {
            self.remove(key);
        }
    }

    /// Forgets the oldest completed event that the store knows of, or that is past its retention. Returns whether there
    /// was one.
    pub(super) fn evict(&mut self, now: Instant) -> bool {
        while let Some(was_known) = self.pop_done() {
            if was_known {
                return true;
            }
        }
        let oldest = self.unconfirmed.values().next();
        match oldest.filter(|key| self.claims.get(*key).is_some_and(|claim| claim.until <= now)).cloned() {
            Some(expired) => self.remove(&expired),
            None => false,
        }
    }

    /// Keeps both queues within the capacity. There can be more unconfirmed completions only where a store gives claims
    /// and takes no completions, or more handlers ran than may be remembered: it is too late to refuse claims, so the
    /// oldest are forgotten.
    pub(super) fn trim(&mut self, capacity: usize) {
        while self.done.len() > capacity {
            self.pop_done();
        }
        while self.unconfirmed.len() > capacity
            && let Some((_, key)) = self.unconfirmed.pop_first()
        {
            self.claims.remove(&key);
        }
    }

    /// Removes the head of the queue. Returns whether it was still known as completed.
    fn pop_done(&mut self) -> Option<bool> {
        let (key, token) = self.done.pop_front()?;
        let was_known = self.find(&key, token).is_some_and(|claim| claim.progress == Progress::Done);
        Some(was_known && self.remove(&key))
    }

    fn insert(&mut self, key: EventKey, claim: StoreClaim) {
        self.remove(&key);
        self.claims.insert(key, claim);
    }

    /// Returns whether the key was known.
    pub(super) fn remove(&mut self, key: &EventKey) -> bool {
        let Some(claim) = self.claims.remove(key) else { return false };
        if let Progress::Unconfirmed { number } = claim.progress {
            self.unconfirmed.remove(&number);
        }
        true
    }

    fn find(&mut self, key: &EventKey, token: ClaimToken) -> Option<&mut StoreClaim> {
        self.claims.get_mut(key).filter(|claim| claim.token == token)
    }
}

impl StoreClaim {
    /// Answers a claim of this event; `None`, if the retention of its completion is over. The answer is fresh for the
    /// claim's own token, and once its lease has lapsed.
    fn answer(&self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let (is_running, is_over) = (self.progress == Progress::Running, self.until <= now);
        let found = Record {
            state: if is_running { State::Running } else { State::Completed },
            is_queued: false,
            is_own: self.token == request.token,
            same_body: self.fingerprint == request.fingerprint,
            has_lapsed: is_over,
        };
        (is_running || !is_over).then(|| record::claim(Some(found)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn completions_that_a_store_never_confirms_are_bounded() {
        let (mut recent, now) = (StoreClaims::default(), Instant::now());
        for number in 0..10 {
            let key = EventKey::new("/webhooks", None, &number.to_string());
            let claim = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
            recent.insert_running(&claim, now);
            recent.complete(&claim, &Completion::succeeded("200 OK", Duration::from_secs(60)), now);
            recent.trim(3);
        }
        assert_eq!((recent.len(), recent.unconfirmed.len(), recent.done.len()), (3, 3, 0));
    }
}
