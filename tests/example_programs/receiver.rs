//! What the `receiver` example prints: every scheme's request works when it is pasted into a shell, and so does its handshake.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use axum::body::Body;
use axum::{Router, routing::post};
use http::Request;
use tower::ServiceExt;
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{Outcome, WebhookEvent, WebhookLayer};

use crate::examples::schemes::Given;
use crate::examples::{demo, events, listing, paste, schemes};
use crate::support::example::example;

const ORIGIN: &str = "http://127.0.0.1:3000";
const VERIFY_TOKEN: &str = "a token & more";

/// Those with a handshake that the layer answers.
const WITH_HANDSHAKE: [&str; 7] = ["discord", "dropbox", "intercom", "meta", "slack", "xero", "zoom"];

/// A receiver with the demo secret of this scheme, and who signs for it.
fn receiver(scheme: &str) -> (Router, TestSender) {
    let given = Given {
        secrets: demo::secrets(&[], scheme),
        url: Some(format!("{ORIGIN}/webhooks")),
        verify_token: Some(VERIFY_TOKEN.to_owned()),
        tolerance: None,
    };
    let scheme = schemes::scheme(scheme, given).expect("a demo secret that fits");
    let layer = WebhookLayer::new(scheme.clone(), MemoryStore::new());
    let app = Router::new().route("/webhooks", post(|_: WebhookEvent| async {})).layer(layer);
    (app, TestSender::new(scheme))
}

async fn outcome(app: &Router, request: Request<Body>) -> Outcome {
    let response = app.clone().oneshot(request).await.expect("a router cannot fail");
    response.extensions().get().cloned().expect("the layer answers")
}

/// The request that a shell makes of a command, with a curl that only tells what it was given.
fn pasted(command: &str) -> Request<Body> {
    let script = format!("curl() {{ printf '%s\\0' \"$@\"; }}\n{command}");
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash");
    assert!(output.status.success(), "{command}");
    let output = String::from_utf8(output.stdout).expect("text");
    let mut arguments = output.split_terminator('\0');
    let (mut request, mut body) = (Request::builder(), String::new());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("a value");
        request = match argument {
            "-i" => request,
            "-X" => request.method(value()),
            "-H" => {
                let (name, value) = value().split_once(": ").expect("a header");
                request.header(name, value)
            }
            "--data-raw" => {
                value().clone_into(&mut body);
                request
            }
            url => request.uri(url.strip_prefix(ORIGIN).expect("the receiver's address")),
        };
    }
    request.body(body.into()).expect("a request")
}

#[tokio::test]
async fn demo_event_of_every_scheme_is_accepted_and_then_a_duplicate() {
    for scheme in schemes::names() {
        let (app, sender) = receiver(scheme);
        let command = paste::curl(&paste::event(&sender, scheme), ORIGIN).join(" \\\n  ");
        assert_eq!(outcome(&app, pasted(&command)).await, Outcome::Completed, "{scheme}: {command}");
        let again = if scheme == "dropbox" { Outcome::Completed } else { Outcome::Duplicate };
        assert_eq!(outcome(&app, pasted(&command)).await, again, "{scheme}, again: {command}");
    }
}

/// What GitLab and Twilio may leave out.
#[tokio::test]
async fn event_without_its_optional_id_runs_again() {
    for (scheme, header) in [
        ("gitlab", "idempotency-key"),
        ("twilio", "i-twilio-idempotency-token"),
        ("twilio-shared-key", "i-twilio-idempotency-token"),
    ] {
        let (app, sender) = receiver(scheme);
        for _ in 0..2 {
            let mut request = paste::event(&sender, scheme).map(Body::from);
            assert!(request.headers_mut().remove(header).is_some(), "{scheme}");
            assert_eq!(outcome(&app, request).await, Outcome::Completed, "{scheme}");
        }
    }
}

#[tokio::test]
async fn two_events_of_one_scheme_are_two() {
    for scheme in schemes::names() {
        let (app, sender) = receiver(scheme);
        for id in ["evt_1", "evt_2"] {
            let request = events::deliver(&sender, scheme, id, Some("a \"type\" & more")).request_as();
            assert_eq!(outcome(&app, request).await, Outcome::Completed, "{scheme} {id}");
        }
    }
}

#[tokio::test]
async fn printed_handshakes_are_answered() {
    for scheme in schemes::names() {
        let (app, sender) = receiver(scheme);
        let handshake = paste::handshake(&sender, scheme, VERIFY_TOKEN);
        assert_eq!(handshake.is_some(), WITH_HANDSHAKE.contains(&scheme), "{scheme}");
        let Some(handshake) = handshake else { continue };
        let command = paste::curl(&handshake, ORIGIN).join(" ");
        assert!(!command.contains('\n'), "one line: {command}");
        assert_eq!(outcome(&app, pasted(&command)).await, Outcome::Handshake, "{scheme}: {command}");
    }
}

#[test]
fn public_key_is_known_to_sign_nothing() {
    let private = demo::secrets(&[], "discord");
    let public = vec![private[0][64..].to_owned()];
    for (secrets, signs) in [(private, true), (public, false)] {
        let scheme = schemes::scheme("discord", Given { secrets, ..Given::default() }).expect("a key");
        assert_eq!(events::can_sign(&*scheme), signs);
    }
}

#[test]
fn short_lived_signatures_are_told_of() {
    let hint = paste::hurry("paddle", Some(Duration::from_secs(5))).expect("a hint");
    assert!(hint.contains("for 5 seconds") && hint.contains("--scheme paddle"), "{hint}");
    assert_eq!(paste::hurry("stripe", Some(Duration::from_secs(300))), None);
    assert_eq!(paste::hurry("github", None), None);
}

#[test]
fn every_scheme_is_a_line_of_the_list() {
    let table = listing::table().expect("every scheme can be built");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), schemes::names().count() + 1);
    for (name, line) in schemes::names().zip(&lines[1..]) {
        assert_eq!(line.split("  ").next(), Some(name));
    }
    for (scheme, said) in [
        ("stripe ", &["HMAC-SHA256 of {timestamp}.{body}", " 5 min ", " 3 days ", " 401 ", " json id "][..]),
        ("twilio ", &[" 15 s ", " 400 or 403 ", " sha1 ", " header i-twilio-idempotency-token (unsigned) or none"]),
        ("svix ", &[" 27 h 36 min "]),
        ("gitlab ", &["nothing: the token is sent along"]),
        ("hubspot-v1 ", &["SHA-256 of the secret and {body}"]),
    ] {
        let line = lines.iter().find(|line| line.starts_with(scheme)).expect(scheme);
        for text in said {
            assert!(format!("{line} ").contains(text), "{text:?} in {line}");
        }
    }
}

/// The example, listening. Killed when dropped.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(example("receiver"))
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the receiver example starts");
        let output = BufReader::new(child.stdout.take().expect("its standard output"));
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line of output");
        line
    }

    /// The lines up to an empty one.
    fn paragraph(&mut self) -> String {
        std::iter::from_fn(|| Some(self.line()).filter(|line| !line.trim().is_empty())).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Square signs the URL that it was given, not the one that the request arrives at.
#[test]
fn url_is_the_one_that_was_given() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("there is no curl here: nothing was tried");
        return;
    }
    let public = "https://hooks.example.com/in";
    let mut receiver = Process::start(&["--scheme", "square", "--url", public]);
    let listening = receiver.paragraph();
    let origin = listening.lines().next().and_then(|line| line.strip_prefix("listening on ")).expect("its address");
    receiver.paragraph();
    for (url, outcome) in [(format!("{origin}/webhooks"), "refused"), (public.to_owned(), "completed")] {
        let square = tower_webhook::scheme::square(demo::secrets(&[], "square"), &url).expect("a url");
        let command = paste::curl(&paste::event(&TestSender::new(square), "square"), origin).join(" ");
        Command::new("bash").args(["-c", &command]).env("no_proxy", "*").output().expect("bash");
        let told = receiver.line();
        assert!(told.starts_with(outcome), "{url}: {told}");
    }
}

#[test]
fn both_examples_list_the_schemes() {
    for name in ["receiver", "verify"] {
        let output = Command::new(example(name)).arg("--list-schemes").output().expect("the example starts");
        let output = String::from_utf8(output.stdout).expect("text");
        let listed = output.lines().skip(1).filter_map(|line| line.split(' ').next());
        assert!(listed.eq(schemes::names()), "{name}: {output}");
    }
}

/// Twilio signs the address, which is only known once the example listens; Stripe is the default.
#[test]
fn printed_command_works_in_a_shell() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("there is no curl here: nothing was tried");
        return;
    }
    for arguments in [&[][..], &["--scheme", "twilio"]] {
        let mut receiver = Process::start(arguments);
        let listening = receiver.paragraph();
        assert!(listening.starts_with("listening on http://127.0.0.1:"), "{listening}");
        assert!(listening.contains("paste this"), "{listening}");
        let command = receiver.paragraph();
        for outcome in ["completed", "duplicate"] {
            // The shell may know of a proxy.
            let answer = Command::new("bash").args(["-c", &command]).env("no_proxy", "*").output().expect("bash");
            let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{command}: {answer}");
            let told = receiver.line();
            assert!(told.starts_with(outcome), "plain, since this is no terminal: {outcome}: {told}");
        }
    }
}

/// A store that is away is a sentence with a remedy, and no dump of the error's fields.
#[cfg(all(feature = "redis", feature = "sqlite"))]
#[test]
fn store_that_cannot_be_reached_is_told_in_a_sentence() {
    // A port that is taken, and on which nothing listens.
    let taken = tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let taken = tokio::net::TcpSocket::new_v4().expect("a socket");
        taken.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        taken
    });
    let redis = format!("redis://{}", taken.local_addr().expect("its address"));
    for (store, said) in [
        (
            "sqlite:/no/such/directory/webhooks.db",
            "Error: the store is unavailable: the SQLite database /no/such/directory/webhooks.db could not be opened: its \
             directory must be there, and this process must be able to write it: ",
        ),
        (
            &redis,
            "Error: the store is unavailable: the server cannot be reached: check that it runs, and the address that the \
             pool has: ",
        ),
    ] {
        let output = Command::new(example("receiver"))
            .args(["--listen", "127.0.0.1:0", "--store", store])
            .output()
            .expect("the receiver example starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(said), "{told}");
        assert!(!told.contains("kind:") && !told.contains('{'), "{told}");
    }
}
