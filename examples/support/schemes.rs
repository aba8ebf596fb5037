//! The schemes that the examples know by name: `--scheme stripe`.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tower_webhook::ConfigError;
use tower_webhook::scheme::{self, Mailgun, Plaid, Scheme, Template, Tolerance};

/// What a scheme is made of.
#[derive(Clone, Default)]
pub(crate) struct Given {
    pub(crate) secrets: Vec<String>,
    /// How far a signed timestamp may be from now; without it, what the scheme says.
    pub(crate) tolerance: Option<Tolerance>,
    /// The endpoint's URL as the provider knows it, for schemes that sign it.
    pub(crate) url: Option<String>,
    /// What the provider shows when it validates the endpoint, where that is not the secret.
    pub(crate) verify_token: Option<String>,
}

type Constructor = fn(Given) -> Result<Arc<dyn Scheme>, ConfigError>;

/// A provider more is a line more.
const SCHEMES: &[(&str, Constructor)] = &[
    ("adyen", |given| Ok(Arc::new(scheme::adyen(given.secrets)?))),
    ("adyen-banking", |given| scheme::adyen_banking(given.secrets.clone())?.with(&given)),
    ("atlassian-jira", |given| scheme::atlassian_jira(given.secrets.clone())?.with(&given)),
    ("bitbucket", |given| scheme::bitbucket(given.secrets.clone())?.with(&given)),
    ("calendly", |given| scheme::calendly(given.secrets.clone())?.with(&given)),
    ("clerk", |given| scheme::clerk(given.secrets.clone())?.with(&given)),
    ("coinbase-commerce", |given| scheme::coinbase_commerce(given.secrets.clone())?.with(&given)),
    ("discord", |given| scheme::discord(given.secrets.clone())?.with(&given)),
    ("dropbox", |given| scheme::dropbox(given.secrets.clone())?.with(&given)),
    ("github", |given| scheme::github(given.secrets.clone())?.with(&given)),
    ("gitlab", |given| scheme::gitlab(given.secrets.clone())?.with(&given)),
    ("gitlab-signed", |given| scheme::gitlab_signed(given.secrets.clone())?.with(&given)),
    ("hubspot", |given| scheme::hubspot(given.secrets.clone(), given.url())?.with(&given)),
    ("hubspot-v1", |given| scheme::hubspot_v1(given.secrets.clone())?.with(&given)),
    ("hubspot-v2", |given| scheme::hubspot_v2(given.secrets.clone(), given.url())?.with(&given)),
    ("intercom", |given| scheme::intercom(given.secrets.clone())?.with(&given)),
    ("lemonsqueezy", |given| scheme::lemonsqueezy(given.secrets.clone())?.with(&given)),
    ("linear", |given| scheme::linear(given.secrets.clone())?.with(&given)),
    ("mailgun", |given| scheme::mailgun(given.secrets.clone())?.with(&given)),
    ("meta", |given| scheme::meta(given.secrets.clone(), given.verify_token())?.with(&given)),
    ("openai", |given| scheme::openai(given.secrets.clone())?.with(&given)),
    ("paddle", |given| scheme::paddle(given.secrets.clone())?.with(&given)),
    ("pagerduty", |given| scheme::pagerduty(given.secrets.clone())?.with(&given)),
    ("plaid", |given| scheme::plaid(given.secrets.clone())?.with(&given)),
    ("resend", |given| scheme::resend(given.secrets.clone())?.with(&given)),
    ("sendgrid", |given| scheme::sendgrid(given.secrets.clone())?.with(&given)),
    ("sentry", |given| scheme::sentry(given.secrets.clone())?.with(&given)),
    ("shopify", |given| scheme::shopify(given.secrets.clone())?.with(&given)),
    ("slack", |given| scheme::slack(given.secrets.clone())?.with(&given)),
    ("square", |given| scheme::square(given.secrets.clone(), given.url())?.with(&given)),
    ("standard-webhooks", |given| scheme::standard_webhooks(given.secrets.clone())?.with(&given)),
    ("stripe", |given| scheme::stripe(given.secrets.clone())?.with(&given)),
    ("svix", |given| scheme::svix(given.secrets.clone())?.with(&given)),
    ("timestamped", |given| scheme::timestamped(given.secrets.clone())?.with(&given)),
    ("twilio", |given| Ok(Arc::new(scheme::twilio(given.secrets.clone(), given.url())?))),
    ("twilio-shared-key", |given| Ok(Arc::new(scheme::twilio_shared_key(given.secrets.clone(), given.url())?))),
    ("typeform", |given| scheme::typeform(given.secrets.clone())?.with(&given)),
    ("vercel", |given| scheme::vercel(given.secrets.clone())?.with(&given)),
    ("xero", |given| scheme::xero(given.secrets.clone())?.with(&given)),
    ("zoom", |given| scheme::zoom(given.secrets.clone())?.with(&given)),
];

/// The scheme of that name.
pub(crate) fn scheme(name: &str, given: Given) -> Result<Arc<dyn Scheme>, SchemeError> {
    let found = SCHEMES.iter().find(|(known, _)| *known == name);
    let (_, construct) = found.ok_or_else(|| SchemeError::Unknown(name.to_owned()))?;
    construct(given).map_err(SchemeError::Config)
}

/// The names of all schemes.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SCHEMES.iter().map(|(name, _)| *name)
}

impl Given {
    fn url(&self) -> &str {
        self.url.as_deref().unwrap_or_default()
    }

    /// Its secret, where nothing else is given.
    fn verify_token(&self) -> String {
        self.verify_token.clone().or_else(|| self.secrets.first().cloned()).unwrap_or_default()
    }
}

/// A scheme whose tolerance can be set.
trait WithTolerance: Scheme + Sized {
    fn within(self, tolerance: Tolerance) -> Self;

    fn with(self, given: &Given) -> Result<Arc<dyn Scheme>, ConfigError> {
        Ok(match given.tolerance {
            Some(tolerance) => Arc::new(self.within(tolerance)),
            None => Arc::new(self),
        })
    }
}

impl WithTolerance for Template {
    fn within(self, tolerance: Tolerance) -> Self {
        self.tolerance(tolerance)
    }
}

impl WithTolerance for Plaid {
    fn within(self, tolerance: Tolerance) -> Self {
        self.tolerance(tolerance)
    }
}

impl WithTolerance for Mailgun {
    fn within(self, tolerance: Tolerance) -> Self {
        self.tolerance(tolerance)
    }
}

/// Why there is no such scheme.
pub(crate) enum SchemeError {
    Unknown(String),
    Config(ConfigError),
}

impl fmt::Display for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                let known: Vec<&str> = names().collect();
                write!(f, "there is no scheme {name:?}; there are: {}", known.join(", "))
            }
            Self::Config(error) => fmt::Display::fmt(error, f),
        }
    }
}

// `main` prints what it returns with `Debug`, and people are to read it.
impl fmt::Debug for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for SchemeError {}
