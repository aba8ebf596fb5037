use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after a panic under the lock: that panic was a bug of this crate, and refusing every later
/// delivery would make it worse.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
