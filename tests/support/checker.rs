//! The three invariants, checked after a scenario: never lost, never doubled, never let in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use tower_webhook::store::ClaimToken;
use tower_webhook::{EventKey, WebhookEvent};

use super::faulty::Faulty;

/// What handlers did, what senders were told, and what was validly signed. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    books: Arc<Mutex<Books>>,
}

#[derive(Default)]
struct Books {
    effects: BTreeMap<String, Vec<ClaimToken>>,
    acknowledged: BTreeSet<String>,
    signed: BTreeSet<String>,
}

impl Ledger {
    /// A handler's effect is there.
    pub(crate) fn effect(&self, event: &WebhookEvent) {
        self.on_books(|books| books.effects.entry(event.id().to_owned()).or_default().push(event.token()));
    }

    /// The sender was given this status for its event.
    pub(crate) fn answered(&self, id: &str, status: StatusCode) {
        if status.is_success() {
            self.on_books(|books| books.acknowledged.insert(id.to_owned()));
        }
    }

    /// An event with this key was validly signed.
    pub(crate) fn signed(&self, key: &EventKey) {
        self.on_books(|books| books.signed.insert(key.as_str().to_owned()));
    }

    pub(crate) fn is_acknowledged(&self, id: &str) -> bool {
        self.on_books(|books| books.acknowledged.contains(id))
    }

    /// The events that took effect more than once.
    pub(crate) fn doubled(&self) -> BTreeSet<String> {
        self.on_books(|books| {
            let doubled = books.effects.iter().filter(|(_, tokens)| tokens.len() > 1);
            doubled.map(|(id, _)| id.clone()).collect()
        })
    }

    /// Asserts the invariants; `scenario` says how to repeat it.
    pub(crate) fn check(&self, store: &Faulty, scenario: &str) {
        self.check_keys(&store.keys(), scenario);
    }

    /// As [`Ledger::check`], for a store with these keys.
    pub(crate) fn check_keys(&self, keys: &BTreeSet<String>, scenario: &str) {
        self.check_but_for(&[], keys, scenario);
    }

    /// As [`Ledger::check_keys`], where these events took effect twice.
    pub(crate) fn check_but_for(&self, doubled: &[&str], keys: &BTreeSet<String>, scenario: &str) {
        self.on_books(|books| {
            for id in &books.acknowledged {
                assert!(books.effects.contains_key(id), "lost: {id} was acknowledged without an effect; {scenario}");
            }
            for (id, tokens) in &books.effects {
                let times = if doubled.contains(&id.as_str()) { 2 } else { 1 };
                assert_eq!(tokens.len(), times, "doubled: {id} took effect under {tokens:?}; {scenario}");
            }
            let let_in: Vec<_> = keys.difference(&books.signed).cloned().collect();
            assert!(let_in.is_empty(), "let in: the store was asked for {let_in:?}; {scenario}");
        });
    }

    fn on_books<T>(&self, act: impl FnOnce(&mut Books) -> T) -> T {
        // An assertion that failed under the lock is told once, not by everybody.
        act(&mut self.books.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// The seed that is asked for, if one is: one name for all tests that play with chance.
pub(crate) fn asked_seed() -> Option<u64> {
    std::env::var("FAULTS_SEED").ok().map(|seed| seed.parse().expect("FAULTS_SEED is a number"))
}

/// A small generator: one seed, one scenario.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of their own for a part of the scenario, whatever the order in which its parts come.
    pub(crate) fn part(&self, name: &str) -> Self {
        let hash = name.bytes().fold(self.0 ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(hash)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}
