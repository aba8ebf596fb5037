//! The cases of a contract, run one after the other or each as a test of its own.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use crate::store::Store;

/// Makes the stores for the cases, and lets time pass.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a harness",
    label = "expected a type that makes stores for the cases and lets time pass",
    note = "implement `testing::conformance::Harness` for a type of your own; the docs of `testing::conformance` have an example"
)]
pub trait Harness: Send + Sync {
    /// The store under test.
    type Store: Store;

    /// Creates a new, empty store. All of them are on the clock that [`pass`](Self::pass) moves.
    fn store(&self) -> impl Future<Output = Self::Store> + Send;

    /// Lets time pass on the store's clock: turns a manual one, waits for a real one.
    fn pass(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// The lease of claims that have to lapse; 30 seconds unless overridden.
    ///
    /// A harness on a real clock shortens it, to no less than the store can measure and thirty calls take.
    fn lease(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// The retention of records that have to expire; one minute unless overridden. As for the lease, a real clock
    /// wants less.
    fn retention(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// The cases of one contract: see [`store`](super::store), [`queue`](super::queue) and
/// [`completed_bodies`](super::completed_bodies).
#[must_use = "a suite does nothing until it is run"]
pub struct Suite<H> {
    name: &'static str,
    cases: Vec<Case<H>>,
}

impl<H: Harness> Suite<H> {
    pub(super) fn new(name: &'static str, cases: impl IntoIterator<Item = Vec<Case<H>>>) -> Self {
        Self { name, cases: cases.into_iter().flatten().collect() }
    }

    /// Runs every case in turn, also after one that failed, and prints a line for each.
    ///
    /// # Panics
    ///
    /// If cases failed: with the name of each, the step, and the expected and the actual answer.
    pub async fn run(&self, harness: &H) {
        let mut failed = Vec::new();
        for case in &self.cases {
            let outcome = case.outcome(harness).await;
            let word = if outcome.is_ok() { "ok" } else { "FAILED" };
            println!("{} case {} ... {word}", self.name, case.name);
            failed.extend(outcome.err().map(|message| format!("`{}`: {message}", case.name)));
        }
        let (count, all) = (failed.len(), self.cases.len());
        assert!(failed.is_empty(), "{count} of {all} {} cases failed:\n{}", self.name, failed.join("\n"));
    }

    /// The cases, to run each as a test of its own.
    #[must_use]
    pub fn cases(&self) -> &[Case<H>] {
        &self.cases
    }
}

/// One case of a [`Suite`]: a story that every store of the contract tells in the same way.
pub struct Case<H> {
    name: &'static str,
    check: Arc<Check<H>>,
}

type Check<H> = dyn for<'a> Fn(&'a H) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> + Send + Sync;

impl<H: Harness> Case<H> {
    pub(super) fn new(
        name: &'static str,
        check: impl for<'a> Fn(&'a H) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> + Send + Sync + 'static,
    ) -> Self {
        Self { name, check: Arc::new(check) }
    }

    /// The behaviour that the case holds, such as `second_claim_is_in_flight`. No other case of the suite has the name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the case on a new store of `harness`.
    ///
    /// # Panics
    ///
    /// If it fails: with its name, the step, and the expected and the actual answer.
    pub async fn run(&self, harness: &H) {
        if let Err(message) = self.outcome(harness).await {
            panic!("conformance case `{}`: {message}", self.name);
        }
    }

    /// Returns the message of the panic if the case fails.
    async fn outcome(&self, harness: &H) -> Result<(), String> {
        let mut check = pin!((self.check)(harness));
        // A panic ends the case, and the case is not polled again.
        poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| check.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Err(message(&*panic)).into(),
        })
        .await
    }
}

impl<H> Clone for Case<H> {
    fn clone(&self) -> Self {
        Self { name: self.name, check: self.check.clone() }
    }
}

impl<H> fmt::Debug for Suite<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite").field("name", &self.name).field("cases", &self.cases).finish()
    }
}

impl<H> fmt::Debug for Case<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// Makes a case of each function, under the function's name.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        vec![$(Case::new(stringify!($name), |harness| Box::pin($name(harness)))),*]
    };
}

pub(super) use cases;
