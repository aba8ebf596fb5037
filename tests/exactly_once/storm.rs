//! Many events, many deliveries of each, and handlers that fail in every way they can, on any database.
//!
//! `FAULTS_SEED=<number>` plays one more.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tower_webhook::{HandlerError, WebhookEvent};

use super::ledger::{Ledger, Transaction};
use super::receiver::Receiver;
use crate::support::checker::{Dice, asked_seed};
use crate::support::wait::PATIENCE;

const EVENTS: usize = 40;
const DELIVERIES: usize = 6;

pub(crate) async fn every_acknowledged_event_took_effect_exactly_once<L: Ledger>() {
    for seed in asked_seed().into_iter().chain([1, 2, 3]) {
        play::<L>(seed).await;
    }
}

async fn play<L: Ledger>(seed: u64) {
    println!("FAULTS_SEED={seed}");
    let database = L::fresh().await;
    let own = database.clone();
    let handler = move |event: WebhookEvent| {
        // By what every run of the scenario has in common: tokens are random, and who is first is a matter of timing.
        let dice = Dice::new(seed).part(&format!("{} {:?}", event.id(), event.attempt()));
        let database = own.clone();
        async move { misbehave(&database, &event, dice).await }
    };
    let brief = |layer: tower_webhook::WebhookLayer| layer.in_flight_wait(Duration::from_millis(200));
    // Two instances on one database.
    let receivers = [(); 2].map(|()| Receiver::configured(database.store(), brief, handler.clone()));
    let mut senders = JoinSet::new();
    for event in 0..EVENTS {
        let receivers = receivers.clone();
        senders.spawn(async move { (event, acknowledge(&receivers, event, seed).await) });
    }
    while let Some(sent) = senders.join_next().await {
        let (event, acknowledged) = sent.expect("no panic");
        let effects = database.effects(&format!("evt_{event}")).await;
        assert!(effects <= 1, "evt_{event} took effect {effects} times; FAULTS_SEED={seed}");
        assert!(!acknowledged || effects == 1, "evt_{event} was acknowledged without its effect; FAULTS_SEED={seed}");
        assert!(acknowledged, "evt_{event} never came through; FAULTS_SEED={seed}");
    }
}

/// Delivers an event to both instances, several times at once, some of which hang up; and again until it is acknowledged.
async fn acknowledge(receivers: &[Receiver; 2], event: usize, seed: u64) -> bool {
    let id: &'static str = format!("evt_{event}").leak();
    let mut dice = Dice::new(seed.wrapping_mul(1_000) + event as u64);
    // On a busy machine a claim whose reply came too late stands until its lease ends.
    let begun = Instant::now();
    while begun.elapsed() < 3 * PATIENCE {
        let deliveries: Vec<_> = (0..DELIVERIES).map(|n| receivers[n % 2].spawn(id)).collect();
        let mut acknowledged = false;
        for delivery in deliveries {
            if dice.below(8) == 0 {
                delivery.abort();
            } else {
                acknowledged |= delivery.await.expect("no panic").status.is_success();
            }
        }
        if acknowledged {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

async fn misbehave(database: &impl Ledger, event: &WebhookEvent, mut dice: Dice) -> Result<(), HandlerError> {
    match dice.below(8) {
        0 => return Err(HandlerError::transient("before the transaction")),
        1 => return Ok(database.pay(event).await?.rollback().await?),
        2 => drop(database.pay(event).await?),
        3 => {
            let _tx = database.pay(event).await?;
            return Err(HandlerError::transient("inside of the transaction"));
        }
        4 => {
            database.pay(event).await?.commit().await?;
            return Err(HandlerError::transient("after the commit"));
        }
        _ => database.pay(event).await?.commit().await?,
    }
    Ok(())
}
