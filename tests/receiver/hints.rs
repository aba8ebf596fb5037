//! What the operator is told though nothing has failed: slow answers, and one body under two ids.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tower::ServiceExt;
use tower_webhook::identity::{IdSource, TypeSource};
use tower_webhook::scheme::{self, Scheme, Template};
use tower_webhook::secrets::{Secret, TenantSecrets};
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::{ManualClock, TestSender};
use tower_webhook::{Outcome, WebhookEvent, WebhookLayer};
use tracing::Level;

use crate::support::logs::Logs;
use crate::support::{Answer, NOW, SECRET, scheme};

const SLOW: &str = "the handler takes longer than the sender waits";
const TWICE: &str = "one body came under two ids";

fn warnings(logs: &Logs, text: &str) -> Vec<String> {
    let lines = logs.lines().into_iter().filter(|line| line.text.contains(text));
    lines
        .map(|line| {
            assert_eq!((line.level, &*line.target), (Level::WARN, "tower_webhook"));
            line.text
        })
        .collect()
}

/// A scheme whose sender waits ten seconds, if any time is known.
fn waiting(timeout: Option<Duration>) -> Template {
    let mut profile = scheme().profile();
    profile.sender_timeout = timeout;
    scheme().with_profile(profile)
}

/// Handlers that take as many seconds as the path says.
fn slow(timeout: Option<Duration>, clock: &ManualClock) -> Router {
    let take = |seconds| async move |_: WebhookEvent| tokio::time::sleep(Duration::from_secs(seconds)).await;
    Router::new()
        .route("/11", post(take(11)))
        .route("/12", post(take(12)))
        .route("/9", post(take(9)))
        .layer(WebhookLayer::new(waiting(timeout), MemoryStore::new()).clock(clock.clone()))
}

async fn deliver(app: &Router, clock: &ManualClock, path: &str, id: &str) -> Answer {
    let event = TestSender::new(scheme()).clock(clock.clone()).uri(path);
    let event = event.deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#));
    Answer::read(app.clone().oneshot(event.request()).await.expect("an answer")).await
}

#[tokio::test(start_paused = true)]
async fn answer_that_comes_too_late_is_told_once_a_minute_for_each_endpoint() {
    let (logs, _guard) = Logs::capture();
    let clock = ManualClock::at_unix(NOW);
    let app = slow(Some(Duration::from_secs(10)), &clock);
    for n in 0..3 {
        assert_eq!(deliver(&app, &clock, "/9", &format!("fast_{n}")).await.outcome, Some(Outcome::Completed));
        assert_eq!(deliver(&app, &clock, "/11", &format!("slow_{n}")).await.outcome, Some(Outcome::Completed));
    }
    let [warning] = &warnings(&logs, SLOW)[..] else { panic!("one warning: {:#?}", logs.lines()) };
    for fact in
        ["took_ms=1100", "sender_timeout_ms=10000", "count=1", r#"endpoint="/11""#, r#"event_type="test.event""#]
    {
        assert!(warning.contains(fact), "{fact} in {warning}");
    }
    assert!(warning.contains("WebhookLayer::inbox"), "it says what to do");
    deliver(&app, &clock, "/12", "evt_1").await;
    assert_eq!(warnings(&logs, SLOW).len(), 2, "another endpoint");
    clock.advance(Duration::from_secs(60));
    deliver(&app, &clock, "/11", "evt_2").await;
    assert!(warnings(&logs, SLOW)[2].contains("count=3"), "those since the first");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_slow_where_no_timeout_is_known() {
    let (logs, _guard) = Logs::capture();
    let clock = ManualClock::at_unix(NOW);
    deliver(&slow(None, &clock), &clock, "/11", "evt_1").await;
    assert_eq!(warnings(&logs, SLOW).len(), 0);
}

/// The sender hangs up when its time is over, as senders do.
#[tokio::test(start_paused = true)]
async fn slow_answer_is_told_though_the_sender_has_gone() {
    let (logs, _guard) = Logs::capture();
    let clock = ManualClock::at_unix(NOW);
    let app = slow(Some(Duration::from_secs(10)), &clock);
    let hung_up = tokio::time::timeout(Duration::from_secs(10), deliver(&app, &clock, "/11", "evt_1")).await;
    assert!(hung_up.is_err());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(warnings(&logs, SLOW).len(), 1);
}

/// A receiver whose ids are in a header that nobody signs, as GitHub's.
fn with_header_ids(configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> (Router, ManualClock) {
    let clock = ManualClock::at_unix(NOW);
    let layer = WebhookLayer::new(scheme(), MemoryStore::new())
        .clock(clock.clone())
        .id_source(IdSource::unsigned_header("x-delivery").expect("a name"))
        .type_source(TypeSource::header("x-topic").expect("a name"));
    let on_event = async |_: WebhookEvent| ();
    let app = Router::new().route("/webhooks", post(on_event)).route("/other", post(on_event)).layer(configure(layer));
    (app, clock)
}

async fn send(app: &Router, clock: &ManualClock, (path, id, topic, body): (&str, &str, &str, &str)) -> Answer {
    let sender = TestSender::new(scheme()).clock(clock.clone()).uri(path);
    let event = sender.deliver(body.to_owned()).header("x-delivery", id).header("x-topic", topic);
    Answer::read(app.clone().oneshot(event.request()).await.expect("an answer")).await
}

const PATH: &str = "/webhooks";
const BODY: &str = r#"{"action":"opened"}"#;

#[tokio::test]
async fn body_under_two_ids_is_told_once_a_minute() {
    let (logs, _guard) = Logs::capture();
    let (app, clock) = with_header_ids(|layer| layer);
    for id in ["a", "a", "b", "a", "b", "c"] {
        let outcome = send(&app, &clock, (PATH, id, "push", BODY)).await.outcome;
        assert!(matches!(outcome, Some(Outcome::Completed | Outcome::Duplicate)), "it is a hint, and no refusal");
    }
    let [warning] = &warnings(&logs, TWICE)[..] else { panic!("one warning: {:#?}", logs.lines()) };
    for fact in [r#"endpoint="/webhooks""#, r#"id="b""#, "count=1", "registered twice", "equal bytes", "replay_guard"] {
        assert!(warning.contains(fact), "{fact} in {warning}");
    }
    clock.advance(Duration::from_secs(60));
    send(&app, &clock, (PATH, "d", "push", BODY)).await;
    assert!(warnings(&logs, TWICE)[1].contains("count=4"), "{:?}", warnings(&logs, TWICE));
}

#[tokio::test]
async fn bodies_that_belong_apart_are_not_told_of() {
    let (logs, _guard) = Logs::capture();
    let (app, clock) = with_header_ids(|layer| layer);
    // Another body, another endpoint, and the same body a while later.
    send(&app, &clock, (PATH, "a", "push", BODY)).await;
    send(&app, &clock, (PATH, "b", "push", r#"{"action":"closed"}"#)).await;
    send(&app, &clock, ("/other", "c", "push", BODY)).await;
    clock.advance(Duration::from_secs(15 * 60));
    send(&app, &clock, (PATH, "d", "push", BODY)).await;
    // Two types may share their bytes where the type is part of the id.
    let typed = || IdSource::unsigned_header("x-delivery").expect("a name").with_type();
    let (app, clock) = with_header_ids(|layer| layer.id_source(typed()));
    send(&app, &clock, (PATH, "a", "created", BODY)).await;
    send(&app, &clock, (PATH, "b", "updated", BODY)).await;
    // An id in the body, or made of it, is the same for the same body.
    for source in [IdSource::json("action").expect("a path"), IdSource::body_digest(), IdSource::none()] {
        let (app, clock) = with_header_ids(|layer| layer.id_source(source));
        send(&app, &clock, (PATH, "a", "push", BODY)).await;
        send(&app, &clock, (PATH, "b", "push", BODY)).await;
    }
    assert_eq!(warnings(&logs, TWICE), [""; 0]);
}

#[tokio::test]
async fn two_tenants_may_get_the_same_body() {
    let (logs, _guard) = Logs::capture();
    let clock = ManualClock::at_unix(NOW);
    let tenants = TenantSecrets::by_path("tenant", async |_: String| Ok(Some(vec![Secret::new(SECRET)?])));
    let layer = WebhookLayer::new(scheme::timestamped(tenants).expect("a scheme"), MemoryStore::new())
        .clock(clock.clone())
        .id_source(IdSource::unsigned_header("x-delivery").expect("a name"));
    let app: Router = Router::new().route("/{tenant}", post(async |_: WebhookEvent| ())).layer(layer);
    for (path, id) in [("/one", "a"), ("/two", "b")] {
        assert_eq!(send(&app, &clock, (path, id, "", BODY)).await.outcome, Some(Outcome::Completed));
    }
    assert_eq!(warnings(&logs, TWICE).len(), 0);
    send(&app, &clock, ("/two", "c", "", BODY)).await;
    assert!(warnings(&logs, TWICE)[0].contains("tenant=two"));
}

/// The guard refuses the second delivery, which is told as a refusal.
#[tokio::test]
async fn replay_guard_speaks_for_itself() {
    let (logs, _guard) = Logs::capture();
    let (app, clock) = with_header_ids(|layer| layer.replay_guard(Duration::from_secs(60)).expect("a window"));
    for id in ["a", "b"] {
        send(&app, &clock, (PATH, id, "push", BODY)).await;
    }
    assert_eq!(warnings(&logs, TWICE).len(), 0);
    assert_eq!(warnings(&logs, "deliveries are refused").len(), 1);
}

/// Nobody without the secret can give a body another id.
#[tokio::test]
async fn signed_id_is_not_said_to_be_replayed() {
    let (logs, _guard) = Logs::capture();
    let clock = ManualClock::at_unix(NOW);
    let scheme = scheme::standard_webhooks("whsec_AAAA").expect("a secret");
    let layer = WebhookLayer::new(scheme.clone(), MemoryStore::new()).clock(clock.clone());
    let app: Router = Router::new().route("/webhooks", post(async |_: WebhookEvent| ())).layer(layer);
    for id in ["msg_a", "msg_b"] {
        let event = TestSender::new(scheme.clone()).clock(clock.clone()).deliver(BODY).id(id);
        app.clone().oneshot(event.request()).await.expect("an answer");
    }
    let [warning] = &warnings(&logs, TWICE)[..] else { panic!("one warning: {:#?}", logs.lines()) };
    assert!(!warning.contains("replay"), "{warning}");
}
