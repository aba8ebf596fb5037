use std::sync::Arc;

use http::HeaderName;

use crate::error::ConfigError;
use crate::head::header_name;
use crate::rejection::Rejection;
use crate::scheme::Head;

/// Headers that come together.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub(super) signature: ProofHeader,
    pub(super) timestamp: Option<ProofHeader>,
    pub(super) id: Option<ProofHeader>,
}

/// A header that is part of the proof: once, and not empty.
#[derive(Clone, Debug)]
pub(super) struct ProofHeader {
    pub(super) name: HeaderName,
    /// Its name, for people.
    hint: Arc<str>,
}

impl ProofHeader {
    pub(super) fn new(name: &str) -> Result<Self, ConfigError> {
        let name = header_name(name)?;
        Ok(Self { hint: name.as_str().into(), name })
    }

    pub(super) fn of<'a>(&self, head: &Head<'a>) -> Result<&'a [u8], Rejection> {
        head.proof_header(&self.name).map_err(|rejection| rejection.hinting(&self.hint))
    }
}
