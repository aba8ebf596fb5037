//! A circuit breaker in front of any store, with a fallback that may decide while the circuit is open.
//!
//! A store that is down makes every delivery wait for its deadline before it is refused, and is asked all the more by
//! senders that try again. [`BreakerStore`] stops that: after a few failures in a row the circuit opens and claims are
//! no longer put to the store. When the cool-down is over, exactly one claim is let through; if it is answered, the
//! circuit closes.
//!
//! ```
//! use std::time::Duration;
//! use tower_webhook::EventKey;
//! use tower_webhook::store::breaker::CircuitState;
//! use tower_webhook::store::{BreakerStore, Claim, ClaimRequest, ClaimToken, MemoryStore, Store};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let store = BreakerStore::new(MemoryStore::new());
//! let key = EventKey::new("/webhooks/stripe", None, "evt_1");
//! let request = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
//! assert!(matches!(store.claim(&request).await?, Claim::Fresh { .. }));
//! assert_eq!(store.stats().circuit, CircuitState::Closed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to do while the store is away
//!
//! | | refuse (default) | [`fallback_may_double`](BreakerStoreBuilder::fallback_may_double) |
//! |---|---|---|
//! | a new event | 503 + `Retry-After` at once; the sender tries again later | handled, 200 |
//! | a duplicate of an event that this instance has done | 503 | 200, if it is still remembered |
//! | a duplicate of an event that another instance has done, or is doing | 503 | **runs again** |
//! | how long an outage may last | as long as the sender retries | until the fallback is full; then 503 |
//! | this process ends during the outage | nothing is lost | its completions are forgotten: a later duplicate **runs again** |
//! | afterwards | nothing to do | the store gets the journal, conflicts are reported |
//!
//! Choose the fallback where handling an event late is worse than now and then handling it twice, and where its effects
//! may be repeated. With one instance, only events that a restart forgets, or for which there was no room, run twice.
//! The first few deliveries of an outage, those that open the circuit, get a 503 either way.
//!
//! # What counts as a failure
//!
//! An error that means an outage, of any verb, and a call that its caller dropped after it had been without an answer
//! for [`hung_after`](BreakerStoreBuilder::hung_after): the receiver gives a store that hangs no other sign than
//! dropping the call at its deadline. A call that was dropped sooner proves nothing, and if it was the probe, the next
//! claim is. Being in flight, completed or lost are answers, and so are [`Full`](super::StoreErrorKind::Full),
//! [`Locked`](super::StoreErrorKind::Locked) and [`Corrupt`](super::StoreErrorKind::Corrupt). Only a claim that is
//! answered begins the count anew and closes the circuit: a store out of memory may well release claims and yet take
//! none.
//!
//! # Settling
//!
//! The circuit holds back claims and nothing else. `renew`, `complete` and `release` go to where the claim was made,
//! whatever the circuit's state: a store that is still away answers with an error, and the receiver tries again in the
//! background until the completion is there. So an event that was running when the outage began is completed in the
//! store when it is over.
//!
//! # The fallback
//!
//! While the circuit is closed, the store decides, and the fallback takes note of the claims and completions of this
//! instance. While it is open, claims are decided in memory, against those notes and against each other, so that one
//! instance does not run an event twice. A claim made there is settled there, also after the store is back. A handler
//! that holds its claim from the store keeps it: renewals that the store cannot answer are answered here. If another
//! instance, which could reach the store, has taken the claim over meanwhile, it is lost with the first renewal or
//! completion that gets through.
//!
//! An event that was completed without the store is in a journal, and completed in the store, under its own token, as
//! soon as the store answers; until then every claim of it sees it completed. If the event was completed in the store
//! under another token, that stands, and the [`Conflict`] is logged and given to
//! [`on_conflict`](BreakerStoreBuilder::on_conflict). If another claim holds it there, the journal waits until that
//! claim ends: it may be one that was made as the outage began, and whose holder is gone. The journal is in memory
//! only: await [`reconciled`](BreakerStore::reconciled) before the process exits, and watch
//! [`unreconciled`](BreakerStats::unreconciled).
//!
//! Handlers that [enlist](crate::enlist) their completion gain nothing from a fallback. A claim that it gave has no row
//! in the database, so that `complete_in` fails with [`ClaimLost`](crate::enlist::EnlistErrorKind::ClaimLost), nothing
//! is committed, and the sender gets an error until the store is back. Where the claim that tried the store had left a
//! row there without an answer, the transaction can be committed; if the store is away again when it is asked whether
//! it was, the sender is told that it was not, and the retry gets 200.

mod builder;
mod circuit;
mod fallback;
mod journal;
mod reconcile;
mod shared_circuit;
mod store;
mod store_claims;

pub use self::{
    builder::BreakerStoreBuilder,
    circuit::CircuitState,
    journal::{Conflict, FoundInStore},
    store::{BreakerStats, BreakerStore},
};
