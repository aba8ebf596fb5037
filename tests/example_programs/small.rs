//! The small examples do what they say: each runs as a process, and the `send` example delivers to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use crate::support::example::example;
use crate::support::socket::PATIENCE;

/// An example that runs. Killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(example(name))
            .args(arguments)
            .env("LISTEN", "127.0.0.1:0")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let output = BufReader::new(child.stdout.take().expect("its standard output"));
        let (print, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| print.send(line)));
        Self { child, lines }
    }

    /// The next line that contains this.
    fn line(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never printed {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Where it listens.
    fn origin(&self) -> String {
        let line = self.line("listening on ");
        line.strip_prefix("listening on ").expect("an address").to_owned()
    }

    /// Ends it. The lines that it printed since the last one that was read.
    fn end(mut self) -> Vec<String> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the `send` example prints, without the line of the latencies.
fn send(url: &str, arguments: &[&str]) -> String {
    let output = Command::new(example("send")).args(["--url", url]).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("text");
    printed.lines().filter(|line| !line.starts_with("p50")).collect::<Vec<_>>().join("\n")
}

/// How many of the lines begin with this.
fn count(lines: &[String], start: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(start)).count()
}

#[test]
fn quickstart_handles_an_event_once_and_says_why_it_refuses() {
    let receiver = Running::start("quickstart", &[], &[("STRIPE_SECRET", "whsec_demo_secret")]);
    let url = format!("{}/webhooks/stripe", receiver.origin());
    assert_eq!(send(&url, &["--count", "2", "--duplicates", "2"]), "200  6");
    assert_eq!(send(&url, &["--secret", "whsec_another"]), "401  1");
    let lines = receiver.end();
    assert_eq!(count(&lines, "handled evt_"), 2, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("signature_mismatch")), "{lines:?}");
}

#[test]
fn quickstart_has_fewer_than_40_lines() {
    assert!(include_str!("../../examples/quickstart.rs").lines().count() < 40);
}

#[test]
fn two_providers_have_a_route_and_a_secret_each() {
    let receiver = Running::start("two_providers", &[], &[("GITHUB_SECRET", "a secret of GitHub")]);
    let origin = receiver.origin();
    let (stripe, github) = (format!("{origin}/webhooks/stripe"), format!("{origin}/webhooks/github"));
    assert_eq!(send(&stripe, &["--duplicates", "1"]), "200  2");
    assert_eq!(send(&github, &["--scheme", "github", "--secret", "a secret of GitHub", "--duplicates", "1"]), "200  2");
    assert_eq!(send(&github, &["--scheme", "github"]), "401  1", "the demo secret is not GitHub's here");
    assert_eq!(send(&github, &[]), "401  1", "Stripe's signature is none of GitHub's");
    let lines = receiver.end();
    assert_eq!((count(&lines, "stripe "), count(&lines, "github ")), (1, 1), "{lines:?}");
}

#[test]
fn tenants_have_a_secret_each_and_share_no_event() {
    let receiver = Running::start("tenants", &[], &[]);
    let origin = receiver.origin();
    for tenant in ["acme", "umbrella"] {
        let (url, secret) = (format!("{origin}/webhooks/{tenant}/stripe"), format!("whsec_{tenant}"));
        assert_eq!(send(&url, &["--secret", &secret, "--id", "evt", "--duplicates", "1"]), "200  2");
    }
    assert_eq!(send(&format!("{origin}/webhooks/umbrella/stripe"), &["--secret", "whsec_acme"]), "401  1");
    assert_eq!(send(&format!("{origin}/webhooks/nobody/stripe"), &["--secret", "whsec_acme"]), "401  1");
    assert_eq!(receiver.end(), ["evt_1 of acme", "evt_1 of umbrella"]);
}

#[test]
fn stack_of_tower_http_counts_outcomes() {
    let receiver = Running::start("tower_http_stack", &[], &[]);
    let url = format!("{}/webhooks", receiver.origin());
    assert_eq!(send(&url, &["--duplicates", "2"]), "200  3");
    assert_eq!(send(&url, &["--tamper"]), "401  1");
    let lines = receiver.end();
    let counted = ["completed", "duplicate", "refused"].map(|outcome| count(&lines, &format!("counted {outcome}")));
    assert_eq!(counted, [1, 2, 1], "{lines:?}");
}

#[test]
fn own_schemes_take_what_is_genuine_and_refuse_what_is_not() {
    let output = Command::new(example("own_scheme")).output().expect("it starts");
    let expected = "template, genuine: 200 OK completed\ntemplate, tampered: 401 Unauthorized refused\n\
                    closure, genuine: 200 OK completed\nclosure, tampered: 401 Unauthorized refused\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn operators_list_discard_requeue_and_forget() {
    let output = Command::new(example("operators")).output().expect("it starts");
    let expected = "2 completed, 2 dead\n\
                    evt_2: refunds are not implemented, 30 bytes\n\
                    evt_3: refunds are not implemented, 30 bytes\n\
                    discarded 1\nrequeued 1\nforgot 4\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn send_tells_fresh_from_duplicate() {
    let receiver = Running::start("receiver", &["--listen", "127.0.0.1:0"], &[]);
    let url = format!("{}/webhooks", receiver.origin());
    let told = send(&url, &["--count", "3", "--duplicates", "2"]);
    assert_eq!(told, "200  9\n  completed  3\n  duplicate  6");
}

#[cfg(feature = "sqlite")]
mod on_sqlite {
    use crate::support::directory::Directory;

    use super::*;

    fn database(directory: &Directory) -> String {
        directory.path().join("events.db").to_str().expect("text").to_owned()
    }

    #[test]
    fn worker_runs_what_was_received_alerts_and_runs_again_what_is_requeued() {
        let directory = Directory::new("example-worker");
        let path = database(&directory);
        let environment = [("DATABASE", &*path)];
        let receiver = Running::start("worker", &["receive"], &environment);
        let url = format!("{}/webhooks", receiver.origin());
        assert_eq!(send(&url, &["--count", "3", "--duplicates", "1", "--id", "evt"]), "200  6");
        assert_eq!(send(&url, &["--event-type", "refund.failed", "--id", "refund"]), "200  1");

        let worker = Running::start("worker", &["work"], &environment);
        let dead = "dead letter refund_1 after 3 attempts: the ledger does not know this account";
        let (mut handled, mut is_dead) = (0, false);
        while handled < 3 || !is_dead {
            let line = worker.line("");
            handled += usize::from(line.starts_with("handled evt_"));
            is_dead |= line == dead;
        }
        assert_eq!(count(&worker.end(), "handled evt_"), 0, "each is handled once");

        let requeued =
            Command::new(example("worker")).arg("requeue").env("DATABASE", &path).output().expect("it starts");
        assert_eq!(String::from_utf8_lossy(&requeued.stdout), "requeued 1\n");
        let mended = Running::start("worker", &["work"], &[("DATABASE", &path), ("MENDED", "1")]);
        assert_eq!(mended.line("handled "), "handled refund_1, attempt 1");
    }

    #[test]
    fn balance_of_two_providers_is_exact() {
        let directory = Directory::new("example-exactly-once");
        let path = database(&directory);
        let receiver = Running::start("exactly_once", &[], &[("DATABASE", &path)]);
        let origin = receiver.origin();
        assert_eq!(send(&format!("{origin}/webhooks/stripe"), &["--count", "20", "--duplicates", "3"]), "200  80");
        assert_eq!(send(&format!("{origin}/webhooks/paddle"), &["--scheme", "paddle", "--count", "10"]), "200  10");
        drop(receiver);

        let receiver = Running::start("exactly_once", &[], &[("DATABASE", &path)]);
        let address = receiver.origin().strip_prefix("http://").expect("an address").parse().expect("an address");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let balance = runtime.block_on(crate::support::process::Process::get(address, "/balance"));
        assert_eq!(balance.as_deref(), Some("30"));
    }
}
