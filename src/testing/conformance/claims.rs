//! The answers to a claim, for how long they hold, and keys that differ.

use std::time::Duration;

use super::fixture::{COMPLETED, Caller, FRESH, Fixture, IN_FLIGHT, LONG};
use super::suite::{Case, Harness, cases};
use crate::EventKey;
use crate::store::{Claim, Completion, Fingerprint, Hold};

use Caller::{First, Second};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![
        first_claim_is_fresh,
        second_claim_is_in_flight,
        completed_event_is_completed,
        failed_event_is_completed,
        own_token_is_fresh_again,
        own_token_sees_its_completion,
        released_event_is_fresh_again,
        other_body_is_noticed_in_flight,
        other_body_is_noticed_when_completed,
        attempts_are_counted_if_at_all,
        expired_event_is_fresh_again,
        retention_counts_from_the_completion,
        completing_again_does_not_change_the_retention,
        retentions_may_differ,
        extreme_retentions_work,
        odd_ids_are_kept_apart,
        long_ids_are_kept_apart,
        tenants_are_kept_apart,
        endpoints_are_kept_apart,
    ]
}

/// A key that was never claimed is free.
async fn first_claim_is_fresh(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
}

/// A key that another token holds is in flight, however often one asks.
async fn second_claim_is_in_flight(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.claims(Second, IN_FLIGHT).await;
    event.claims(Second, IN_FLIGHT).await;
    event.completes(First, Hold::Held).await;
}

/// A completed key is completed to every other token.
async fn completed_event_is_completed(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
    event.claims(Second, COMPLETED).await;
}

/// An event that was given up must not run again either.
async fn failed_event_is_completed(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.completes_with(&Completion::failed("no such account: \"☃\"", LONG), First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
}

/// A claim whose reply was lost is repeated under its token, and must not lock itself out.
async fn own_token_is_fresh_again(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.claims(First, FRESH).await;
    event.claims(Second, IN_FLIGHT).await;
    event.completes(First, Hold::Held).await;
}

/// A completed event is completed even to the token that completed it.
async fn own_token_sees_its_completion(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.claims(First, COMPLETED).await;
}

/// A release frees the key, for the same token too.
async fn released_event_is_fresh_again(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.releases(First, Hold::Held).await;
    event.claims(Second, FRESH).await;
    event.releases(Second, Hold::Held).await;
    event.claims(Second, FRESH).await;
    event.claims(First, IN_FLIGHT).await;
}

/// `same_body` compares with the body of the running claim.
async fn other_body_is_noticed_in_flight(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    let [one, other] = bodies(&event);
    event.claims_body(one, First, FRESH).await;
    event.claims_body(one, Second, IN_FLIGHT).await;
    event.claims_body(other, Second, Claim::InFlight { same_body: false }).await;

    event.releases(First, Hold::Held).await;
    event.claims_body(other, Second, FRESH).await;
    event.claims_body(other, First, IN_FLIGHT).await;
    event.claims_body(one, First, Claim::InFlight { same_body: false }).await;
}

/// `same_body` compares with the body that was completed.
async fn other_body_is_noticed_when_completed(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    let [one, other] = bodies(&event);
    event.claims_body(one, First, FRESH).await;
    event.completes_body(one, First, Hold::Held).await;
    event.claims_body(one, Second, COMPLETED).await;
    event.claims_body(other, Second, Claim::Completed { same_body: false }).await;
}

/// A store that counts attempts starts at one, counts takeovers, and does not count a repeated claim twice. One that
/// does not count says `None`.
async fn attempts_are_counted_if_at_all(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    let lease = harness.lease();
    for (caller, expected) in [(First, 1), (First, 1), (Second, 2)] {
        if caller == Second {
            harness.pass(lease * 2).await;
        }
        let came = event.attempts(lease, caller).await;
        if came.is_some_and(|attempt| attempt != expected) {
            event.fail(&format!("attempt by {caller:?}"), &expected, &came);
        }
    }
}

fn bodies<S>(event: &Fixture<S>) -> [Fingerprint; 2] {
    [b"one", b"two"].map(|body| Fingerprint::of(&event.key, body))
}

/// After its retention a completed event can be claimed again.
async fn expired_event_is_fresh_again(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.completes_with(&brief(harness), First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
    harness.pass(harness.retention() * 2).await;
    event.claims(Second, FRESH).await;
    event.claims(First, IN_FLIGHT).await;
    event.completes(Second, Hold::Held).await;
    event.claims(First, COMPLETED).await;
}

/// The retention starts with the completion and not with the claim.
async fn retention_counts_from_the_completion(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    harness.pass(harness.retention() * 2).await;
    event.completes_with(&brief(harness), First, Hold::Held).await;
    event.claims(Second, COMPLETED).await;
}

/// Completing again under the same token is harmless: the first completion's retention stands.
async fn completing_again_does_not_change_the_retention(harness: &impl Harness) {
    let event = Fixture::new(harness).await;
    event.claims(First, FRESH).await;
    event.completes(First, Hold::Held).await;
    event.completes_with(&brief(harness), First, Hold::Held).await;
    harness.pass(harness.retention() * 2).await;
    event.claims(Second, COMPLETED).await;
}

/// Each event is kept for its own retention, whatever the order of the completions.
async fn retentions_may_differ(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let events: Vec<_> = (0..12).map(|n| fixture.event(EventKey::new("/hook", None, &n.to_string()))).collect();
    for (n, event) in events.iter().enumerate() {
        event.claims(First, FRESH).await;
        let kept = if n % 3 == 0 { Completion::succeeded("200", LONG) } else { brief(harness) };
        event.completes_with(&kept, First, Hold::Held).await;
    }
    harness.pass(harness.retention() * 2).await;
    for (n, event) in events.iter().enumerate() {
        event.claims(Second, if n % 3 == 0 { COMPLETED } else { FRESH }).await;
    }
}

/// A retention of a millisecond and one of ten years are retentions like any other.
async fn extreme_retentions_work(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let decade = Duration::from_secs(10 * 365 * 24 * 3600);
    for (retention, then) in [(Duration::from_millis(1), FRESH), (decade, COMPLETED)] {
        let event = fixture.event(EventKey::new("/hook", None, &format!("{retention:?}")));
        event.claims(First, FRESH).await;
        event.completes_with(&Completion::succeeded("200", retention), First, Hold::Held).await;
        harness.pass(harness.retention()).await;
        event.claims(Second, then).await;
    }
}

fn brief(harness: &impl Harness) -> Completion<'static> {
    Completion::succeeded("200 OK", harness.retention())
}

/// Ids are compared byte by byte: no folding of case, spaces or accents, and no character with a meaning.
async fn odd_ids_are_kept_apart(harness: &impl Harness) {
    let ids = [
        "evt_1",
        "EVT_1",
        " evt_1",
        "evt_1 ",
        "evt_1\n",
        "",
        "0",
        "00",
        "evt:1",
        "{evt}1",
        "evt*",
        "evt?",
        "evt%",
        "evt/1",
        "evt\\1",
        "evt'1",
        "evt\"1",
        "'; drop table events; --",
        "$1",
        "[evt]",
        "\u{e9}",
        "e\u{301}",
        "straße",
        "strasse",
        "ｅｖｔ",
        "日本語",
        "🦀",
        "\u{1f468}\u{200d}\u{1f469}",
        "\u{feff}evt_1",
        "\u{202e}evt_1",
    ];
    apart(harness, ids.map(|id| EventKey::new("/hook", None, id))).await;
}

/// Ids of 255 bytes, the longest there are, are not cut off.
async fn long_ids_are_kept_apart(harness: &impl Harness) {
    let long = "x".repeat(254);
    let ids = [format!("{long}a"), format!("{long}b"), long, "é".repeat(127), "é".repeat(126)];
    apart(harness, ids.map(|id| EventKey::new("/hook", None, &id))).await;
}

/// Two tenants may receive the same id.
async fn tenants_are_kept_apart(harness: &impl Harness) {
    let keys =
        [(None, "evt_1"), (Some("one"), "evt_1"), (Some("two"), "evt_1"), (Some("one/evt"), "1"), (Some("é"), "1")];
    apart(harness, keys.map(|(tenant, id)| EventKey::new("/hook", tenant, id))).await;
}

/// A sender delivers one id to every endpoint registered with it, and each must get it.
async fn endpoints_are_kept_apart(harness: &impl Harness) {
    let endpoints = ["/a", "/b", "/A", "/a/", "/a/{id}", "", "github"];
    apart(harness, endpoints.map(|endpoint| EventKey::new(endpoint, None, "evt_1"))).await;
}

/// Claims all keys, completes every other one, and checks that the others are still running.
async fn apart<const N: usize>(harness: &impl Harness, keys: [EventKey; N]) {
    let fixture = Fixture::new(harness).await;
    let events = keys.map(|key| fixture.event(key));
    for event in &events {
        event.claims(First, FRESH).await;
    }
    for event in events.iter().step_by(2) {
        event.completes(First, Hold::Held).await;
    }
    for (n, event) in events.iter().enumerate() {
        event.claims(Second, if n % 2 == 0 { COMPLETED } else { IN_FLIGHT }).await;
    }
}
