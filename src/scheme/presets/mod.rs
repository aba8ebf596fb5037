//! Providers, in a few lines each: the header, its format, the signed text, the source of the id.
//!
//! Facts are as of November 2026, from the providers' documentation or SDKs. Facts from third parties come after
//! **Reported:** at the end of a provider's docs. Unknown facts are not set.

mod adyen;
mod commerce;
mod common;
mod development;
#[cfg(feature = "ed25519")]
mod discord;
mod mailgun;
mod messaging;
mod office;
#[cfg(feature = "p256")]
mod p256;
#[cfg(feature = "sha1")]
mod sha1;
mod standard;
mod twilio;

#[cfg(feature = "ed25519")]
pub use self::discord::discord;
#[cfg(feature = "p256")]
pub use self::p256::{Plaid, plaid, plaid_keys, sendgrid};
pub use self::{
    adyen::{adyen, adyen_banking},
    commerce::{coinbase_commerce, lemonsqueezy, paddle, shopify, square, stripe},
    development::{atlassian_jira, bitbucket, github, gitlab, gitlab_signed, linear, pagerduty, sentry},
    mailgun::{Mailgun, mailgun},
    messaging::{meta, slack},
    office::{calendly, dropbox, hubspot, hubspot_v1, hubspot_v2, typeform, xero, zoom},
    standard::{clerk, openai, resend, standard_webhooks, svix, timestamped},
    twilio::twilio_shared_key,
};
#[cfg(feature = "sha1")]
pub use self::{
    sha1::{intercom, vercel},
    twilio::twilio,
};
