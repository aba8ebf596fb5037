use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use super::journal::end;
use crate::EventKey;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint};

/// The claims that this instance got from the store: what it runs, and what it has done of late. When the store is away,
/// these are not run a second time.
#[derive(Default)]
pub(super) struct Recent {
    claims: HashMap<EventKey, Seen>,
    /// What the store has not confirmed, in the order in which it was done.
    unconfirmed: BTreeMap<u64, EventKey>,
    next_number: u64,
    /// What may go to make room, oldest first. Those that have been claimed anew since are passed over.
    done: VecDeque<(EventKey, ClaimToken)>,
}

struct Seen {
    token: ClaimToken,
    fingerprint: Fingerprint,
    state: State,
    /// The end of the lease, or of the retention.
    until: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// The work is done; the store has not confirmed it.
    Unconfirmed {
        number: u64,
    },
    Done,
}

impl Recent {
    pub(super) fn len(&self) -> usize {
        self.claims.len()
    }

    /// What is known here and not in the store, which may have seen a lease lapse during an outage: that the event is being
    /// worked on right here, or that its work is done.
    pub(super) fn at_work(&self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let seen = self.claims.get(request.key).filter(|seen| now < seen.until)?;
        match seen.state {
            State::Running if seen.token == request.token => None,
            State::Done => None,
            _ => self.known(request, now),
        }
    }

    /// The answer to a claim while the store cannot be asked.
    pub(super) fn claim(&mut self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        match self.of(request.key, request.token) {
            Some(seen) if seen.state == State::Running => {
                seen.until = end(now, request.lease);
                Some(Claim::Fresh { attempt: None })
            }
            _ => self.known(request, now),
        }
    }

    /// The store has given the claim.
    pub(super) fn took(&mut self, request: &ClaimRequest<'_>, now: Instant) {
        let seen = Seen {
            token: request.token,
            fingerprint: request.fingerprint,
            state: State::Running,
            until: end(now, request.lease),
        };
        self.insert(request.key.clone(), seen);
    }

    /// Extends the lease of what runs. Whether the claim is this instance's and the store has not confirmed its end.
    pub(super) fn renew(&mut self, claim: &ClaimRequest<'_>, now: Instant) -> bool {
        let Some(seen) = self.of(claim.key, claim.token) else { return false };
        if seen.state == State::Running {
            seen.until = end(now, claim.lease);
        }
        seen.state != State::Done
    }

    /// The work is done, whatever the store is going to say.
    pub(super) fn complete(&mut self, claim: &ClaimRequest<'_>, completion: &Completion<'_>, now: Instant) {
        let (until, number) = (end(now, completion.retention), self.next_number);
        match self.of(claim.key, claim.token) {
            Some(seen) if seen.state == State::Running => {
                (seen.state, seen.until) = (State::Unconfirmed { number }, until);
            }
            _ => return,
        }
        self.unconfirmed.insert(number, claim.key.clone());
        self.next_number += 1;
    }

    /// The store knows that it is done.
    pub(super) fn confirm(&mut self, key: &EventKey, token: ClaimToken) {
        let Some(seen) = self.of(key, token) else { return };
        if let State::Unconfirmed { number } = seen.state {
            seen.state = State::Done;
            self.unconfirmed.remove(&number);
            self.done.push_back((key.clone(), token));
        }
    }

    /// Something that was done here without the store, and that it knows by now.
    pub(super) fn insert_done(&mut self, key: &EventKey, token: ClaimToken, fingerprint: Fingerprint, until: Instant) {
        self.insert(key.clone(), Seen { token, fingerprint, state: State::Done, until });
        self.done.push_back((key.clone(), token));
    }

    /// The claim could not be renewed. If its work is done, that may be because the store knows it.
    pub(super) fn lost(&mut self, key: &EventKey, token: ClaimToken) {
        if self.of(key, token).is_some_and(|seen| seen.state == State::Running) {
            self.remove(key);
        }
    }

    /// The claim was given up, or completed by another.
    pub(super) fn forget(&mut self, key: &EventKey, token: ClaimToken) {
        if self.of(key, token).is_some() {
            self.remove(key);
        }
    }

    /// Nobody holds it any longer: the key is another's now.
    pub(super) fn overtaken(&mut self, key: &EventKey) {
        self.remove(key);
    }

    /// Forgets the oldest that the store knows of, or that is past its retention; whether there was one.
    pub(super) fn evict(&mut self, now: Instant) -> bool {
        while let Some(was_known) = self.pop_done() {
            if was_known {
                return true;
            }
        }
        let oldest = self.unconfirmed.values().next();
        match oldest.filter(|key| self.claims.get(*key).is_some_and(|seen| seen.until <= now)).cloned() {
            Some(expired) => self.remove(&expired),
            None => false,
        }
    }

    /// Keeps the queues no longer than there is room for what is in them. The unconfirmed can be more only where a store gives
    /// claims and takes no completions, or more handlers ran than may be remembered: nobody can be refused any more, so the
    /// oldest has to go.
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

    /// Forgets the head of the queue; whether it was still known as done.
    fn pop_done(&mut self) -> Option<bool> {
        let (key, token) = self.done.pop_front()?;
        let was_known = self.of(&key, token).is_some_and(|seen| seen.state == State::Done);
        Some(was_known && self.remove(&key))
    }

    fn insert(&mut self, key: EventKey, seen: Seen) {
        self.remove(&key);
        self.claims.insert(key, seen);
    }

    /// Whether there was anything known of the key.
    fn remove(&mut self, key: &EventKey) -> bool {
        let Some(seen) = self.claims.remove(key) else { return false };
        if let State::Unconfirmed { number } = seen.state {
            self.unconfirmed.remove(&number);
        }
        true
    }

    fn known(&self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let seen = self.claims.get(request.key).filter(|seen| now < seen.until)?;
        let same_body = seen.fingerprint == request.fingerprint;
        Some(match seen.state {
            State::Running => Claim::InFlight { same_body },
            State::Unconfirmed { .. } | State::Done => Claim::Completed { same_body },
        })
    }

    fn of(&mut self, key: &EventKey, token: ClaimToken) -> Option<&mut Seen> {
        self.claims.get_mut(key).filter(|seen| seen.token == token)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_store_never_confirms_is_bounded() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        for number in 0..10 {
            let key = EventKey::new("/webhooks", None, &number.to_string());
            let claim = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
            recent.took(&claim, now);
            recent.complete(&claim, &Completion::succeeded("200 OK", Duration::from_secs(60)), now);
            recent.trim(3);
        }
        assert_eq!((recent.len(), recent.unconfirmed.len(), recent.done.len()), (3, 3, 0));
    }
}
