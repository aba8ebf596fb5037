//! Background work: purging completed events whose retention is over, and repairing what failed scripts left behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::client::{Client, Mode};
use super::error::Result;
use super::scripts;
use crate::lock::lock;

/// How many events one script purges, and how many it checks.
const PURGED: usize = 500;
const SWEPT: usize = 200;

/// How often some events are checked.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// One task at a time, started by leases.
pub(super) struct Housekeeper {
    client: Arc<Client>,
    is_busy: AtomicBool,
    sweep: Mutex<Sweep>,
}

#[derive(Default)]
struct Sweep {
    last: Option<Instant>,
    /// Where the next sweep begins.
    position: String,
}

/// The task. The next one may start when this is dropped, even if its runtime ends first.
struct Task(Arc<Housekeeper>);

impl Housekeeper {
    pub(super) fn new(client: Arc<Client>) -> Arc<Self> {
        Arc::new(Self { client, is_busy: AtomicBool::new(false), sweep: Mutex::default() })
    }

    /// Starts the task if there is work and no task. It purges a burst even for a worker that is idle most of the time,
    /// and that does not lease often enough to purge a few events each time.
    pub(super) fn start(self: &Arc<Self>, has_expired: bool) {
        let is_due = lock(&self.sweep).last.is_none_or(|last| last.elapsed() >= SWEEP_EVERY);
        if !(has_expired || is_due) || self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = Task(self.clone());
        tokio::spawn(async move {
            // Failures are tried again after a later lease.
            if has_expired {
                let _ = task.0.purge_all().await;
            }
            if is_due {
                let _ = task.0.sweep_some().await;
            }
        });
    }

    async fn purge_all(&self) -> Result<()> {
        let (prefix, most) = (&self.client.prefix, PURGED.to_string());
        loop {
            let begun = Instant::now();
            let arguments = [&**prefix, &most];
            let reply = self.client.run(Mode::Repeatable, &scripts::PURGE, &self.client.stream()?, &arguments).await?;
            if !reply.read::<bool>()? {
                return Ok(());
            }
            // For as long as it took: the server has other clients to serve.
            sleep(begun.elapsed()).await;
        }
    }

    async fn sweep_some(&self) -> Result<()> {
        let (position, most) = (self.begin_sweep(), SWEPT.to_string());
        let arguments = [&*self.client.prefix, &position, &most];
        let reply = self.client.run(Mode::Repeatable, &scripts::SWEEP, &self.client.stream()?, &arguments).await?;
        lock(&self.sweep).position = reply.read()?;
        Ok(())
    }

    fn begin_sweep(&self) -> String {
        let mut sweep = lock(&self.sweep);
        sweep.last = Some(Instant::now());
        sweep.position.clone()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}
