//! Rows 14 and 15: SIGTERM to a receiver in a process of its own, the `receiver` example.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use axum::body::Body;
use tokio::task::JoinSet;
use tower_webhook::scheme;
use tower_webhook::testing::TestSender;

use crate::support::socket::{PATIENCE, RawClient, raw};

const SECRET: &str = "whsec_process";

/// The example, listening, with a ledger of its own. Killed when dropped.
struct Process {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
    address: SocketAddr,
    ledger: PathBuf,
}

impl Process {
    fn start(test: &str, arguments: &[&str]) -> Self {
        let ledger = std::env::temp_dir().join(format!("tower-webhook-{test}-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&ledger);
        let mut child = Command::new(example("receiver"))
            .args(["--listen", "127.0.0.1:0", "--secret", SECRET, "--wait", "0", "--ledger"])
            .arg(&ledger)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the receiver example starts");
        let mut output = BufReader::new(child.stdout.take().expect("its standard output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line of output");
        let address = line.trim().strip_prefix("listening on http://").expect("the address that it listens on");
        Self { address: address.parse().expect("an address"), child, output: Some(output), ledger }
    }

    /// A signed delivery, and the status that it gets; `None` when the connection ends without one.
    async fn deliver(address: SocketAddr, id: &str) -> Option<u16> {
        let sender = TestSender::new(scheme::stripe(SECRET).expect("a secret"));
        let body = format!(r#"{{"id":"{id}","type":"test.event"}}"#);
        let (head, body) = raw(sender.deliver(body).request::<Body>()).await;
        let mut client = RawClient::connect(address).await;
        client.write(format!("{head}connection: close\r\ncontent-length: {}\r\n\r\n", body.len())).await;
        client.write(body).await;
        client.read_to_end().await.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()
    }

    /// Starts two deliveries of one event. Nobody waits here, so the one that is answered with 503 has seen the other one
    /// run: what is left in the set is a delivery in the middle of its handler.
    async fn deliver_until_running(&self, id: &'static str) -> JoinSet<Option<u16>> {
        let mut deliveries = JoinSet::new();
        for _ in 0..2 {
            deliveries.spawn(Self::deliver(self.address, id));
        }
        assert_eq!(next(&mut deliveries).await, Some(503));
        deliveries
    }

    fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    /// How it ended, and what it printed since it began to listen.
    async fn wait(&mut self) -> (ExitStatus, String) {
        let output = self.output.take().expect("the first wait");
        let printed = tokio::task::spawn_blocking(|| std::io::read_to_string(output));
        let printed = tokio::time::timeout(PATIENCE, printed).await.expect("its end").expect("no panic");
        (self.child.wait().expect("its exit"), printed.expect("its output"))
    }

    fn ledger(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.ledger).expect("the ledger");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.ledger);
    }
}

/// `cargo test` builds the examples beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    let target = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let path = target.join("examples").join(name);
    assert!(path.exists(), "the example {name} is not built: run `cargo build --example {name}` first");
    path
}

async fn next(deliveries: &mut JoinSet<Option<u16>>) -> Option<u16> {
    let answer = tokio::time::timeout(PATIENCE, deliveries.join_next()).await.expect("an answer");
    answer.expect("a delivery").expect("no panic")
}

#[tokio::test]
async fn row_14_handler_shorter_than_the_grace_period_finishes() {
    let mut process = Process::start("row-14", &["--handler-delay-ms", "1500", "--grace", "20"]);
    let mut running = process.deliver_until_running("evt_1").await;
    process.terminate();
    assert_eq!(next(&mut running).await, Some(200), "its client is answered");
    let (exit, printed) = process.wait().await;
    assert!(exit.success(), "{exit}");
    assert!(printed.contains("drained, 0 dropped"), "{printed}");
    let ledger = process.ledger();
    assert!(ledger.len() == 1 && ledger[0].contains("evt_1"), "{ledger:?}");
}

/// Row 14 for a delivery whose client has gone: the process does not exit under it.
#[tokio::test]
async fn row_14_detached_handler_finishes_before_the_exit() {
    let mut process = Process::start("row-14-detached", &["--handler-delay-ms", "1500", "--grace", "20"]);
    let running = process.deliver_until_running("evt_1").await;
    drop(running);
    process.terminate();
    let (exit, printed) = process.wait().await;
    assert!(exit.success(), "{exit}");
    assert!(printed.contains("drained, 0 dropped"), "{printed}");
    assert_eq!(process.ledger().len(), 1);
}

#[tokio::test]
async fn row_15_handler_longer_than_the_grace_period_is_dropped() {
    let mut process = Process::start("row-15", &["--handler-delay-ms", "600000", "--grace", "0.2"]);
    let mut running = process.deliver_until_running("evt_1").await;
    process.terminate();
    let answer = next(&mut running).await;
    assert!(matches!(answer, None | Some(503)), "{answer:?} for work that was not done");
    let (exit, printed) = process.wait().await;
    assert!(exit.success(), "{exit}");
    assert!(printed.contains("drained, 1 dropped"), "{printed}");
    assert!(process.ledger().is_empty(), "no effect, and no 2xx");
}
