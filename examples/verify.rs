//! Verifies captured deliveries offline, and says what is wrong with those that a receiver would refuse.
//!
//! ```text
//! cargo run --example verify -- tests/data/vectors.json
//! cargo run --example verify -- --check tests/data/vectors.json
//! cargo run --example verify -- --url https://example.com/webhooks captured.json
//! cargo run --example verify -- --list-schemes
//! ```
//!
//! The file is a JSON array of deliveries:
//!
//! ```json
//! [{ "provider": "stripe", "name": "the one from Tuesday", "secret": "whsec_…",
//!    "headers": { "Stripe-Signature": "t=1700000000,v1=…" }, "body": "{\"id\": …}",
//!    "now": 1700000000, "tolerance": 300 }]
//! ```
//!
//! `provider` is the name of a scheme. Optional are `now`, the receiver's clock (else the current time), `tolerance` (else the
//! provider's; `null` does not check the timestamp), `method` (else `POST`), and `url`, where it was sent to, for schemes
//! that sign it (else `--url`).
//!
//! On stdout is one line for each, `provider <tab> name <tab> accept` or `reject:<kind>`, for scripts; on stderr, for
//! people, why a delivery was rejected. Both are the library's own: `tower_webhook::scheme::diagnose`.

mod support;

use std::error::Error;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use clap::Parser;

use self::support::captured::{Captured, Verdict};
use self::support::listing;

/// Verifies captured deliveries, and explains what a receiver would refuse.
#[derive(Parser)]
struct Args {
    /// A JSON array of captured deliveries; `-` reads standard input.
    #[arg(required_unless_present = "list_schemes")]
    file: Option<String>,
    /// The URL that deliveries without one were sent to, as the provider knows it, for schemes that sign it.
    #[arg(long)]
    url: Option<String>,
    /// Prints all schemes and what is known of them, and exits.
    #[arg(long)]
    list_schemes: bool,
    /// Fails when a verdict is not what the delivery's `expect` says.
    #[arg(long)]
    check: bool,
}

impl Args {
    fn file(&self) -> &str {
        self.file.as_deref().unwrap_or("-")
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(disagreements) => {
            eprintln!("verdicts that are not as expected: {disagreements}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{}: {error}", args.file());
            ExitCode::FAILURE
        }
    }
}

/// The number of verdicts that are not as expected.
async fn run(args: &Args) -> Result<usize, Box<dyn Error>> {
    if args.list_schemes {
        write!(io::stdout(), "{}", listing::table()?)?;
        return Ok(0);
    }
    let mut deliveries: Vec<Captured> = serde_json::from_str(&read(args.file())?)?;
    let mut disagreements = 0;
    for delivery in &mut deliveries {
        delivery.url = delivery.url.take().or_else(|| args.url.clone());
        let verdict = delivery.judge().await;
        let (provider, name) = (on_one_line(&delivery.provider), on_one_line(&delivery.name));
        writeln!(io::stdout(), "{provider}\t{name}\t{verdict}")?;
        if let Some(hint) = verdict.hint() {
            eprintln!("{provider}: {name}: {hint}");
        }
        if args.check && !as_expected(delivery, &verdict) {
            disagreements += 1;
        }
    }
    Ok(disagreements)
}

fn read(file: &str) -> io::Result<String> {
    if file != "-" {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

/// A delivery that expects nothing is as expected; so is one about which official SDKs disagree, though not silently.
fn as_expected(delivery: &Captured, verdict: &Verdict) -> bool {
    let name = on_one_line(&delivery.name);
    match (&delivery.expect, &delivery.policy) {
        (Some(expected), None) if !verdict.agrees_with(expected) => {
            eprintln!("{}: {name}: expected {expected}, got {verdict}", delivery.provider);
            false
        }
        (Some(expected), Some(policy)) if !verdict.agrees_with(expected) => {
            eprintln!("{}: {name}: {verdict} rather than {expected} is a choice: {policy}", delivery.provider);
            true
        }
        _ => true,
    }
}

/// One delivery is one line with two tabs, whatever it is called.
fn on_one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
