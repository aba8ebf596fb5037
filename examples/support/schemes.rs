//! The schemes that the examples know by name: `--scheme stripe`.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_webhook::ConfigError;
use tower_webhook::scheme::{self, Scheme, Timestamped};

/// In `Some`, how far a signed timestamp may be from now, `None` meaning any distance; without it, the scheme's default.
type Tolerance = Option<Option<Duration>>;
type Constructor = fn(Vec<String>, Tolerance) -> Result<Arc<dyn Scheme>, ConfigError>;

/// A provider more is a line more.
const SCHEMES: &[(&str, Constructor)] = &[
    ("calendly", |secrets, tolerance| Ok(timestamped(Timestamped::calendly(secrets)?, tolerance))),
    ("stripe", |secrets, tolerance| Ok(timestamped(Timestamped::stripe(secrets)?, tolerance))),
    ("timestamped", |secrets, tolerance| Ok(timestamped(Timestamped::new(secrets)?, tolerance))),
];

/// The scheme of that name, under these secrets.
pub(crate) fn scheme(name: &str, secrets: Vec<String>, tolerance: Tolerance) -> Result<Arc<dyn Scheme>, SchemeError> {
    let found = SCHEMES.iter().find(|(known, _)| *known == name);
    let (_, construct) = found.ok_or_else(|| SchemeError::Unknown(name.to_owned()))?;
    construct(secrets, tolerance).map_err(SchemeError::Config)
}

fn timestamped(scheme: Timestamped, tolerance: Tolerance) -> Arc<dyn Scheme> {
    Arc::new(match tolerance {
        None => scheme,
        Some(Some(time)) => scheme.tolerance(time),
        Some(None) => scheme.tolerance(scheme::Tolerance::InsecureUnchecked),
    })
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
                let known: Vec<&str> = SCHEMES.iter().map(|(known, _)| *known).collect();
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
