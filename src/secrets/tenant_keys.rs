use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Secret;
use super::set::{Prepare, SecretSet};
use crate::error::ConfigError;

/// The secrets of one tenant as the lookup gave them, and the keys that each scheme made of them.
///
/// Two schemes may share one lookup, and decode the same text in two ways: keys that one of them made are no use to the other.
pub(super) struct TenantKeys {
    secrets: Vec<Secret>,
    prepared: Mutex<Vec<PreparedBy>>,
}

/// One scheme's keys. The weak reference keeps the closure's address from being used again while the keys are cached.
struct PreparedBy {
    scheme: Weak<Prepare>,
    set: Arc<SecretSet>,
}

impl TenantKeys {
    pub(super) fn new(secrets: Vec<Secret>) -> Self {
        Self { secrets, prepared: Mutex::default() }
    }

    /// The keys that the scheme with this closure makes of the secrets, made once per scheme.
    pub(super) fn prepared_by(&self, prepare: &Arc<Prepare>) -> Result<Arc<SecretSet>, ConfigError> {
        let scheme = Arc::downgrade(prepare);
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = prepared.iter().find(|keys| keys.scheme.ptr_eq(&scheme)) {
            return Ok(found.set.clone());
        }
        let set = Arc::new(SecretSet::new(&self.secrets, &**prepare)?);
        prepared.retain(|keys| keys.scheme.strong_count() > 0);
        prepared.push(PreparedBy { scheme, set: set.clone() });
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::{Algorithm, Key};

    fn scheme(algorithm: Algorithm) -> Arc<Prepare> {
        Arc::new(move |text: &str| Key::new(algorithm, text.as_bytes()))
    }

    #[test]
    fn each_scheme_makes_its_own_keys_once() {
        let keys = TenantKeys::new(vec![Secret::new("s").expect("valid")]);
        let (one, other) = (scheme(Algorithm::HmacSha256), scheme(Algorithm::Token));
        let first = keys.prepared_by(&one).expect("a key");
        assert!(Arc::ptr_eq(&first, &keys.prepared_by(&one).expect("a key")));
        let now = std::time::SystemTime::now();
        let of_other = keys.prepared_by(&other).expect("a key");
        assert_eq!(of_other.first_active(now).expect("active").algorithm(), Algorithm::Token);
    }

    #[test]
    fn keys_of_dropped_schemes_do_not_pile_up() {
        let keys = TenantKeys::new(vec![Secret::new("s").expect("valid")]);
        for _ in 0..100 {
            keys.prepared_by(&scheme(Algorithm::HmacSha256)).expect("a key");
        }
        assert_eq!(keys.prepared.lock().expect("no panic under the lock").len(), 1);
    }
}
