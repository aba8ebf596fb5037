use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::journal::end;
use crate::EventKey;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint};

/// The claims that this instance got from the store: what it runs, and what it has done of late. When the store is away,
/// these are not run a second time.
#[derive(Default)]
pub(super) struct Recent {
    claims: HashMap<EventKey, Seen>,
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
    Unconfirmed,
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
        self.claims.insert(request.key.clone(), seen);
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
        let until = end(now, completion.retention);
        match self.of(claim.key, claim.token) {
            Some(seen) if seen.state == State::Running => (seen.state, seen.until) = (State::Unconfirmed, until),
            _ => return,
        }
        self.done.push_back((claim.key.clone(), claim.token));
    }

    /// The store knows that it is done.
    pub(super) fn confirm(&mut self, key: &EventKey, token: ClaimToken) {
        if let Some(seen) = self.of(key, token) {
            seen.state = State::Done;
        }
    }

    /// Something that was done here without the store, and that it knows by now.
    pub(super) fn insert_done(&mut self, key: &EventKey, token: ClaimToken, fingerprint: Fingerprint, until: Instant) {
        self.claims.insert(key.clone(), Seen { token, fingerprint, state: State::Done, until });
        self.done.push_back((key.clone(), token));
    }

    /// The claim could not be renewed. If its work is done, that may be because the store knows it.
    pub(super) fn lost(&mut self, key: &EventKey, token: ClaimToken) {
        if self.of(key, token).is_some_and(|seen| seen.state == State::Running) {
            self.claims.remove(key);
        }
    }

    /// The claim was given up, or completed by another.
    pub(super) fn forget(&mut self, key: &EventKey, token: ClaimToken) {
        if self.of(key, token).is_some() {
            self.claims.remove(key);
        }
    }

    /// Nobody holds it any longer: the key is another's now.
    pub(super) fn overtaken(&mut self, key: &EventKey) {
        self.claims.remove(key);
    }

    /// Forgets the oldest that is done; whether there was one.
    pub(super) fn evict(&mut self) -> bool {
        while let Some((key, token)) = self.done.pop_front() {
            if self.of(&key, token).is_some_and(|seen| seen.state != State::Running) {
                self.claims.remove(&key);
                return true;
            }
        }
        false
    }

    /// Keeps the queue no longer than there is room for what is in it.
    pub(super) fn trim(&mut self, capacity: usize) {
        while self.done.len() > capacity && self.evict() {}
    }

    fn known(&self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let seen = self.claims.get(request.key).filter(|seen| now < seen.until)?;
        let same_body = seen.fingerprint == request.fingerprint;
        Some(match seen.state {
            State::Running => Claim::InFlight { same_body },
            State::Unconfirmed | State::Done => Claim::Completed { same_body },
        })
    }

    fn of(&mut self, key: &EventKey, token: ClaimToken) -> Option<&mut Seen> {
        self.claims.get_mut(key).filter(|seen| seen.token == token)
    }
}
