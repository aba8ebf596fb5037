//! Lookups of secrets that strangers set off: how many run at once, who waits for them, and what two schemes share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use axum::http::Request;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::scheme::{self, Head, Scheme, verify};
use tower_webhook::secrets::{Secret, TenantSecrets};
use tower_webhook::testing::TestSender;

/// Signed by nobody, for any scheme here.
const FORGED: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const SECRET: &str = "a secret of acme's";

/// A lookup that knows `acme` and `bolt`, counts, and has made-up names hang while it is told to.
#[derive(Default)]
struct Directory {
    running: AtomicUsize,
    most: AtomicUsize,
    asked: Mutex<Vec<String>>,
    hangs: AtomicBool,
    go: Notify,
    begun: Notify,
}

impl Directory {
    fn tenants(self: &Arc<Self>) -> TenantSecrets {
        let directory = self.clone();
        TenantSecrets::new(
            |head| head.uri().path().strip_prefix("/hooks/").map(str::to_owned),
            move |tenant| directory.clone().find(tenant),
        )
    }

    async fn find(
        self: Arc<Self>,
        tenant: String,
    ) -> Result<Option<Vec<Secret>>, Box<dyn std::error::Error + Send + Sync>> {
        let _running = Running::begin(&self);
        self.asked.lock().expect("no panic under the lock").push(tenant.clone());
        self.begun.notify_waiters();
        let known = ["acme", "bolt"].contains(&&*tenant);
        while !known && self.hangs.load(Ordering::SeqCst) {
            self.go.notified().await;
        }
        // Long enough for others to begin meanwhile, if they may.
        tokio::task::yield_now().await;
        Ok(known.then(|| Secret::new(SECRET).map(|secret| vec![secret])).transpose()?)
    }

    fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
    }

    fn answer(&self) {
        self.hangs.store(false, Ordering::SeqCst);
        self.go.notify_waiters();
    }

    fn asked(&self) -> usize {
        self.asked.lock().expect("no panic under the lock").len()
    }

    fn has_asked_for(&self, tenant: &str) -> bool {
        self.asked.lock().expect("no panic under the lock").iter().any(|asked| asked == tenant)
    }

    /// Returns once this many lookups have begun.
    async fn asked_times(&self, times: usize) {
        loop {
            let begun = self.begun.notified();
            if self.asked() >= times {
                return;
            }
            begun.await;
        }
    }
}

/// Counts a lookup for as long as its future is there: a deadline drops it.
struct Running<'a>(&'a Directory);

impl<'a> Running<'a> {
    fn begin(directory: &'a Directory) -> Self {
        let running = directory.running.fetch_add(1, Ordering::SeqCst) + 1;
        directory.most.fetch_max(running, Ordering::SeqCst);
        Self(directory)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn judge(scheme: &dyn Scheme, request: Request<Bytes>) -> Result<(), RejectionKind> {
    let (parts, body) = request.into_parts();
    let judged = verify(scheme, &Head::new(&parts, SystemTime::now()), &body).await;
    judged.map(|_| ()).map_err(|refused| refused.kind())
}

fn forged(tenant: &str) -> Request<Bytes> {
    let request = Request::post(format!("/hooks/{tenant}"))
        .header("x-cc-webhook-signature", FORGED)
        .header("x-hubspot-signature", FORGED);
    request.body(Bytes::from_static(b"{}")).expect("a request")
}

/// A delivery to `tenant` that this scheme signs as the sender would.
fn genuine(signing: impl Scheme, tenant: &str) -> Request<Bytes> {
    TestSender::new(signing).uri(&format!("/hooks/{tenant}")).deliver(r#"[{"eventId":1}]"#).request_as()
}

fn of_coinbase(tenant: &str) -> Request<Bytes> {
    genuine(scheme::coinbase_commerce(SECRET).expect("a scheme"), tenant)
}

fn coinbase(tenants: TenantSecrets) -> Arc<dyn Scheme> {
    Arc::new(scheme::coinbase_commerce(tenants).expect("a scheme"))
}

/// Deliveries of made-up tenants, each in a task of its own.
fn strangers(scheme: &Arc<dyn Scheme>, count: usize) -> JoinSet<Result<(), RejectionKind>> {
    let mut tasks = JoinSet::new();
    for n in 0..count {
        let scheme = scheme.clone();
        tasks.spawn(async move { judge(&*scheme, forged(&format!("made-up-{n}"))).await });
    }
    tasks
}

/// Lets every task run that can, on a current-thread runtime.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn kinds(tasks: JoinSet<Result<(), RejectionKind>>) -> HashSet<Result<(), RejectionKind>> {
    tasks.join_all().await.into_iter().collect()
}

#[tokio::test]
async fn forged_delivery_to_one_scheme_spoils_nothing_for_another_that_shares_its_lookup() {
    let directory = Arc::new(Directory::default());
    let shared = directory.tenants();
    // One keys a plain hash with the text, the other an HMAC.
    let hubspot = scheme::hubspot_v1(shared.clone()).expect("a scheme");
    let coinbase = coinbase(shared);
    let of_hubspot = || genuine(scheme::hubspot_v1(SECRET).expect("a scheme"), "acme");
    assert_eq!(judge(&*coinbase, forged("acme")).await, Err(RejectionKind::SignatureMismatch));
    assert_eq!(judge(&hubspot, of_hubspot()).await, Ok(()), "the second scheme to ask");
    assert_eq!(judge(&*coinbase, of_coinbase("acme")).await, Ok(()), "the first");
    assert_eq!(judge(&hubspot, of_hubspot()).await, Ok(()), "and again");
    assert_eq!(directory.asked(), 1, "what is cached serves both");
}

/// A text that one scheme cannot make a key of is still a secret of the other.
#[tokio::test]
async fn scheme_that_cannot_use_a_secret_does_not_keep_it_from_another() {
    let directory = Arc::new(Directory::default());
    let shared = directory.tenants();
    let adyen = scheme::adyen_banking(shared.clone()).expect("a scheme");
    let coinbase = coinbase(shared);
    let to_adyen = || {
        let request = Request::post("/hooks/acme").header("hmacsignature", "A".repeat(43) + "=");
        request.body(Bytes::from_static(b"{}")).expect("a request")
    };
    assert_eq!(judge(&adyen, to_adyen()).await, Err(RejectionKind::SecretsUnavailable), "it wants hex");
    assert_eq!(judge(&*coinbase, of_coinbase("acme")).await, Ok(()));
    assert_eq!(judge(&adyen, to_adyen()).await, Err(RejectionKind::SecretsUnavailable), "cached or not");
    assert_eq!(judge(&*coinbase, of_coinbase("acme")).await, Ok(()));
}

#[tokio::test]
async fn forgetting_reaches_every_scheme_that_shares_the_lookup() {
    let directory = Arc::new(Directory::default());
    let shared = directory.tenants();
    let (hubspot, coinbase) = (scheme::hubspot_v1(shared.clone()).expect("a scheme"), coinbase(shared.clone()));
    for _ in 0..2 {
        assert_eq!(judge(&*coinbase, forged("acme")).await, Err(RejectionKind::SignatureMismatch));
        assert_eq!(judge(&hubspot, forged("acme")).await, Err(RejectionKind::SignatureMismatch));
        shared.forget("acme");
    }
    assert_eq!(directory.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn five_thousand_forged_deliveries_make_no_more_lookups_at_once_than_allowed() {
    for (configured, bound) in [(None, 32), (Some(8), 8), (Some(0), 1)] {
        let directory = Arc::new(Directory::default());
        let tenants = directory.tenants().deadline(Duration::from_secs(3600));
        let scheme = coinbase(configured.into_iter().fold(tenants, TenantSecrets::max_lookups));
        let answers = kinds(strangers(&scheme, 5_000)).await;
        assert_eq!(answers, [Err(RejectionKind::UnknownTenant)].into(), "all have their turn");
        let most = directory.most.load(Ordering::SeqCst);
        assert!((1..=bound).contains(&most), "{most} at once, of {bound}");
        assert_eq!(directory.asked(), 5_000);
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_tenants_are_remembered() {
    let directory = Arc::new(Directory::default());
    let scheme = coinbase(directory.tenants());
    for _ in 0..3 {
        assert_eq!(kinds(strangers(&scheme, 1_000)).await, [Err(RejectionKind::UnknownTenant)].into());
    }
    assert_eq!(directory.asked(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn cached_tenants_never_wait_while_every_slot_hangs() {
    let directory = Arc::new(Directory::default());
    let scheme = coinbase(directory.tenants().max_lookups(4));
    assert_eq!(judge(&*scheme, of_coinbase("acme")).await, Ok(()));
    directory.hang();
    let began = tokio::time::Instant::now();
    let forgers = strangers(&scheme, 500);
    directory.asked_times(1 + 3).await;
    settle().await;
    for _ in 0..100 {
        assert_eq!(judge(&*scheme, of_coinbase("acme")).await, Ok(()));
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "on the paused clock nothing was waited for");
    assert_eq!(kinds(forgers).await, [Err(RejectionKind::SecretsUnavailable)].into());
    assert_eq!(began.elapsed(), Duration::from_secs(2), "the deadline holds for those that wait for a slot, too");
    assert_eq!(directory.asked(), 1 + 3, "no lookup begins that has no time left");
    settle().await;
    assert_eq!(directory.running.load(Ordering::SeqCst), 0, "slots are given back");
}

/// Answers expire every minute: strangers must not make that an outage.
#[tokio::test(start_paused = true)]
async fn expired_tenant_is_asked_for_again_while_strangers_hang_in_their_slots() {
    let directory = Arc::new(Directory::default());
    let tenants = directory.tenants().max_lookups(4).deadline(Duration::from_secs(30));
    let scheme = coinbase(tenants.clone());
    for tenant in ["acme", "bolt"] {
        assert_eq!(judge(&*scheme, of_coinbase(tenant)).await, Ok(()));
    }
    tokio::time::advance(Duration::from_secs(61)).await;
    tenants.forget("bolt");
    directory.hang();
    let forgers = strangers(&scheme, 500);
    directory.asked_times(2 + 3).await;
    settle().await;
    assert_eq!(directory.asked(), 2 + 3, "strangers get three of the four");
    for tenant in ["acme", "bolt"] {
        assert_eq!(judge(&*scheme, of_coinbase(tenant)).await, Ok(()), "{tenant}");
    }
    assert_eq!(directory.asked(), 2 + 3 + 2);
    directory.answer();
    assert_eq!(kinds(forgers).await, [Err(RejectionKind::UnknownTenant)].into());
}

#[tokio::test(start_paused = true)]
async fn delivery_that_waits_for_a_slot_gets_it_within_the_deadline() {
    let directory = Arc::new(Directory::default());
    let scheme = coinbase(directory.tenants().max_lookups(1));
    directory.hang();
    let forger = strangers(&scheme, 1);
    directory.asked_times(1).await;
    let waiting = tokio::spawn({
        let scheme = scheme.clone();
        async move { judge(&*scheme, of_coinbase("acme")).await }
    });
    settle().await;
    assert!(!directory.has_asked_for("acme"), "the slot is taken");
    tokio::time::advance(Duration::from_secs(1)).await;
    directory.answer();
    assert_eq!(waiting.await.expect("no panic"), Ok(()));
    assert_eq!(kinds(forger).await, [Err(RejectionKind::UnknownTenant)].into());
}

/// The lookup's database goes on working when a sender hangs up: that frees no slot for the next one.
#[tokio::test(start_paused = true)]
async fn senders_that_hang_up_free_no_slot_before_their_lookup_ends() {
    let directory = Arc::new(Directory::default());
    let scheme = coinbase(directory.tenants().max_lookups(1));
    directory.hang();
    let mut forger = strangers(&scheme, 1);
    directory.asked_times(1).await;
    forger.shutdown().await;
    let waiting = tokio::spawn({
        let scheme = scheme.clone();
        async move { judge(&*scheme, of_coinbase("acme")).await }
    });
    settle().await;
    assert_eq!((directory.asked(), directory.running.load(Ordering::SeqCst)), (1, 1));
    directory.answer();
    assert_eq!(waiting.await.expect("no panic"), Ok(()));
    assert_eq!(judge(&*scheme, forged("made-up-0")).await, Err(RejectionKind::UnknownTenant));
    assert_eq!(directory.asked(), 2, "the forger's name is remembered");
}

/// A lookup that hangs for good does not keep its slot for good.
#[tokio::test(start_paused = true)]
async fn lookup_without_its_delivery_ends_at_its_own_deadline() {
    let directory = Arc::new(Directory::default());
    let scheme = coinbase(directory.tenants().max_lookups(1));
    directory.hang();
    let mut forger = strangers(&scheme, 1);
    directory.asked_times(1).await;
    forger.shutdown().await;
    assert_eq!(judge(&*scheme, of_coinbase("acme")).await, Err(RejectionKind::SecretsUnavailable));
    assert_eq!(judge(&*scheme, of_coinbase("acme")).await, Ok(()), "with the next slot");
    assert_eq!(directory.running.load(Ordering::SeqCst), 0);
}

/// A lookup that panics fails its own delivery, and gives its slot back.
#[tokio::test(start_paused = true)]
async fn lookup_that_panics_gives_its_slot_back() {
    let tenants = TenantSecrets::new(
        |head| head.uri().path().strip_prefix("/hooks/").map(str::to_owned),
        |tenant| async move {
            tokio::task::yield_now().await;
            assert_eq!(tenant, "acme", "the test has it panic");
            Ok(Some(vec![Secret::new(SECRET)?]))
        },
    );
    let scheme = coinbase(tenants.max_lookups(1));
    let answer = strangers(&scheme, 1).join_next().await.expect("one stranger");
    assert!(answer.expect_err("a panic").is_panic());
    assert_eq!(judge(&*scheme, of_coinbase("acme")).await, Ok(()));
}

/// Deliveries that the headers alone refuse cost no lookup.
#[tokio::test]
async fn heads_without_a_usable_proof_are_refused_before_any_lookup() {
    let directory = Arc::new(Directory::default());
    let scheme = coinbase(directory.tenants());
    for (signature, kind) in
        [(None, RejectionKind::MissingSignature), (Some("no hex"), RejectionKind::MalformedSignature)]
    {
        let mut request = forged("acme");
        request.headers_mut().remove("x-cc-webhook-signature");
        if let Some(signature) = signature {
            request.headers_mut().insert("x-cc-webhook-signature", signature.parse().expect("a header"));
        }
        assert_eq!(judge(&*scheme, request).await, Err(kind));
    }
    assert_eq!(directory.asked(), 0);
}
