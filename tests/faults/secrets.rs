//! Rows 45, 47 and 49: clocks that jump, secrets that rotate under load, forged requests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_webhook::clock::Clock;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::scheme::{self, Scheme};
use tower_webhook::secrets::Secret;
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::{ManualClock, TestSender};
use tower_webhook::{Outcome, WebhookLayer};

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::Verb;
use crate::support::{NOW, Receiver, scheme};

const HOUR: Duration = Duration::from_secs(3600);

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// Row 45: what was signed a moment ago is out of tolerance when the receiver's wall clock jumps.
#[tokio::test]
async fn row_45_wall_clock_that_jumps_refuses_and_touches_nothing() {
    for (wall, kind) in [(now() + HOUR, RejectionKind::Stale), (now() - HOUR, RejectionKind::Early)] {
        let receiver = Receiver::new();
        let request = receiver.event("evt_1").request_as::<Body>();
        receiver.clock.set_wall(wall);
        assert_eq!(receiver.refuses(request, StatusCode::UNAUTHORIZED, "after the jump").await, kind);
        receiver.clock.set_wall(now());
        assert_eq!(receiver.deliver(&receiver.event("evt_1")).await.outcome, Some(Outcome::Completed));
    }
}

/// Row 45: leases, waits and retention run on the monotonic clock, in the store and in the layer.
#[tokio::test(start_paused = true)]
async fn row_45_wall_clock_that_jumps_changes_no_lease() {
    let (lease, clock) = (Duration::from_secs(30), ManualClock::at_unix(NOW));
    for wall in [now() + HOUR, now() - HOUR] {
        // The store is given the very clock that jumps; only its monotonic reading may count.
        let jumpy = Jumpy(clock.clone());
        let receiver =
            ControlledReceiver::on(MemoryStore::builder().clock(jumpy.clone()).build(), |layer| layer.clock(jumpy));
        let receiver = ControlledReceiver { sender: TestSender::new(scheme()).clock(clock.clone()), ..receiver };
        receiver.handler.hold();
        clock.set_wall(now());
        let first = receiver.spawn("evt_1");
        let event = receiver.handler.started(1).await;
        clock.set_wall(wall);
        for _ in 0..3 {
            tokio::time::sleep(lease).await;
            assert!(event.is_held());
            assert_eq!(receiver.deliver("evt_1").await.rejection(), Some(RejectionKind::InFlight), "not taken over");
        }
        receiver.handler.go();
        assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
        assert_eq!(receiver.handler.runs(), 1);
    }
}

/// A wall clock that the test sets, over tokio's paused time.
#[derive(Clone)]
struct Jumpy(ManualClock);

impl Clock for Jumpy {
    fn now(&self) -> SystemTime {
        self.0.now()
    }

    fn monotonic(&self) -> std::time::Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// A receiver under a scheme of its own.
struct Rotating {
    app: Router,
    clock: ManualClock,
}

impl Rotating {
    fn new(scheme: scheme::Template) -> Self {
        let clock = ManualClock::at_unix(NOW);
        let layer = WebhookLayer::new(scheme, MemoryStore::new()).clock(clock.clone());
        Self { app: Router::new().route("/webhooks", post(|| async {})).layer(layer), clock }
    }
}

fn secret(text: &str) -> Secret {
    Secret::new(text).expect("a secret").label(text.to_owned())
}

/// Row 47: senders go on all the while, each with the secret that it believes in.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_47_secret_is_rotated_under_load() {
    let rotating = scheme::timestamped([secret("old")]).expect("a scheme");
    let secrets = rotating.secrets().clone();
    let receiver = Rotating::new(rotating);
    let (phase, phases) = watch::channel(0u32);
    let mut senders = JoinSet::new();
    for worker in 0..8 {
        let (app, clock, mut phases) = (receiver.app.clone(), receiver.clock.clone(), phases.clone());
        senders.spawn(async move {
            let sender = |text| TestSender::new(scheme::timestamped(text).expect("a scheme")).clock(clock.clone());
            let (old, new, both) = (sender("old"), sender("new"), both_secrets(&clock));
            let mut sent = 0;
            loop {
                let at = *phases.borrow_and_update();
                for (name, sender) in [("old", &old), ("new", &new), ("both", &both)] {
                    sent += 1;
                    let request = sender.deliver(format!(r#"{{"id":"evt_{worker}_{sent}"}}"#)).request_as();
                    let status = send(&app, request).await;
                    // Only what did not change under the request has one right answer.
                    if *phases.borrow() == at && at % 2 == 0 {
                        let right = match (at, name) {
                            (0, "new") | (4, "old") => StatusCode::UNAUTHORIZED,
                            _ => StatusCode::OK,
                        };
                        assert_eq!(status, right, "{name} in phase {at}");
                    }
                    assert!(name != "both" || status == StatusCode::OK, "signed with both, so never refused");
                }
                if at == 4 {
                    return sent;
                }
            }
        });
    }
    for (changing, set) in [(1, vec!["new", "old"]), (3, vec!["new"])] {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        phase.send_replace(changing);
        secrets.replace(set.into_iter().map(secret)).expect("a set");
        phase.send_replace(changing + 1);
    }
    while let Some(sent) = senders.join_next().await {
        assert!(sent.expect("no wrong answer") >= 3);
    }
}

fn both_secrets(clock: &ManualClock) -> TestSender {
    TestSender::new(scheme::timestamped([secret("old"), secret("new")]).expect("a scheme")).clock(clock.clone())
}

async fn send(app: &Router, request: Request<Body>) -> StatusCode {
    app.clone().oneshot(request).await.expect("a router cannot fail").status()
}

/// Row 47: a delivery goes on with the set that it began with.
#[tokio::test]
async fn row_47_replacing_does_not_reach_into_a_delivery_under_way() {
    let rotating = scheme::timestamped([secret("old")]).expect("a scheme");
    let secrets = rotating.secrets().clone();
    let receiver = Rotating::new(rotating);
    let sender = TestSender::new(scheme::timestamped("old").expect("a scheme")).clock(receiver.clock.clone());
    let (late, body) = tokio::sync::oneshot::channel::<axum::body::Bytes>();
    let event = sender.deliver(r#"{"id":"evt_1"}"#);
    let request = event.request_as::<Body>().map(|_| Body::from_stream(futures_util::stream::once(body)));
    let mut delivery = Box::pin(receiver.app.clone().oneshot(request));
    let pending = std::future::poll_fn(|cx| std::task::Poll::Ready(delivery.as_mut().poll(cx).is_pending())).await;
    assert!(pending, "its body is not there yet");
    secrets.replace([secret("new")]).expect("a set");
    late.send(r#"{"id":"evt_1"}"#.into()).expect("it is being read");
    assert_eq!(delivery.await.expect("an answer").status(), StatusCode::OK);
    assert_eq!(send(&receiver.app, event.request_as()).await, StatusCode::UNAUTHORIZED, "the next one is refused");
}

#[tokio::test]
async fn row_49_forged_request_with_a_victims_id_spoils_nothing() {
    let receiver = ControlledReceiver::new();
    let forger = TestSender::new(scheme::timestamped("whsec_guessed").expect("a scheme")).clock(receiver.clock.clone());
    let body = r#"{"id":"evt_victim"}"#;
    let forged = [
        forger.deliver(body),
        receiver.sender.deliver(body).tampered(),
        receiver.sender.deliver(body).aged(HOUR),
        receiver.sender.deliver(body).header("webhook-signature", "t=1700000000,v1=00"),
    ];
    for delivery in &forged {
        let answer = receiver.send(delivery.request_as()).await;
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::UNAUTHORIZED, &b""[..]));
    }
    assert_eq!((receiver.handler.runs(), receiver.store.calls(Verb::Claim)), (0, 0));
    assert!(receiver.store.keys().is_empty(), "no key");
    assert_eq!(receiver.deliver("evt_victim").await.outcome, Some(Outcome::Completed), "the genuine one");
    for delivery in &forged {
        assert_eq!(
            receiver.send(delivery.request_as()).await.status,
            StatusCode::UNAUTHORIZED,
            "and no oracle afterwards"
        );
    }
}
