//! What becomes of events whose handler fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::time::Instant;
use tower_webhook::queue::{EventState, Filter, Queue};
use tower_webhook::store::Hold;
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{EventKey, HandlerError, WebhookEvent, Worker};

use crate::inbox::fixture::Fixture;

type Runs = Arc<Mutex<Vec<(String, u32)>>>;

/// A receiver whose handler answers by the event and the attempt.
fn answering(answer: fn(&WebhookEvent, u32) -> Response) -> (Fixture, Runs) {
    let runs: Runs = Arc::default();
    let noted = runs.clone();
    let handler = async move |event: WebhookEvent| {
        let attempt = event.attempt().expect("a number");
        noted.lock().expect("no panic").push((event.id().to_owned(), attempt));
        answer(&event, attempt)
    };
    (Fixture::handling(Router::new().route("/webhooks", post(handler)), |layer| layer), runs)
}

fn attempts(runs: &Runs) -> Vec<u32> {
    runs.lock().expect("no panic").iter().map(|(_, attempt)| *attempt).collect()
}

#[tokio::test]
async fn transient_failures_are_retried_and_noted_down() {
    let (fixture, runs) = answering(|_, attempt| match attempt {
        1 => HandlerError::transient("the database is away").into_response(),
        2 => StatusCode::BAD_GATEWAY.into_response(),
        3 => panic!("asked to"),
        _ => StatusCode::CREATED.into_response(),
    });
    fixture.accepts(&fixture.event("evt_1")).await;
    assert_eq!(fixture.worker().run_until_idle().await, 4);
    assert_eq!(attempts(&runs), [1, 2, 3, 4]);
    let kept = fixture.kept("evt_1").await;
    assert_eq!((kept.state, kept.attempts, kept.summary.as_deref()), (EventState::Completed, 4, Some("Created")));
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    assert_eq!(reasons, ["the database is away", "the handler answered 502 Bad Gateway", "the handler panicked"]);
}

/// Row 38: an event that always fails.
#[tokio::test]
async fn row_38_exhausted_event_is_a_dead_letter_with_its_bytes_and_every_error() {
    let (fixture, runs) = answering(|_, attempt| HandlerError::transient(format!("failure {attempt}")).into_response());
    let letters = Arc::new(Mutex::new(Vec::new()));
    let noted = letters.clone();
    let policy = RetryPolicy::new().max_attempts(3).first_pause(Duration::ZERO);
    let worker =
        Worker::new(fixture.inbox.clone(), fixture.handlers.clone()).retries(policy).on_dead_letter(move |letter| {
            let letter = (letter.key.id().to_owned(), letter.attempt, letter.reason.to_owned(), letter.permanent);
            noted.lock().expect("no panic").push(letter);
        });
    let body = r#"{ "id":"evt_1",  "type":"x" }"#;
    fixture.accepts(&fixture.sender.deliver(body)).await;
    assert_eq!(worker.run_until_idle().await, 3);
    assert_eq!(attempts(&runs), [1, 2, 3]);
    let kept = fixture.kept("evt_1").await;
    assert_eq!((kept.state, kept.summary.as_deref()), (EventState::Dead, Some("failure 3")));
    assert_eq!(kept.request.expect("its request").body, body.as_bytes());
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    assert_eq!(reasons, ["failure 1", "failure 2", "failure 3"]);
    assert_eq!(*letters.lock().expect("no panic"), [("evt_1".to_owned(), 3, "failure 3".to_owned(), false)]);
    assert_eq!(fixture.deliver("evt_1").await.status, StatusCode::OK, "the sender is told that it is done with");
}

#[tokio::test]
async fn permanent_failure_is_a_dead_letter_at_once_and_told() {
    let (fixture, runs) = answering(|_, _| HandlerError::permanent("no such account").into_response());
    let told: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let (permanent, dead) = (told.clone(), told.clone());
    let worker = fixture
        .worker()
        .on_dead_letter(move |letter| {
            assert!(letter.permanent);
            dead.lock().expect("no panic").push("dead letter");
        })
        .on_permanent(move |letter| {
            assert_eq!((letter.reason, letter.event_type), ("no such account", Some("test.event")));
            permanent.lock().expect("no panic").push("permanent");
        });
    fixture.accepts(&fixture.event("evt_1")).await;
    assert_eq!(worker.run_until_idle().await, 1);
    assert_eq!(attempts(&runs), [1]);
    assert_eq!(*told.lock().expect("no panic"), ["permanent", "dead letter"]);
    fixture.is_in("evt_1", EventState::Dead).await;
}

/// Row 39: an operator replays, and clicks twice.
#[tokio::test]
async fn row_39_double_requeue_is_one_and_completed_events_are_not_replayed() {
    let (fixture, runs) = answering(|event, _| match event.id() {
        "good" => StatusCode::OK.into_response(),
        _ => HandlerError::permanent("bad").into_response(),
    });
    for id in ["good", "bad"] {
        fixture.accepts(&fixture.event(id)).await;
    }
    assert_eq!(fixture.worker().run_until_idle().await, 2);
    let requeue = async |id: &str| {
        let filter = Filter::one(EventKey::new("/webhooks", None, id));
        fixture.inbox.requeue(&filter, false).await.expect("an answer").events
    };
    assert_eq!([requeue("bad").await, requeue("bad").await, requeue("good").await], [1, 0, 0]);
    assert_eq!(fixture.worker().run_until_idle().await, 1);
    assert_eq!(runs.lock().expect("no panic").iter().filter(|(id, _)| id == "bad").count(), 2);
    assert_eq!(runs.lock().expect("no panic").iter().filter(|(id, _)| id == "good").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn event_that_always_fails_does_not_block_others() {
    let (fixture, runs) = answering(|event, _| match event.id() {
        "poison" => panic!("asked to"),
        _ => StatusCode::OK.into_response(),
    });
    fixture.accepts(&fixture.event("poison")).await;
    for n in 0..20 {
        fixture.accepts(&fixture.event(&format!("evt_{n}"))).await;
    }
    let worker = fixture.worker().concurrency(1).expect("some").retries(RetryPolicy::new());
    assert_eq!(worker.run_until_idle().await, 21, "one attempt at each; the poison is to be retried later");
    assert_eq!(runs.lock().expect("no panic").len(), 21);
    let counts = fixture.inbox.counts().await.expect("counts");
    assert_eq!((counts.completed, counts.waiting), (20, 1));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let (fixture, runs) = answering(|_, attempt| match attempt {
        1 => HandlerError::transient("busy").retry_after(Duration::from_secs(90)).into_response(),
        2 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "40")]).into_response(),
        _ => StatusCode::OK.into_response(),
    });
    fixture.accepts(&fixture.event("evt_1")).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let began = Instant::now();
    let working = tokio::spawn(fixture.worker().run(async { _ = stopped.await }));
    let done = async {
        while attempts(&runs).len() < 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    done.await;
    let taken = began.elapsed();
    assert!(taken >= Duration::from_secs(130) && taken < Duration::from_secs(140), "{taken:?}");
    drop(stop);
    working.await.expect("no panic");
}

/// Two workers die that have leased an event, and a third one permits two attempts. Whether the second one had started the
/// event's handler decides.
#[tokio::test]
async fn event_whose_workers_died_is_given_up_only_if_its_last_attempt_was_started() {
    use tower_webhook::queue::{LAPSED, LeaseRequest};
    for (started, runs_then, expected) in [(true, vec![], EventState::Dead), (false, vec![3], EventState::Completed)] {
        let (fixture, runs) = answering(|_, _| StatusCode::OK.into_response());
        let clock = tower_webhook::testing::ManualClock::at_unix(crate::support::NOW);
        let inbox = tower_webhook::store::MemoryStore::builder().clock(clock.clone()).build();
        let layer = tower_webhook::WebhookLayer::inbox(crate::support::scheme(), inbox.clone()).clock(clock.clone());
        let request = fixture.event("evt_1").request();
        tower::ServiceExt::oneshot(fixture.handlers.clone().layer(layer), request).await.expect("an answer");
        let lease = Duration::from_secs(1);
        for attempt in 1..=2 {
            let leased = inbox.lease(&LeaseRequest::new(1, lease)).await.expect("a lease").remove(0);
            if started && attempt == 2 {
                assert_eq!(inbox.start(&leased.claim(lease)).await.expect("an answer"), Hold::Held);
            }
            clock.advance(lease * 2);
        }
        let policy = RetryPolicy::new().max_attempts(2);
        let worker = Worker::new(inbox.clone(), fixture.handlers.clone()).retries(policy);
        assert_eq!(worker.run_until_idle().await, 1);
        assert_eq!(attempts(&runs), runs_then);
        let kept = inbox.get(&EventKey::new("/webhooks", None, "evt_1")).await.expect("an answer").expect("the event");
        assert_eq!(kept.state, expected);
        assert_eq!(kept.summary.as_deref(), Some(if started { LAPSED } else { "OK" }));
    }
}

#[tokio::test]
async fn request_that_cannot_be_read_is_a_dead_letter() {
    use tower_webhook::queue::StoredRequest;
    use tower_webhook::store::{ClaimRequest, ClaimToken};
    let (fixture, runs) = answering(|_, _| StatusCode::OK.into_response());
    let key = EventKey::new("/webhooks", None, "evt_1");
    let stored_request = StoredRequest::new("from another version", "{}", std::time::SystemTime::now());
    let claim = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
    fixture.inbox.enqueue(&claim, &stored_request).await.expect("an answer");
    let worker = fixture.worker().on_permanent(|_| panic!("no handler said so"));
    assert_eq!(worker.on_dead_letter(|letter| assert!(!letter.permanent)).run_until_idle().await, 1);
    assert_eq!(attempts(&runs), [0; 0]);
    fixture.is_in("evt_1", EventState::Dead).await;
}

#[tokio::test]
async fn worker_decides_which_statuses_complete() {
    let (fixture, runs) = answering(|_, _| StatusCode::CONFLICT.into_response());
    fixture.accepts(&fixture.event("evt_1")).await;
    let worker = fixture.worker().complete_when(|status| status == StatusCode::CONFLICT);
    assert_eq!(worker.run_until_idle().await, 1);
    assert_eq!(attempts(&runs), [1]);
    fixture.is_in("evt_1", EventState::Completed).await;
}

#[tokio::test]
async fn hook_that_panics_keeps_nobody_from_being_told() {
    let (fixture, _) = answering(|_, _| HandlerError::permanent("bad").into_response());
    fixture.accepts(&fixture.event("evt_1")).await;
    let told = Arc::new(Mutex::new(0));
    let counted = told.clone();
    let worker = fixture.worker().on_permanent(|_| panic!("asked to"));
    let worker = worker.on_dead_letter(move |_| *counted.lock().expect("no panic") += 1);
    assert_eq!(worker.run_until_idle().await, 1);
    assert_eq!(*told.lock().expect("no panic"), 1);
}

/// A service that is not ready for its first calls, or panics.
#[derive(Clone)]
struct Unready {
    inner: Router,
    left: Arc<Mutex<u32>>,
    panics: bool,
}

impl tower::Service<http::Request<http_body_util::Full<bytes::Bytes>>> for Unready {
    type Response = Response;
    type Error = &'static str;
    type Future = futures_util::future::BoxFuture<'static, Result<Response, &'static str>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), &'static str>> {
        let mut left = self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *left == 0 {
            return std::task::Poll::Ready(Ok(()));
        }
        *left -= 1;
        assert!(!self.panics, "asked to");
        std::task::Poll::Ready(Err("not ready"))
    }

    fn call(&mut self, request: http::Request<http_body_util::Full<bytes::Bytes>>) -> Self::Future {
        let answer = tower::ServiceExt::oneshot(self.inner.clone(), request.map(axum::body::Body::new));
        Box::pin(async move { answer.await.map_err(|never| match never {}) })
    }
}

#[tokio::test]
async fn service_that_is_not_ready_uses_no_last_attempt_up() {
    for panics in [false, true] {
        let (fixture, runs) = answering(|_, _| HandlerError::transient("flaky").into_response());
        let service = Unready { inner: fixture.handlers.clone(), left: Arc::new(Mutex::new(3)), panics };
        let letters = Arc::new(Mutex::new(Vec::new()));
        let noted = letters.clone();
        let policy = RetryPolicy::new().max_attempts(1).first_pause(Duration::ZERO);
        let worker = Worker::new(fixture.inbox.clone(), service).retries(policy).on_dead_letter(move |letter| {
            noted.lock().expect("no panic").push((letter.attempt, letter.reason.to_owned()));
        });
        fixture.accepts(&fixture.event("evt_1")).await;
        assert_eq!(worker.run_until_idle().await, 4);
        assert_eq!(attempts(&runs), [4], "the event dies after its first run");
        assert_eq!(*letters.lock().expect("no panic"), [(4, "flaky".to_owned())]);
        fixture.is_in("evt_1", EventState::Dead).await;
        assert_eq!(fixture.kept("evt_1").await.failures.len(), 4);
    }
}
