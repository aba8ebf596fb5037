//! An example in a process of its own, to be killed and stopped.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower_webhook::scheme;
use tower_webhook::testing::TestSender;

use super::example::example;
use super::servers::stopped::wait_until_stopped;
use super::socket::{PATIENCE, RawClient, raw};

const SECRET: &str = "whsec_process";

/// The example, listening. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
    pub(crate) address: SocketAddr,
}

impl Process {
    /// Starts an example that says on its first line where it listens.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(example(name))
            .args(["--listen", "127.0.0.1:0", "--secret", SECRET])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let mut output = BufReader::new(child.stdout.take().expect("its standard output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line of output");
        let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        let Some(address) = address else {
            // Nobody else would, and whoever reads what this test prints would wait for it.
            let _ = child.kill();
            panic!("it does not say where it listens: {line:?}");
        };
        Self { address, child, output: Some(output) }
    }

    /// Ready when it has printed a line with this in it.
    pub(crate) async fn printed(&mut self, text: &'static str) {
        let mut output = self.output.take().expect("not waited for");
        let reading = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            while !line.contains(text) {
                line.clear();
                assert_ne!(output.read_line(&mut line).expect("its output"), 0, "it never printed {text:?}");
            }
            output
        });
        self.output = Some(tokio::time::timeout(PATIENCE, reading).await.expect("a line").expect("no panic"));
    }

    /// What it answers to a GET.
    pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let answer = exchange(address, request.as_bytes()).await?;
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    }

    /// A signed delivery, and the status that it gets; `None` when there is nobody, or the connection ends without one.
    pub(crate) async fn deliver(address: SocketAddr, id: &str) -> Option<u16> {
        let sender = TestSender::new(scheme::stripe(SECRET).expect("a secret"));
        let body = format!(r#"{{"id":"{id}","type":"test.event"}}"#);
        let (head, body) = raw(sender.deliver(body).request_as()).await;
        let mut request = format!("{head}connection: close\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        request.extend(body);
        exchange(address, &request).await?.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()
    }

    /// Starts two deliveries of one event. Nobody waits here, so the one that is answered with 503 has seen the other one
    /// run: what is left in the set is a delivery in the middle of its handler.
    pub(crate) async fn deliver_until_running(&self, id: &'static str) -> JoinSet<Option<u16>> {
        let mut deliveries = JoinSet::new();
        for _ in 0..2 {
            deliveries.spawn(Self::deliver(self.address, id));
        }
        assert_eq!(next(&mut deliveries).await, Some(503));
        deliveries
    }

    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends it a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        if name == "STOP" {
            wait_until_stopped(self.child.id());
        }
    }

    /// How it ended, and what it printed since it began to listen.
    pub(crate) async fn wait(&mut self) -> (ExitStatus, String) {
        let output = self.output.take().expect("the first wait");
        let printed = tokio::task::spawn_blocking(|| std::io::read_to_string(output));
        let printed = tokio::time::timeout(PATIENCE, printed).await.expect("its end").expect("no panic");
        (self.child.wait().expect("its exit"), printed.expect("its output"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request and reads until the connection ends, however it does.
async fn exchange(address: SocketAddr, request: &[u8]) -> Option<String> {
    let mut client = RawClient(TcpStream::connect(address).await.ok()?);
    client.0.write_all(request).await.ok()?;
    Some(client.read_to_end().await)
}

/// The next answer of several deliveries.
pub(crate) async fn next(deliveries: &mut JoinSet<Option<u16>>) -> Option<u16> {
    let answer = tokio::time::timeout(PATIENCE, deliveries.join_next()).await.expect("an answer");
    answer.expect("a delivery").expect("no panic")
}

/// Where the `receiver` example writes a line for each effect. Removed when dropped.
pub(crate) struct LedgerFile(PathBuf);

impl LedgerFile {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tower-webhook-{test}-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("a path of text")
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).expect("the ledger");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for LedgerFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
