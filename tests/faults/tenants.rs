//! Row 48, and what a lookup per tenant must survive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::scheme;
use tower_webhook::secrets::{Secret, TenantSecrets};
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{EventKey, Outcome, WebhookEvent, WebhookLayer};

use crate::support::Answer;
use crate::support::faulty::Faulty;

/// Where tenants' secrets are looked up: it can be held back, and it counts.
#[derive(Default)]
struct Vault {
    secrets: Mutex<HashMap<String, String>>,
    lookups: watch::Sender<usize>,
    held: Mutex<Option<Arc<Semaphore>>>,
    broken: watch::Sender<bool>,
}

impl Vault {
    fn set(&self, tenant: &str, secret: &str) {
        self.secrets.lock().expect("no panic under the lock").insert(tenant.to_owned(), secret.to_owned());
    }

    /// Answers that are found from now on stay under way until the semaphore lets them go.
    fn hold(&self) -> Arc<Semaphore> {
        let go = Arc::new(Semaphore::new(0));
        *self.held.lock().expect("no panic under the lock") = Some(go.clone());
        go
    }

    fn lookups(&self) -> usize {
        *self.lookups.borrow()
    }

    async fn asked(&self, times: usize) {
        self.lookups.subscribe().wait_for(|lookups| *lookups >= times).await.expect("the vault holds the sender");
    }

    async fn find(
        self: Arc<Self>,
        tenant: String,
    ) -> Result<Option<Vec<Secret>>, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.secrets.lock().expect("no panic under the lock").get(&tenant).cloned();
        let held = self.held.lock().expect("no panic under the lock").clone();
        self.lookups.send_modify(|lookups| *lookups += 1);
        if let Some(go) = held {
            go.acquire().await?.forget();
        }
        if *self.broken.borrow() {
            return Err("the vault is down".into());
        }
        Ok(found.map(|text| Secret::new(text).map(|secret| vec![secret])).transpose()?)
    }
}

/// A receiver at `/webhooks/{tenant}` that records whose event it handled.
struct Tenants {
    app: Router,
    vault: Arc<Vault>,
    secrets: TenantSecrets,
    store: Faulty,
    handled: Arc<Mutex<Vec<(String, String)>>>,
}

impl Tenants {
    fn new() -> Self {
        let (vault, store) = (Arc::new(Vault::default()), Faulty::new(MemoryStore::new()));
        vault.set("acme", "secret of acme");
        vault.set("bolt", "secret of bolt");
        let asked = vault.clone();
        let secrets = TenantSecrets::new(
            |head| head.uri().path().strip_prefix("/webhooks/").map(str::to_owned),
            move |tenant| asked.clone().find(tenant),
        );
        let scheme = scheme::timestamped(secrets.clone()).expect("a scheme");
        let layer = WebhookLayer::new(scheme, store.clone()).endpoint("tenants").expect("a name");
        let handled: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let record = handled.clone();
        let handler = move |event: WebhookEvent| async move {
            let whose = event.tenant().expect("a tenant").to_owned();
            record.lock().expect("no panic under the lock").push((whose, event.id().to_owned()));
        };
        let app = Router::new().route("/webhooks/{tenant}", post(handler)).layer(layer);
        Self { app, vault, secrets, store, handled }
    }

    /// A delivery to `tenant`, signed with this secret.
    async fn deliver(&self, tenant: &str, secret: &str, id: &str) -> Answer {
        deliver(self.app.clone(), tenant, secret, id).await
    }
}

async fn deliver(app: Router, tenant: &str, secret: &str, id: &str) -> Answer {
    let sender = TestSender::new(scheme::timestamped(secret).expect("a scheme")).uri(&format!("/webhooks/{tenant}"));
    let request = sender.deliver(format!(r#"{{"id":"{id}"}}"#)).request();
    Answer::read(app.oneshot(request).await.expect("a router cannot fail")).await
}

#[tokio::test]
async fn row_48_same_id_of_two_tenants_is_two_events() {
    let tenants = Tenants::new();
    for tenant in ["acme", "bolt"] {
        let secret = format!("secret of {tenant}");
        assert_eq!(tenants.deliver(tenant, &secret, "evt_1").await.outcome, Some(Outcome::Completed), "{tenant}");
        assert_eq!(tenants.deliver(tenant, &secret, "evt_1").await.outcome, Some(Outcome::Duplicate), "{tenant}");
    }
    let handled = tenants.handled.lock().expect("no panic under the lock").clone();
    assert_eq!(handled, [("acme".into(), "evt_1".into()), ("bolt".into(), "evt_1".into())]);
    let keys = ["acme", "bolt"].map(|tenant| EventKey::new("tenants", Some(tenant), "evt_1").as_str().to_owned());
    assert_eq!(tenants.store.keys(), keys.into());
}

#[tokio::test]
async fn row_48_one_tenants_secret_is_no_key_to_another() {
    let tenants = Tenants::new();
    let crossed = tenants.deliver("bolt", "secret of acme", "evt_1").await;
    assert_eq!(crossed.rejection(), Some(RejectionKind::SignatureMismatch));
    assert!(tenants.store.keys().is_empty());
}

#[tokio::test]
async fn unknown_tenant_and_wrong_signature_look_the_same() {
    let tenants = Tenants::new();
    let unknown = tenants.deliver("nobody", "secret of acme", "evt_1").await;
    let wrong = tenants.deliver("acme", "secret of bolt", "evt_1").await;
    assert_eq!(unknown.rejection(), Some(RejectionKind::UnknownTenant));
    assert_eq!(
        (unknown.status, &unknown.body, &unknown.headers),
        (StatusCode::UNAUTHORIZED, &wrong.body, &wrong.headers)
    );
    assert_eq!(unknown.status, wrong.status);
}

#[tokio::test(start_paused = true)]
async fn lookup_that_fails_or_hangs_is_a_503_and_not_remembered() {
    let tenants = Tenants::new();
    tenants.vault.broken.send_replace(true);
    let failed = tenants.deliver("acme", "secret of acme", "evt_1").await;
    assert_eq!((failed.rejection(), failed.retry_after()), (Some(RejectionKind::SecretsUnavailable), Some("5")));
    tenants.vault.broken.send_replace(false);

    let go = tenants.vault.hold();
    // Several at once share the flight, and each has its deadline.
    let deliver_one = || deliver(tenants.app.clone(), "acme", "secret of acme", "evt_1");
    for hung in [tokio::spawn(deliver_one()), tokio::spawn(deliver_one()), tokio::spawn(deliver_one())] {
        let hung = hung.await.expect("no panic");
        assert_eq!(
            (hung.status, hung.rejection()),
            (StatusCode::SERVICE_UNAVAILABLE, Some(RejectionKind::SecretsUnavailable))
        );
    }
    go.add_permits(10);
    assert!(tenants.store.keys().is_empty());
    assert_eq!(tenants.deliver("acme", "secret of acme", "evt_1").await.outcome, Some(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn concurrent_deliveries_of_a_tenant_share_one_lookup() {
    let tenants = Tenants::new();
    let go = tenants.vault.hold();
    let deliveries: Vec<_> = (0..50)
        .map(|n| {
            let app = tenants.app.clone();
            tokio::spawn(async move { deliver(app, "acme", "secret of acme", &format!("evt_{n}")).await })
        })
        .collect();
    tenants.vault.asked(1).await;
    go.add_permits(50);
    for delivery in deliveries {
        assert_eq!(delivery.await.expect("no panic").outcome, Some(Outcome::Completed));
    }
    assert_eq!(tenants.vault.lookups(), 1);
}

/// The one that asks for all may hang up: the others do not hang with it, nor do they ask again.
#[tokio::test(start_paused = true)]
async fn lookup_whose_client_hangs_up_serves_the_next() {
    let tenants = Tenants::new();
    let go = tenants.vault.hold();
    let first = tokio::spawn(deliver(tenants.app.clone(), "acme", "secret of acme", "evt_1"));
    tenants.vault.asked(1).await;
    let second = tokio::spawn(deliver(tenants.app.clone(), "acme", "secret of acme", "evt_2"));
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.expect_err("it hung up").is_cancelled());
    go.add_permits(1);
    assert_eq!(second.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(tenants.vault.lookups(), 1);
}

#[tokio::test(start_paused = true)]
async fn answers_are_cached_for_a_while_misses_too_and_can_be_forgotten() {
    let tenants = Tenants::new();
    for n in 0..3 {
        tenants.deliver("acme", "secret of acme", &format!("evt_{n}")).await;
        tenants.deliver("nobody", "secret of nobody", &format!("evt_{n}")).await;
    }
    assert_eq!(tenants.vault.lookups(), 2, "one each");
    tenants.vault.set("acme", "rotated");
    tenants.vault.set("nobody", "secret of nobody");
    assert_eq!(tenants.deliver("acme", "rotated", "evt_9").await.status, StatusCode::UNAUTHORIZED, "cached");
    for (tenant, secret) in [("acme", "rotated"), ("nobody", "secret of nobody")] {
        tenants.secrets.forget(tenant);
        assert_eq!(tenants.deliver(tenant, secret, "evt_9").await.outcome, Some(Outcome::Completed), "{tenant}");
    }
    tenants.vault.set("acme", "rotated again");
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(tenants.deliver("acme", "rotated again", "evt_10").await.outcome, Some(Outcome::Completed), "expired");
}

/// A secret is revoked while a lookup is under way that found the old one.
#[tokio::test(start_paused = true)]
async fn forgetting_outruns_a_lookup_under_way() {
    let tenants = Tenants::new();
    let go = tenants.vault.hold();
    let under_way = tokio::spawn(deliver(tenants.app.clone(), "acme", "secret of acme", "evt_1"));
    tenants.vault.asked(1).await;
    tenants.vault.set("acme", "rotated");
    tenants.secrets.forget("acme");
    go.add_permits(10);
    under_way.await.expect("no panic");
    let revoked = tenants.deliver("acme", "secret of acme", "evt_2").await;
    assert_eq!(revoked.status, StatusCode::UNAUTHORIZED, "the answer from before must not be cached");
    assert_eq!(tenants.deliver("acme", "rotated", "evt_3").await.outcome, Some(Outcome::Completed));
}
