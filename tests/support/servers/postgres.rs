//! A Postgres server of the test's own: in a temporary directory, on a private port, gone when it is dropped.

use std::fs;
use std::io::{PipeWriter, pipe};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{Connection, PgConnection, PgPool};

use super::port::Port;
use super::stopped::wait_until_stopped;

const PATIENCE: Duration = Duration::from_secs(60);

/// Ends the server and removes its directory when its standard input closes: however the test ends, nothing is left.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
read -r _
pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
    kill -STOP "$pid" 2>/dev/null
    kill -9 $(cat "/proc/$pid/task/$pid/children" 2>/dev/null) "$pid" 2>/dev/null
fi
rm -rf "$0"
"#;

/// How to start it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    configuration: Vec<String>,
    password: Option<String>,
    largest_file_kib: Option<u64>,
}

impl Settings {
    /// A line of `postgresql.conf`.
    pub(crate) fn set(mut self, line: &str) -> Self {
        self.configuration.push(line.to_owned());
        self
    }

    /// Whoever connects has to know it.
    pub(crate) fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// No file of it can grow beyond this: to the server a disk that is full.
    pub(crate) fn largest_file_kib(mut self, kib: u64) -> Self {
        self.largest_file_kib = Some(kib);
        self
    }
}

/// A running server; its superuser is `postgres`.
pub(crate) struct PostgresServer {
    port: Port,
    directory: PathBuf,
    settings: Settings,
    postmaster: Child,
    watchdog: Child,
    leash: Option<PipeWriter>,
}

impl PostgresServer {
    pub(crate) fn start() -> Self {
        Self::start_with(Settings::default())
    }

    pub(crate) fn start_with(settings: Settings) -> Self {
        let directory = new_directory();
        let (read, leash) = pipe().expect("a pipe");
        let watchdog = Command::new("sh").args(["-c", WATCHDOG]).arg(&directory).stdin(read).spawn().expect("a shell");
        let mut initdb = program("initdb");
        initdb.arg("-D").arg(directory.join("data")).args(["-U", "postgres", "-N", "-E", "UTF8", "--locale=C"]);
        match &settings.password {
            Some(password) => {
                let file = directory.join("password");
                fs::write(&file, password).expect("a password file");
                initdb.arg("--auth=scram-sha-256").arg("--pwfile").arg(file);
            }
            None => {
                initdb.arg("--auth=trust");
            }
        }
        let made = initdb.output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = Port::take();
        let postmaster = launch(&directory, port.number, &settings);
        let server = Self { port, directory, settings, postmaster, watchdog, leash: Some(leash) };
        server.wait_until_ready();
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number).into()
    }

    /// For those who are told by text where it is.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }

    pub(crate) fn options(&self) -> PgConnectOptions {
        self.options_at(self.address())
    }

    /// To the server through something that listens elsewhere.
    pub(crate) fn options_at(&self, address: SocketAddr) -> PgConnectOptions {
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(address.port())
            .username("postgres")
            .database("postgres")
            .ssl_mode(PgSslMode::Disable);
        match &self.settings.password {
            Some(password) => options.password(password),
            None => options,
        }
    }

    pub(crate) fn pool(&self) -> PgPool {
        self.pool_at(self.address())
    }

    pub(crate) fn pool_at(&self, address: SocketAddr) -> PgPool {
        PgPoolOptions::new().max_connections(4).connect_lazy_with(self.options_at(address))
    }

    /// A connection of the test's own.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect_with(&self.options()).await.expect("a connection")
    }

    /// SIGKILL to every process of it, as a power cut would.
    pub(crate) fn kill(&mut self) {
        // Stopped first, so that it starts no children meanwhile.
        self.stop();
        let children = self.children();
        self.signal("-KILL");
        self.postmaster.wait().expect("its end");
        // One that waits for the disk takes a while to die, and until then another server does not start.
        let begun = Instant::now();
        while children.split_whitespace().any(is_alive) {
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGSTOP: it is there and does not answer.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        wait_until_stopped(self.postmaster.id());
        // Again, for a child that it started before it stopped.
        self.signal("-STOP");
        self.children().split_whitespace().for_each(|child| wait_until_stopped(child.parse().expect("a number")));
    }

    /// SIGCONT.
    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    /// Starts it again, on the same data and port, after it was killed.
    pub(crate) fn restart(&mut self) {
        self.postmaster = launch(&self.directory, self.port.number, &self.settings);
        self.wait_until_ready();
    }

    /// What the server wrote to its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn signal(&self, signal: &str) {
        let (pid, children) = (self.postmaster.id(), self.children());
        // The children may be gone by now, so what `kill` makes of it is of no interest.
        let _ = Command::new("kill").arg(signal).arg(pid.to_string()).args(children.split_whitespace()).output();
    }

    /// The ids of its processes, but for the first.
    fn children(&self) -> String {
        let pid = self.postmaster.id();
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
    }

    fn wait_until_ready(&self) {
        let begun = Instant::now();
        let ready = || {
            let pid_file = fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap_or_default();
            pid_file.lines().nth(7).is_some_and(|status| status.trim() == "ready")
        };
        while !(ready() && TcpStream::connect(self.address()).is_ok()) {
            assert!(begun.elapsed() < PATIENCE, "the server does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.leash.take());
        let _ = self.watchdog.wait();
        let _ = self.postmaster.wait();
    }
}

/// Whether there is such a process, and not only its exit status.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn launch(directory: &Path, port: u16, settings: &Settings) -> Child {
    // What a killed one left behind says "ready", too.
    let _ = fs::remove_file(directory.join("data/postmaster.pid"));
    let log = fs::File::options().create(true).append(true).open(directory.join("log")).expect("a log file");
    let mut postgres = match settings.largest_file_kib {
        // POSIX counts in blocks of 512 bytes, and so does a shell that is nothing more.
        Some(kib) => {
            let mut shell = as_postgres(Command::new("sh"));
            shell.args(["-c", &format!("ulimit -f {} && exec \"$0\" \"$@\"", kib * 2)]).arg(find("postgres"));
            shell
        }
        None => program("postgres"),
    };
    postgres.arg("-D").arg(directory.join("data")).args(["-p", &port.to_string()]);
    let sockets = format!("unix_socket_directories={}", directory.display());
    let fixed = ["listen_addresses=127.0.0.1", &sockets, "max_wal_size=256MB"];
    for line in fixed.into_iter().chain(settings.configuration.iter().map(String::as_str)) {
        postgres.args(["-c", line]);
    }
    let errors = log.try_clone().expect("a second handle");
    postgres.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("postgres runs")
}

fn program(name: &str) -> Command {
    as_postgres(Command::new(find(name)))
}

/// To be run as a user that Postgres agrees to run as.
pub(super) fn as_postgres(mut command: Command) -> Command {
    if let Some((user, group)) = unprivileged() {
        command.uid(user).gid(group);
    }
    command.current_dir(std::env::temp_dir());
    command
}

pub(super) fn find(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    places.extend(versions.map(|version| version.path().join("bin")));
    // Debian's place for pgbouncer, which a user's path may lack.
    places.push("/usr/sbin".into());
    let found = places.into_iter().map(|place| place.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing; install it: apt-get install postgresql pgbouncer"))
}

/// Postgres refuses to run as root: then it runs as the user `postgres`.
fn unprivileged() -> Option<(u32, u32)> {
    let id = |arguments: &[&str]| {
        let said = Command::new("id").args(arguments).output().expect("id runs").stdout;
        String::from_utf8_lossy(&said).trim().parse::<u32>().ok()
    };
    let user = || id(&["-u", "postgres"]).expect("the user postgres: apt-get install postgresql");
    (id(&["-u"]) == Some(0)).then(|| (user(), id(&["-g", "postgres"]).expect("the group of the user postgres")))
}

pub(super) fn new_directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("tower-webhook-pg-{}-{number}", std::process::id()));
    fs::create_dir(&directory).expect("a new directory");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("permissions");
    if let Some((user, group)) = unprivileged() {
        chown(&directory, Some(user), Some(group)).expect("a directory of the user postgres");
    }
    directory
}
