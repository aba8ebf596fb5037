//! Whoever forgets events before their sender gives up is told, once.

use std::time::Duration;

use axum::Router;
use tower::Layer;
use tower_webhook::scheme;
use tower_webhook::store::MemoryStore;
use tower_webhook::{ConfigErrorKind, WebhookLayer};

use crate::schemes::preset::{PRESETS, Preset, SECRET};
use crate::support::logs::Logs;

const WARNING: &str = "the retention is shorter than the sender's retry window";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How often it is warned about when this layer is put to use three times.
fn warnings(layer: &WebhookLayer) -> usize {
    let (logs, _guard) = Logs::capture();
    for _ in 0..3 {
        drop(layer.clone().layer(Router::<()>::new()));
    }
    logs.count(WARNING)
}

fn layer(preset: &Preset) -> WebhookLayer {
    WebhookLayer::new(preset.scheme(), MemoryStore::new())
}

#[test]
fn default_retention_is_too_short_for_adyen_and_for_nobody_else() {
    for preset in PRESETS {
        let expected = usize::from(matches!(preset.name, "adyen" | "adyen-banking"));
        assert_eq!(warnings(&layer(preset)), expected, "{}", preset.name);
    }
}

#[test]
fn warning_tells_both_durations() {
    let (logs, _guard) = Logs::capture();
    drop(layer(&Preset::named("adyen")).layer(Router::<()>::new()));
    let line = logs.lines().into_iter().find(|line| line.text.contains(WARNING)).expect("a warning");
    assert_eq!(line.level, tracing::Level::WARN);
    assert!(line.text.contains(&format!("retention_s={}", 7 * DAY.as_secs())), "{}", line.text);
    assert!(line.text.contains(&format!("retry_window_s={}", 30 * DAY.as_secs())), "{}", line.text);
    assert!(!line.text.contains(SECRET));
}

#[test]
fn longer_retention_is_not_warned_about() {
    for name in ["adyen", "adyen-banking"] {
        assert_eq!(warnings(&layer(&Preset::named(name)).retention(30 * DAY).unwrap()), 0, "{name}");
        assert_eq!(warnings(&layer(&Preset::named(name)).retention(31 * DAY).unwrap()), 0, "{name}");
    }
}

#[test]
fn retention_shorter_than_the_known_retries_is_warned_about() {
    for preset in PRESETS {
        let (name, known) = (preset.name, preset.retries.map(|minutes| Duration::from_secs(60 * minutes)));
        assert_eq!(preset.scheme().profile().retry_window, known, "{name}");
        let Some(retention) = known else { continue };
        if let Ok(long) = layer(preset).retention(retention) {
            assert_eq!(warnings(&long), 0, "{name}: just long enough");
        }
        match layer(preset).retention(retention - Duration::from_secs(1)) {
            Ok(short) => assert_eq!(warnings(&short), 1, "{name}"),
            // Shorter than one signature is accepted: refused, rather than warned about.
            Err(error) => assert!(matches!(name, "discord" | "mailgun" | "sendgrid"), "{name}: {error}"),
        }
    }
}

#[test]
fn retention_shorter_than_a_signature_is_accepted_does_not_build() {
    for preset in PRESETS {
        let Some(tolerance) = preset.tolerance else {
            assert!(layer(preset).retention(Duration::from_secs(1)).is_ok(), "{}", preset.name);
            continue;
        };
        let window = Duration::from_secs(2 * tolerance + 1);
        assert!(layer(preset).retention(window).is_ok(), "{}", preset.name);
        let error = layer(preset).retention(window - Duration::from_secs(1)).expect_err(preset.name);
        assert_eq!(error.kind(), ConfigErrorKind::Duration);
        assert!(error.to_string().contains("could be replayed"), "{error}");
    }
}

#[test]
fn tolerance_that_is_raised_raises_the_retention() {
    let long = scheme::stripe(SECRET).unwrap().tolerance(20 * DAY);
    let layer = WebhookLayer::new(long, MemoryStore::new());
    assert!(layer.clone().retention(40 * DAY).is_err(), "twice the tolerance, and the last second");
    assert!(layer.retention(40 * DAY + Duration::from_secs(1)).is_ok());
}
