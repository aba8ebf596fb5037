//! Keys that differ are kept apart.

use super::Harness;
use super::fixture::{COMPLETED, Caller, FRESH, Fixture, IN_FLIGHT};
use crate::EventKey;
use crate::store::Hold;

use Caller::{First, Second};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness) {
    odd_ids_are_kept_apart(harness).await;
    long_ids_are_kept_apart(harness).await;
    tenants_are_kept_apart(harness).await;
    endpoints_are_kept_apart(harness).await;
}

/// Ids are compared byte by byte: no folding of case, spaces or accents, and no character with a meaning.
pub async fn odd_ids_are_kept_apart(harness: &impl Harness) {
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
    apart("odd_ids_are_kept_apart", harness, ids.map(|id| EventKey::new("/hook", None, id))).await;
}

/// Ids of 255 bytes, the longest there are, are not cut off.
pub async fn long_ids_are_kept_apart(harness: &impl Harness) {
    let long = "x".repeat(254);
    let ids = [format!("{long}a"), format!("{long}b"), long, "é".repeat(127), "é".repeat(126)];
    apart("long_ids_are_kept_apart", harness, ids.map(|id| EventKey::new("/hook", None, &id))).await;
}

/// Two tenants may receive the same id.
pub async fn tenants_are_kept_apart(harness: &impl Harness) {
    let keys =
        [(None, "evt_1"), (Some("one"), "evt_1"), (Some("two"), "evt_1"), (Some("one/evt"), "1"), (Some("é"), "1")];
    apart("tenants_are_kept_apart", harness, keys.map(|(tenant, id)| EventKey::new("/hook", tenant, id))).await;
}

/// A sender delivers one id to every endpoint registered with it, and each must get it.
pub async fn endpoints_are_kept_apart(harness: &impl Harness) {
    let endpoints = ["/a", "/b", "/A", "/a/", "/a/{id}", "", "github"];
    apart("endpoints_are_kept_apart", harness, endpoints.map(|endpoint| EventKey::new(endpoint, None, "evt_1"))).await;
}

/// Claims all keys, completes every other one, and checks that the others are still running.
async fn apart<const N: usize>(check: &'static str, harness: &impl Harness, keys: [EventKey; N]) {
    let fixture = Fixture::new(check, harness).await;
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
