//! A PgBouncer of the test's own, in front of a Postgres server: in transaction mode, on a private port, gone when it is dropped.

use std::fs;
use std::io::{PipeWriter, pipe};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::port::Port;
use super::postgres::{PostgresServer, as_postgres, find, new_directory};

const PATIENCE: Duration = Duration::from_secs(60);

/// How many sessions all of its clients share: fewer than a store has connections.
pub(crate) const SESSIONS: usize = 3;

/// Ends the pooler and removes its directory when its standard input closes: however the test ends, nothing is left.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
read -r _
pid=$(cat "$0/pid" 2>/dev/null)
[ -n "$pid" ] && kill -9 "$pid" 2>/dev/null
rm -rf "$0"
"#;

pub(crate) struct Pgbouncer {
    port: Port,
    directory: PathBuf,
    process: Child,
    watchdog: Child,
    leash: Option<PipeWriter>,
}

impl Pgbouncer {
    pub(crate) fn before(server: &PostgresServer) -> Self {
        let (directory, port) = (new_directory(), Port::take());
        let (read, leash) = pipe().expect("a pipe");
        let watchdog = Command::new("sh").args(["-c", WATCHDOG]).arg(&directory).stdin(read).spawn().expect("a shell");
        fs::write(directory.join("users"), "\"postgres\" \"\"\n").expect("a file of users");
        fs::write(directory.join("ini"), configuration(&directory, port.number, server.address().port()))
            .expect("a configuration");
        let process = launch(&directory);
        let pooler = Self { port, directory, process, watchdog, leash: Some(leash) };
        pooler.wait_until_ready();
        pooler
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number).into()
    }

    /// For those who are told by text where it is.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// Without the startup parameter that it refuses unless it is configured to ignore it.
    pub(crate) fn options(&self, server: &PostgresServer) -> PgConnectOptions {
        server.options_at(self.address()).extra_float_digits(None)
    }

    pub(crate) fn pool(&self, server: &PostgresServer) -> PgPool {
        PgPoolOptions::new().max_connections(8).connect_lazy_with(self.options(server))
    }

    /// SIGKILL: every connection through it breaks.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("a process");
        self.process.wait().expect("its end");
    }

    /// Starts it again, on the same port, after it was killed.
    pub(crate) fn restart(&mut self) {
        self.process = launch(&self.directory);
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        let begun = Instant::now();
        while TcpStream::connect(self.address()).is_err() {
            let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "the pooler does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        drop(self.leash.take());
        let _ = self.watchdog.wait();
        let _ = self.process.wait();
    }
}

fn configuration(directory: &Path, port: u16, server: u16) -> String {
    let directory = directory.display();
    format!(
        "[databases]
         * = host=127.0.0.1 port={server}
         [pgbouncer]
         listen_addr = 127.0.0.1
         listen_port = {port}
         unix_socket_dir =
         auth_type = trust
         auth_file = {directory}/users
         pidfile = {directory}/pid
         logfile = {directory}/log
         pool_mode = transaction
         default_pool_size = {SESSIONS}
         max_client_conn = 1000
         server_login_retry = 0.1\n"
    )
    .lines()
    .map(|line| line.trim_start().to_owned() + "\n")
    .collect()
}

fn launch(directory: &Path) -> Child {
    // What a killed one left behind keeps another from starting.
    let _ = fs::remove_file(directory.join("pid"));
    let mut pgbouncer = as_postgres(Command::new(find("pgbouncer")));
    pgbouncer.arg("-q").arg(directory.join("ini"));
    pgbouncer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pgbouncer runs")
}
