//! The durations and counts at which arithmetic overflows and settings mean something else, and what tries a store with them.

use std::future::Future;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tower_webhook::EventKey;
use tower_webhook::queue::{LeaseRequest, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, StoreError};

pub(crate) const TIMES: [Duration; 3] = [Duration::ZERO, Duration::from_nanos(1), Duration::MAX];
pub(crate) const COUNTS: [usize; 3] = [0, 1, usize::MAX];

/// Nothing takes this long; it only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

const LEASE: Duration = Duration::from_secs(600);

/// Notices panics of the crate and of what it calls, in whatever task, until it ends. A test that fails beside it in the same
/// process does not count.
pub(crate) struct NoPanics(usize);

static PANICS: AtomicUsize = AtomicUsize::new(0);

impl NoPanics {
    pub(crate) fn begin() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                let is_of_a_test = info.location().is_some_and(|location| location.file().starts_with("tests/"));
                PANICS.fetch_add(usize::from(!is_of_a_test), Ordering::SeqCst);
                usual(info);
            }));
        });
        Self(PANICS.load(Ordering::SeqCst))
    }

    pub(crate) fn end(&self, what: &str) {
        assert_eq!(PANICS.load(Ordering::SeqCst), self.0, "a panic: {what}");
    }
}

pub(crate) async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{what} never ends"))
}

/// Whether a verb answered what it answers on a store that works; or its error.
type Answer = Result<bool, StoreError>;

/// Runs every verb that a receiver and a worker ask, on an inbox without other events. Each has an answer or an error; with
/// `must_work`, the answer of a store that works.
pub(crate) async fn try_verbs(what: &str, inbox: &impl Queue, must_work: bool) {
    let inline = EventKey::new("/inline", None, &ClaimToken::random().to_string());
    let queued = EventKey::new("/queued", None, &ClaimToken::random().to_string());
    let claim = ClaimRequest::new(&inline, ClaimToken::random(), LEASE);
    let kept = ClaimRequest::new(&queued, ClaimToken::random(), LEASE).event_type(Some("x"));
    let again = ClaimRequest::new(&queued, ClaimToken::random(), LEASE).event_type(Some("x"));
    let (stored_request, done) =
        (StoredRequest::new("head", "body", UNIX_EPOCH), Completion::succeeded("200 OK", LEASE));
    let mut leased = None;
    let lease = async {
        leased = inbox.lease(&LeaseRequest::new(1, LEASE)).await?.pop();
        Ok(leased.as_ref().is_some_and(|leased| leased.key == queued))
    };
    let mut answers: Vec<(&str, Answer)> = vec![
        ("claim", in_time(what, inbox.claim(&claim)).await.map(|claim| matches!(claim, Claim::Fresh { .. }))),
        ("renew", in_time(what, inbox.renew(&claim)).await.map(|hold| hold == Hold::Held)),
        ("complete", in_time(what, inbox.complete(&claim, &done)).await.map(|hold| hold == Hold::Held)),
        (
            "enqueue",
            in_time(what, inbox.enqueue(&kept, &stored_request)).await.map(|c| c == Claim::Fresh { attempt: None }),
        ),
        ("peek", in_time(what, inbox.peek(&again)).await.map(|c| c == Some(Claim::Accepted { same_body: true }))),
        ("waiting", in_time(what, inbox.waiting(9)).await.map(|waiting| waiting == 1)),
        ("lease", in_time(what, lease).await),
    ];
    if let Some(leased) = leased {
        let claim = leased.claim(LEASE);
        let retry = in_time(what, inbox.retry(&claim, LEASE, "flaky")).await;
        answers.push(("retry", retry.map(|hold| hold == Hold::Held)));
    }
    if must_work {
        let failed: Vec<_> = answers.iter().filter(|(_, answer)| !matches!(answer, Ok(true))).collect();
        assert!(failed.is_empty(), "{what}: {failed:?}");
    }
}
