use std::fmt;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::{EventKey, random};

/// The request for [`Store::claim`](super::Store::claim).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClaimRequest<'a> {
    /// The key of the event.
    pub key: &'a EventKey,
    /// The token of the claimant.
    pub token: ClaimToken,
    /// How long the claim holds unless it is renewed.
    pub lease: Duration,
    /// A short hash of the body, to notice one id under two bodies.
    pub fingerprint: Fingerprint,
    /// The event's type, for people who look into the store.
    pub event_type: Option<&'a str>,
}

impl<'a> ClaimRequest<'a> {
    /// A request without a type, with the default fingerprint.
    #[must_use]
    pub fn new(key: &'a EventKey, token: ClaimToken, lease: Duration) -> Self {
        Self { key, token, lease, fingerprint: Fingerprint::default(), event_type: None }
    }

    /// The same request for a body with this fingerprint.
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = fingerprint;
        self
    }

    /// The same request for an event of this type.
    #[must_use]
    pub fn event_type(mut self, event_type: Option<&'a str>) -> Self {
        self.event_type = event_type;
        self
    }
}

/// Proves who holds a claim: 128 bits made by the claimant, new for every delivery and unlike those of any other
/// process.
///
/// It is the fence: `renew`, `complete` and `release` do nothing under any other token. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimToken([u8; 16]);

impl ClaimToken {
    /// A new token.
    #[must_use]
    pub fn random() -> Self {
        Self(random::bits().to_be_bytes())
    }

    /// The token that a store wrote as these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes for a store to write.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimToken({self})")
    }
}

/// How a claim was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claim {
    /// The claim is the caller's: it was free, its holder's lease had lapsed, or the caller's own token holds it
    /// already.
    Fresh {
        /// How often the key has been claimed, this time included, where the store counts.
        attempt: Option<u32>,
    },
    /// Another token holds the claim, and its work may still fail.
    InFlight {
        /// Whether the holder's body has the same fingerprint.
        same_body: bool,
    },
    /// The event is durably queued and will be run: done, as far as the sender is concerned.
    Accepted {
        /// Whether the queued body has the same fingerprint.
        same_body: bool,
    },
    /// The event was completed, and its record is still kept.
    Completed {
        /// Whether the completed body had the same fingerprint.
        same_body: bool,
    },
}

/// Whether a token still holds its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a lost claim belongs to somebody else"]
pub enum Hold {
    /// The token holds the claim, and the verb took effect.
    Held,
    /// Another token took the claim over or completed it; nothing was changed.
    Lost,
}

/// The record of a completed event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Completion<'a> {
    /// Whether the handler gave the event up for good.
    pub failed: bool,
    /// The response's status, or why the event was given up.
    pub summary: &'a str,
    /// How long duplicates are recognised.
    pub retention: Duration,
}

impl<'a> Completion<'a> {
    /// The handler did its work.
    #[must_use]
    pub const fn succeeded(summary: &'a str, retention: Duration) -> Self {
        Self { failed: false, summary, retention }
    }

    /// The handler gave the event up; no retry will help.
    #[must_use]
    pub const fn failed(reason: &'a str, retention: Duration) -> Self {
        Self { failed: true, summary: reason, retention }
    }
}

/// How a claim ends.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Ending<'a> {
    /// The event is done, or its handler gave it up for good: duplicates are recognised for the completion's retention.
    /// A queued event whose completion is a failure becomes a dead letter.
    Complete(Completion<'a>),
    /// The event is as if it had not been claimed: the next delivery runs. A queued event is due since when it was due
    /// before, ahead of events that came later, and its attempt does not count.
    Release,
    /// The attempt at a queued event failed, and is to be repeated.
    Retry {
        /// The event is not leased before this has passed.
        after: Duration,
        /// Why the attempt failed.
        reason: &'a str,
    },
    /// The queued event becomes a dead letter: it is not run again unless an operator requeues it, and does not expire.
    /// Burying again under the same token is [`Hold::Held`] and changes nothing.
    Bury {
        /// Why it was given up.
        reason: &'a str,
    },
}

/// A short hash of a body. Two bodies with one fingerprint are taken for the same; it is no proof against forgery,
/// which is the signature's business.
///
/// The [replay guard](crate::WebhookLayer::replay_guard) compares ids by theirs, which attackers choose: a store keeps
/// all 64 bits, or a part that is chosen by a secret key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of `body` delivered under `key`. Every instance computes the same one, and one body under two
    /// keys has two.
    #[must_use]
    pub fn of(key: &EventKey, body: &[u8]) -> Self {
        Self::from_hashes(BodyHashes::of(key, body))
    }

    pub(crate) fn from_hashes(hashes: BodyHashes) -> Self {
        // Combined by XOR, and not by a seed: a seeded xxh3 is slower on long inputs.
        Self(hashes.key ^ hashes.body)
    }

    /// The fingerprint that a store wrote as this number.
    #[must_use]
    pub const fn from_u64(value: u64) -> Self {
        Self(value)
    }

    /// The number for a store to write.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// The hashes of which a [`Fingerprint`] is made.
#[derive(Clone, Copy)]
pub(crate) struct BodyHashes {
    pub(crate) key: u64,
    pub(crate) body: u64,
}

impl BodyHashes {
    pub(crate) fn of(key: &EventKey, body: &[u8]) -> Self {
        Self { key: xxh3_64(key.as_str().as_bytes()), body: xxh3_64(body) }
    }
}
