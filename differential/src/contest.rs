use std::time::{SystemTime, UNIX_EPOCH};

use webhook_verify::Provider;

use crate::case::{Case, Verdict};
use crate::draft::Draft;
use crate::oracles;
use crate::rng::Rng;
use crate::twists::{Twist, twisted};
use crate::wire::{self, Wire};

/// One of our schemes, and an oracle for it.
pub struct Contest {
    pub name: &'static str,
    pub wire: &'static Wire,
    pub oracle: fn(&Case) -> Verdict,
    /// What the oracle can be set to.
    tolerances: &'static [Option<u64>],
    clock: Clock,
    pub cases: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// The oracle is told the time.
    Given,
    /// It looks for itself.
    System,
}

const MANY: usize = 6_000;
/// Signatures of private keys take longer.
const FEWER: usize = 4_000;
const ANY_TOLERANCE: &[Option<u64>] = &[Some(300), Some(300), Some(0), Some(3_600), None];

pub const ALL: &[Contest] = &[
    Contest {
        name: "standardwebhooks",
        wire: &wire::STANDARD_WEBHOOKS,
        oracle: oracles::standardwebhooks,
        tolerances: &[Some(300)],
        clock: Clock::System,
        cases: MANY,
    },
    Contest {
        name: "svix",
        wire: &wire::SVIX,
        oracle: oracles::svix,
        tolerances: &[Some(300), None],
        clock: Clock::System,
        cases: 2 * MANY,
    },
    Contest {
        name: "async-stripe",
        wire: &wire::STRIPE,
        oracle: oracles::async_stripe,
        tolerances: &[Some(300)],
        clock: Clock::Given,
        cases: MANY,
    },
    by_webhook_verify("webhook-verify/stripe", &wire::STRIPE, |case| verify(case, Provider::Stripe)),
    by_webhook_verify("webhook-verify/standard-webhooks", &wire::STANDARD_WEBHOOKS, |case| {
        verify(case, Provider::StandardWebhooks)
    }),
    by_webhook_verify("webhook-verify/github", &wire::GITHUB, |case| verify(case, Provider::GitHub)),
    by_webhook_verify("webhook-verify/shopify", &wire::SHOPIFY, |case| verify(case, Provider::Shopify)),
    by_webhook_verify("webhook-verify/slack", &wire::SLACK, |case| verify(case, Provider::Slack)),
    by_webhook_verify("webhook-verify/zoom", &wire::ZOOM, |case| verify(case, Provider::Zoom)),
    by_webhook_verify("webhook-verify/square", &wire::SQUARE, |case| verify(case, Provider::Square)),
    by_webhook_verify("webhook-verify/twilio", &wire::TWILIO, |case| verify(case, Provider::Twilio)),
    by_webhook_verify("webhook-verify/linear", &wire::LINEAR, |case| verify(case, Provider::Linear)),
    by_webhook_verify("webhook-verify/dropbox", &wire::DROPBOX, |case| verify(case, Provider::Dropbox)),
    Contest {
        cases: FEWER,
        ..by_webhook_verify("webhook-verify/discord", &wire::DISCORD, |case| verify(case, Provider::Discord))
    },
    Contest {
        cases: FEWER / 2,
        ..by_webhook_verify("webhook-verify/sendgrid", &wire::SENDGRID, |case| verify(case, Provider::SendGrid))
    },
];

const fn by_webhook_verify(name: &'static str, wire: &'static Wire, oracle: fn(&Case) -> Verdict) -> Contest {
    Contest { name, wire, oracle, tolerances: ANY_TOLERANCE, clock: Clock::Given, cases: MANY }
}

fn verify(case: &Case, provider: Provider) -> Verdict {
    oracles::webhook_verify(case, provider)
}

impl Contest {
    /// A delivery that both should accept.
    pub fn draft(&self, rng: &mut Rng) -> Draft {
        let (now, margin) = match self.clock {
            Clock::Given => (1_700_000_000, 0),
            Clock::System => (system_time(), MARGIN),
        };
        let tolerance = rng.pick(self.tolerances);
        Draft::new(rng, self.wire, now, margin, tolerance)
    }

    /// A delivery with a few twists.
    pub fn case(&self, rng: &mut Rng, twists: &[Twist]) -> Case {
        loop {
            let draft = self.draft(rng);
            match twisted(rng, draft, twists) {
                Some(case) if self.clock == Clock::Given || !self.is_at_the_edge(&case) => return case,
                _ => {}
            }
        }
    }

    /// Whether the verdict could change while the oracle's clock goes on.
    fn is_at_the_edge(&self, case: &Case) -> bool {
        let timestamps = case.headers.iter().filter(|(name, _)| name.as_str().ends_with("-timestamp"));
        let numbers = timestamps.filter_map(|(_, value)| value.to_str().ok()?.parse::<i64>().ok());
        let edge = case.tolerance.unwrap_or_default();
        numbers.into_iter().any(|number| edge.abs_diff((case.now as i64).abs_diff(number)) < MARGIN)
    }
}

/// In seconds: by so much may the oracle look at the clock later than we.
const MARGIN: u64 = 30;

fn system_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs()
}
