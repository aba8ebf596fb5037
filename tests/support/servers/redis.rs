//! Redis servers of a test's own: on private ports, in directories of their own, gone with the test.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::port::Port;
use super::stopped::wait_until_stopped;

/// How long anything may take that is waited for. A Sentinel whose timer is two seconds late does nothing for half a minute
/// (its TILT mode), and on a busy machine it can be late again and again.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running `redis-server`. Killed when it is dropped.
pub(crate) struct RedisServer {
    child: Child,
    port: Port,
    /// Where a node of a cluster listens to the others.
    bus: Option<Port>,
    directory: PathBuf,
    arguments: Vec<String>,
}

impl RedisServer {
    /// One that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// As [`RedisServer::start`], with further options, `--name` and value in turn.
    pub(crate) fn with(options: &[&str]) -> Self {
        let usual = ["--save", "", "--appendonly", "no", "--enable-debug-command", "local"];
        let usual: Vec<_> = usual.iter().chain(options).map(|option| (*option).to_owned()).collect();
        Self::launch(&usual, &temporary_directory())
    }

    /// A replica, once it has everything.
    pub(crate) fn replica_of(primary: &Self) -> Self {
        let replica = Self::with(&["--replicaof", &format!("127.0.0.1 {}", primary.port.number)]);
        replica.wait_until(&["INFO", "replication"], "master_link_status:up");
        primary.wait_until(&["INFO", "replication"], "state=online");
        replica
    }

    /// A Sentinel that decides alone, and soon.
    pub(crate) fn sentinel_of(primary: &Self) -> Self {
        let directory = temporary_directory();
        let monitor = format!("sentinel monitor primary 127.0.0.1 {} 1\n", primary.port.number);
        let terms = "sentinel down-after-milliseconds primary 500\nsentinel failover-timeout primary 5000\n";
        let file = directory.join("sentinel.conf");
        fs::write(&file, monitor + terms).expect("a writable directory");
        let sentinel = Self::launch(&[file.display().to_string(), "--sentinel".to_owned()], &directory);
        sentinel.wait_until(&["SENTINEL", "MASTERS"], "num-slaves\n1\n");
        sentinel
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number))
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port.number)
    }

    /// Sends one command; the reply as text, a line for every element.
    pub(crate) fn command(&self, parts: &[&str]) -> String {
        self.try_command(parts).expect("the server answers")
    }

    /// Asks until the reply contains this.
    pub(crate) fn wait_until(&self, parts: &[&str], expected: &str) {
        let begun = Instant::now();
        loop {
            let reply = self.try_command(parts).unwrap_or_default();
            if reply.contains(expected) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{parts:?} never said {expected:?}, but {reply}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// All keys that it holds.
    pub(crate) fn keys(&self) -> Vec<String> {
        let keys = self.command(&["KEYS", "*"]);
        keys.lines().map(str::to_owned).collect()
    }

    /// Stops it as a debugger would: connections stay open, nothing is answered.
    pub(crate) fn freeze(&self) {
        signal(self.child.id(), "-STOP");
        wait_until_stopped(self.child.id());
    }

    pub(crate) fn thaw(&self) {
        signal(self.child.id(), "-CONT");
    }

    /// Ends it without a chance to write anything.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a process to kill");
        self.child.wait().expect("a process to wait for");
    }

    /// Starts it again after [`RedisServer::kill`], where it was and with what it had written, all of it read.
    pub(crate) fn restart(&mut self) {
        self.revive(&[]);
        assert!(self.is_up(), "the server did not come back on port {}", self.port.number);
        // From the start of its line on: `async_loading:0` is said while it loads, too.
        self.wait_until(&["INFO", "persistence"], "\nloading:0");
    }

    /// As [`RedisServer::restart`], with further options, and without waiting until it answers.
    pub(crate) fn revive(&mut self, options: &[&str]) {
        self.arguments.extend(options.iter().map(|option| (*option).to_owned()));
        self.child = spawn(self.port.number, &self.directory, &self.arguments);
    }

    fn launch(arguments: &[String], directory: &Path) -> Self {
        let port = Port::take();
        let child = spawn(port.number, directory, arguments);
        let mut server =
            Self { child, port, bus: None, directory: directory.to_owned(), arguments: arguments.to_owned() };
        assert!(server.is_up(), "redis-server {arguments:?} ended on port {}", server.port.number);
        server
    }

    /// Ready when it answers; false when it ended instead.
    fn is_up(&mut self) -> bool {
        let begun = Instant::now();
        let me = format!("process_id:{}\r", self.child.id());
        while !self.try_command(&["INFO", "server"]).is_ok_and(|info| info.contains(&me)) {
            if self.child.try_wait().expect("a process").is_some() {
                return false;
            }
            assert!(begun.elapsed() < PATIENCE, "a server that never answered");
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn try_command(&self, parts: &[&str]) -> std::io::Result<String> {
        let stream = TcpStream::connect_timeout(&self.address(), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = format!("*{}\r\n", parts.len());
        for part in parts {
            request += &format!("${}\r\n{part}\r\n", part.len());
        }
        (&stream).write_all(request.as_bytes())?;
        read_reply(&mut BufReader::new(stream))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Three primaries with a third of the slots each, and a replica of the first.
pub(crate) struct RedisCluster {
    pub(crate) nodes: Vec<RedisServer>,
}

impl RedisCluster {
    pub(crate) fn start() -> Self {
        let nodes: Vec<_> = (0..4).map(|_| cluster_node()).collect();
        for (node, slots) in nodes.iter().zip([["0", "5460"], ["5461", "10922"], ["10923", "16383"]]) {
            assert_eq!(node.command(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]), "OK\n");
        }
        for node in &nodes[1..] {
            let bus = node.command(&["CONFIG", "GET", "cluster-port"]);
            let (port, bus) = (node.port.number.to_string(), bus.lines().nth(1).expect("a port"));
            assert_eq!(nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]), "OK\n");
        }
        for node in &nodes {
            node.wait_until(&["CLUSTER", "INFO"], "cluster_known_nodes:4");
        }
        let first = nodes[0].command(&["CLUSTER", "MYID"]);
        nodes[3].wait_until(&["CLUSTER", "REPLICATE", first.trim()], "OK");
        nodes[3].wait_until(&["INFO", "replication"], "master_link_status:up");
        for node in &nodes {
            node.wait_until(&["CLUSTER", "INFO"], "cluster_state:ok");
            node.wait_until(&["CLUSTER", "NODES"], "slave ");
        }
        Self { nodes }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }
}

fn cluster_node() -> RedisServer {
    let bus = Port::take();
    let number = bus.number.to_string();
    let mut node =
        RedisServer::with(&["--cluster-enabled", "yes", "--cluster-port", &number, "--cluster-node-timeout", "2000"]);
    node.bus = Some(bus);
    node
}

fn spawn(port: u16, directory: &Path, arguments: &[String]) -> Child {
    let mut command = Command::new("redis-server");
    // A configuration file comes first.
    let (file, options): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| argument.ends_with(".conf"));
    command.args(file).args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
    command.args(["--dir", &directory.display().to_string()]).args(options);
    command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    command.spawn().unwrap_or_else(|error| {
        panic!("redis-server cannot be started ({error}): this test needs it, run `apt-get install redis-server`")
    })
}

fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([name, &process.to_string()]).status().expect("the kill command");
    assert!(status.success());
}

fn temporary_directory() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("tower-webhook-redis-{}-{number}", std::process::id()));
    fs::create_dir_all(&directory).expect("a writable directory");
    directory
}

fn read_reply(stream: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let kind = line.chars().next().ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let rest = line[1..].trim_end();
    match kind {
        '$' | '*' if rest == "-1" => Ok("nil\n".to_owned()),
        '$' => {
            let mut text = vec![0; rest.parse::<usize>().expect("a length") + 2];
            stream.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            Ok(String::from_utf8_lossy(&text).into_owned() + "\n")
        }
        '*' => (0..rest.parse().expect("a length")).map(|_: usize| read_reply(stream)).collect(),
        _ => Ok(rest.to_owned() + "\n"),
    }
}
