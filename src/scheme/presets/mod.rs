//! Providers, in a few lines each: which header, how it reads, what is signed, where the id is.
//!
//! Facts are as of November 2026, from the providers' documentation or SDKs. What only others tell of a provider stands behind
//! **Reported:** at the end of its docs. What nobody tells is not set.

mod adyen;
mod code;
mod commerce;
#[cfg(feature = "ed25519")]
mod discord;
mod hubspot;
#[cfg(feature = "sha1")]
mod intercom;
mod mailgun;
mod meetings;
#[cfg(feature = "p256")]
mod plaid;
#[cfg(feature = "p256")]
mod sendgrid;
mod slack;
mod social;
mod standard;
mod timestamped;
mod twilio;
#[cfg(feature = "sha1")]
mod vercel;
mod xero;

use std::time::Duration;

#[cfg(feature = "ed25519")]
pub use self::discord::discord;
pub use self::{
    adyen::{adyen, adyen_banking},
    code::{atlassian_jira, bitbucket, github, gitlab, gitlab_signed, linear, pagerduty, sentry},
    commerce::{coinbase_commerce, lemonsqueezy, shopify, square},
    hubspot::{hubspot, hubspot_v1, hubspot_v2},
    mailgun::{Mailgun, mailgun},
    meetings::{calendly, typeform, zoom},
    slack::slack,
    social::{dropbox, meta},
    standard::{clerk, openai, resend, standard_webhooks, svix},
    timestamped::{paddle, stripe, timestamped},
    twilio::twilio_shared_key,
    xero::xero,
};
#[cfg(feature = "sha1")]
pub use self::{intercom::intercom, twilio::twilio, vercel::vercel};
#[cfg(feature = "p256")]
pub use self::{
    plaid::{Plaid, plaid, plaid_keys},
    sendgrid::sendgrid,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
