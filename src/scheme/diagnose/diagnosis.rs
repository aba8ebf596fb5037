use std::fmt;

use super::finding::Finding;
use crate::rejection::{Rejection, RejectionKind};

/// The findings of [`diagnose`](fn@super::diagnose) about a delivery. `Display` says it in plain sentences.
///
/// It is for the operator, and must not be sent to the sender: it tells a forger what a delivery lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a diagnosis is made to be read"]
pub struct Diagnosis {
    rejection: Option<Rejection>,
    findings: Vec<Finding>,
}

impl Diagnosis {
    pub(super) const VERIFIES: Self = Self { rejection: None, findings: Vec::new() };

    pub(super) fn refused(rejection: Rejection, findings: Vec<Finding>) -> Self {
        Self { rejection: Some(rejection), findings }
    }

    /// Whether the delivery verifies, so that there is nothing to explain.
    #[must_use]
    pub fn verifies(&self) -> bool {
        self.rejection.is_none()
    }

    /// The rejection with which the layer refuses the delivery, if it does.
    #[must_use]
    pub fn rejection(&self) -> Option<&Rejection> {
        self.rejection.as_ref()
    }

    /// The accidents that explain the rejection, each with what to do about it. None if the rejection says all that is
    /// known, or if no usual accident explains it.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rejection) = &self.rejection else { return f.write_str("the delivery verifies") };
        let explains = self.findings.iter().any(Finding::is_certain);
        if !explains {
            write!(f, "{rejection}")?;
        }
        if self.findings.is_empty() && rejection.kind() == RejectionKind::SignatureMismatch {
            f.write_str("; no usual accident explains it")?;
        }
        for (finding, number) in self.findings.iter().zip(1..) {
            write!(f, "{}{finding}", if explains && number == 1 { "" } else { "; " })?;
        }
        Ok(())
    }
}
