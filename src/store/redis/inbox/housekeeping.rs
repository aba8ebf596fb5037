//! What nobody waits for: deleting completed events whose retention is over, and putting right what failed scripts have left behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::fault::Fault;
use super::super::store::{Shared, Way};
use super::entry::read;
use super::scripts;

/// How many events one script purges, or looks at.
const PURGED: usize = 500;
const SWEPT: usize = 200;

/// How often some events are looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// One task at a time, begun by leases.
#[derive(Default)]
pub(in super::super) struct Housekeeping {
    is_busy: AtomicBool,
    sweep: Mutex<Sweep>,
}

#[derive(Default)]
struct Sweep {
    last: Option<Instant>,
    /// Where to go on.
    place: String,
}

/// Has the next task begin when it is dropped, even if the runtime ends first.
struct Busy(Arc<Shared>);

impl Shared {
    /// Begins to, if there is something to do and nobody does it. A worker that is idle most of the time purges a burst, too: it does
    /// not take a lease for every few events.
    pub(super) fn keep_house(self: &Arc<Self>, has_expired: bool) {
        let is_due = self.housekeeping.sweep().last.is_none_or(|last| last.elapsed() >= SWEEP_EVERY);
        if !(has_expired || is_due) || self.housekeeping.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let busy = Busy(self.clone());
        tokio::spawn(async move {
            // What fails is tried again after a later lease.
            if has_expired {
                let _ = busy.0.purge_all().await;
            }
            if is_due {
                let _ = busy.0.sweep_some().await;
            }
        });
    }

    async fn purge_all(&self) -> Result<(), Fault> {
        let most = PURGED.to_string();
        loop {
            let begun = Instant::now();
            let arguments = [self.prefix.as_bytes(), most.as_bytes()];
            let (reply, _) = self.run(Way::Shared, &scripts::PURGE.call(&self.events()?, &arguments)).await?;
            if !read::<bool>(reply)? {
                return Ok(());
            }
            // As long as it took: the server has others to serve.
            sleep(begun.elapsed()).await;
        }
    }

    async fn sweep_some(&self) -> Result<(), Fault> {
        let (place, most) = (self.housekeeping.begin_sweep(), SWEPT.to_string());
        let arguments = [self.prefix.as_bytes(), place.as_bytes(), most.as_bytes()];
        let (reply, _) = self.run(Way::Shared, &scripts::SWEEP.call(&self.events()?, &arguments)).await?;
        self.housekeeping.sweep().place = read(reply)?;
        Ok(())
    }
}

impl Housekeeping {
    fn begin_sweep(&self) -> String {
        let mut sweep = self.sweep();
        sweep.last = Some(Instant::now());
        sweep.place.clone()
    }

    fn sweep(&self) -> MutexGuard<'_, Sweep> {
        self.sweep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.housekeeping.is_busy.store(false, Ordering::Release);
    }
}
