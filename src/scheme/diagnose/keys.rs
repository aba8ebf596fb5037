use std::sync::Arc;

use super::finding::{Finding, SecretSlip};
use crate::secrets::{Key, Prepared, SecretSet};

/// Where a key comes from.
#[derive(Clone)]
pub(super) enum Origin {
    Own,
    Expired { label: Box<str> },
    Suspect { label: Option<Box<str>>, slip: Option<SecretSlip> },
}

impl Origin {
    pub(super) fn finding(self) -> Option<Finding> {
        match self {
            Self::Own => None,
            Self::Expired { label } => Some(Finding::ExpiredSecret { label }),
            Self::Suspect { label, slip: None } => Some(Finding::OtherSecret { label }),
            Self::Suspect { label, slip: Some(slip) } => Some(Finding::MisspeltSecret { label, slip }),
        }
    }
}

/// Keys to try at once, each with its origin. The first that fits counts.
pub(super) struct Keys {
    origins: Vec<(Arc<Prepared>, Origin)>,
    pub(super) set: Arc<SecretSet>,
}

impl Keys {
    pub(super) fn new(keys: impl Iterator<Item = (Key, Origin)>) -> Self {
        let origins: Vec<_> = keys.map(|(key, origin)| (Prepared::unlabelled(key), origin)).collect();
        let set = SecretSet::of(origins.iter().map(|(key, _)| key.clone()));
        Self { origins, set }
    }

    /// The keys.
    pub(super) fn each(&self) -> impl Iterator<Item = &Key> {
        self.origins.iter().map(|(prepared, _)| &prepared.key)
    }

    /// The origin of the key that a delivery was verified with.
    pub(super) fn origin(&self, verified: &Arc<Prepared>) -> Option<Origin> {
        let matched = self.origins.iter().find(|(prepared, _)| Arc::ptr_eq(prepared, verified));
        matched.map(|(_, origin)| origin.clone())
    }
}
