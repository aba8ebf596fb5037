//! The table of `--list-schemes`: what every scheme says of itself.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use tower_webhook::scheme::{Algorithm, Profile, Scheme, Tolerance};

use super::demo;
use super::schemes::{self, Given, SchemeError};

const HEADINGS: [&str; 8] =
    ["scheme", "what is signed", "tolerance", "sender waits", "and retries for", "refused with", "feature", "id"];

/// One line per scheme, under a line of headings.
pub(crate) fn table() -> Result<String, SchemeError> {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    for name in schemes::names() {
        rows.push(row(name)?);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |row: &[String; 8]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    Ok(rows.iter().map(line).collect())
}

fn row(name: &str) -> Result<[String; 8], SchemeError> {
    // Nothing of what is listed depends on them.
    let (secrets, url) = (demo::secrets(&[], name), Some("https://receiver.example/webhooks".to_owned()));
    let scheme = schemes::scheme(name, Given { secrets, url, ..Given::default() })?;
    let profile = scheme.profile();
    let or_dash = |time: Option<Duration>| time.map_or("-".to_owned(), in_words);
    Ok([
        name.to_owned(),
        scheme.signs(),
        or_dash(tolerance(&profile)),
        or_dash(profile.sender_timeout),
        or_dash(profile.retry_window),
        refusals(profile.unsigned_status, profile.forged_status),
        feature(&*scheme).unwrap_or("-").to_owned(),
        profile.id.to_string(),
    ])
}

/// How far a timestamp may be from now.
pub(crate) fn tolerance(profile: &Profile) -> Option<Duration> {
    match profile.tolerance? {
        Tolerance::Within(time) => Some(time),
        Tolerance::InsecureUnchecked => None,
    }
}

fn refusals(unsigned: StatusCode, forged: StatusCode) -> String {
    match unsigned == forged {
        true => forged.as_str().to_owned(),
        false => format!("{} or {}", unsigned.as_str(), forged.as_str()),
    }
}

/// The feature of this crate without which the scheme is not there.
pub(crate) fn feature(scheme: &dyn Scheme) -> Option<&'static str> {
    let secrets = scheme.secrets().current()?;
    match secrets.first_active(SystemTime::now()).ok()?.algorithm() {
        Algorithm::HmacSha1 => Some("sha1"),
        Algorithm::Ed25519 => Some("ed25519"),
        Algorithm::EcdsaP256 => Some("p256"),
        _ => None,
    }
}

/// `27 h 36 min`, `3 days`.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds > 0 && seconds.is_multiple_of(24 * 3600) {
        let days = seconds / (24 * 3600);
        return format!("{days} day{}", if days == 1 { "" } else { "s" });
    }
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let parts = parts.iter().filter(|(number, _)| *number > 0).map(|(number, unit)| format!("{number} {unit}"));
    parts.collect::<Vec<_>>().join(" ")
}
