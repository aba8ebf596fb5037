//! One line per delivery on standard output, from the audit event that the layer emits for each.

use std::fmt::{self, Write as _};
use std::io::IsTerminal;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Prints what the layer tells operators; nothing else.
pub(crate) fn print_deliveries() {
    tracing_subscriber::registry().with(Lines).init();
}

struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let target = event.metadata().target();
        if !target.starts_with("tower_webhook") {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        match target {
            "tower_webhook::audit" => println!("{}{}", coloured(&line.outcome), line.rest),
            _ if *event.metadata().level() > tracing::Level::WARN => {}
            _ => eprintln!("{}: {}{}", event.metadata().level(), line.message, line.rest),
        }
    }
}

/// The outcome, in a column: coloured on a terminal, plain in a file or a pipe and where `NO_COLOR` is set.
fn coloured(outcome: &str) -> String {
    let padded = format!("{outcome:<10}");
    if !std::io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return padded;
    }
    let colour = match outcome {
        "completed" | "accepted" | "handshake" => 32,             // green
        "duplicate" => 36,                                        // cyan
        "released" | "retried" | "cancelled" | "abandoned" => 33, // yellow
        _ => 31,                                                  // red
    };
    format!("\x1b[{colour}m{padded}\x1b[0m")
}

#[derive(Default)]
struct Line {
    outcome: String,
    message: String,
    rest: String,
}

impl Line {
    fn add(&mut self, name: &str, value: fmt::Arguments<'_>) {
        match name {
            "outcome" => self.outcome = value.to_string(),
            "message" => self.message = value.to_string(),
            _ => {
                let _ = write!(self.rest, "  {name}={value}");
            }
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), format_args!("{value:?}"));
    }
}
