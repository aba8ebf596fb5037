//! Everything that the crate tells `tracing`, as text.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// What was told on this thread since [`Logs::capture`]. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Logs {
    lines: Arc<Mutex<Vec<Line>>>,
}

/// One event, or one span's fields.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) target: String,
    pub(crate) level: tracing::Level,
    pub(crate) text: String,
}

impl Logs {
    /// Listens on this thread, at every level, until the guard is dropped.
    pub(crate) fn capture() -> (Self, DefaultGuard) {
        // Without it, a callsite first met on a thread that listens to nothing may be switched off for all of them.
        static EVERY_THREAD: Once = Once::new();
        EVERY_THREAD.call_once(|| {
            tracing::subscriber::set_global_default(tracing_subscriber::registry())
                .expect("the only global subscriber");
        });
        let logs = Self::default();
        let subscriber = tracing_subscriber::registry().with(logs.clone());
        (logs, tracing::subscriber::set_default(subscriber))
    }

    /// What the crate told.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.lock().expect("no panic under the lock").clone()
    }

    /// The audit events.
    pub(crate) fn audits(&self) -> Vec<String> {
        let audits = self.lines().into_iter().filter(|line| line.target == "tower_webhook::audit");
        audits.map(|line| line.text).collect()
    }

    /// The lines that contain this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.lines().iter().filter(|line| line.text.contains(text)).count()
    }

    fn add(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Text)) {
        if !metadata.target().starts_with("tower_webhook") {
            return;
        }
        let mut text = Text(metadata.name().to_owned());
        record(&mut text);
        let line = Line { target: metadata.target().to_owned(), level: *metadata.level(), text: text.0 };
        self.lines.lock().expect("no panic under the lock").push(line);
    }
}

impl<S: Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>> Layer<S> for Logs {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.add(attributes.metadata(), |text| attributes.record(text));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            self.add(span.metadata(), |text| values.record(text));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.add(event.metadata(), |text| event.record(text));
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a string takes everything");
    }
}
