//! Several stores and several processes on one file. The other processes are this test itself, started again.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tower_webhook::store::{Claim, SqliteStore, Store};

use crate::sqlite::fixture::{Fixture, LEASE, PATIENCE, claim, done, is_fresh, key};

const ROLE: &str = "TOWER_WEBHOOK_TEST_ROLE";
const FILE: &str = "TOWER_WEBHOOK_TEST_FILE";
const CALLERS: usize = 64;
const ROUNDS: usize = 8;

/// Another process. Killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(role: &str, file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test's own path"))
            .args(["sqlite::processes::other_process", "--exact", "--ignored", "--nocapture", "--test-threads", "1"])
            .envs([(ROLE, role.as_ref()), (FILE, file.as_os_str())])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this test, started again");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, output }
    }

    /// The next thing that the process said, with the word it began with left out.
    pub(crate) fn says(&mut self, word: &str) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("its output") > 0 {
            if let Some(rest) = line.trim().strip_prefix(word) {
                return Some(rest.trim().to_owned());
            }
            line.clear();
        }
        None
    }

    pub(crate) fn go(&mut self) {
        self.child.stdin.take().expect("the first go").write_all(b"go\n").expect("its input");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "what the other processes of this module run"]
async fn other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = PathBuf::from(std::env::var_os(FILE).expect("a file"));
    let store = SqliteStore::builder().lock_wait(PATIENCE).open(&file).await.expect("a store");
    match role.as_str() {
        "claim" => {
            println!("\nready");
            std::io::stdin().lock().read_line(&mut String::new()).expect("a go");
            for round in 0..ROUNDS {
                println!("\nfresh {}", claim_together(std::slice::from_ref(&store), round).await);
            }
        }
        "work" => work(&store).await,
        role => crate::sqlite::inbox_fixture::play(role, &file, &store).await,
    }
}

/// Claims and completes events, 16 at a time, for ever; says so after each answer.
async fn work(store: &SqliteStore) {
    let mut workers = JoinSet::new();
    for worker in 0..16 {
        let store = store.clone();
        workers.spawn(async move {
            for n in 0.. {
                let id = format!("{worker}_{n}");
                let key = key(&id);
                let claim = claim(&key);
                store.claim(&claim).await.expect("an answer");
                println!("\nclaimed {id}");
                store.complete(&claim, &done()).await.map(|_| ()).expect("an answer");
                println!("\ncompleted {id}");
            }
        });
    }
    workers.join_all().await;
}

/// How many of so many callers per store get the event of this round.
async fn claim_together(stores: &[SqliteStore], round: usize) -> usize {
    let start = Arc::new(Barrier::new(CALLERS * stores.len()));
    let mut callers = JoinSet::new();
    for store in stores.iter().flat_map(|store| vec![store.clone(); CALLERS]) {
        let start = start.clone();
        callers.spawn(async move {
            let key = key(&format!("race_{round}"));
            start.wait().await;
            store.claim(&claim(&key)).await.expect("an answer")
        });
    }
    callers.join_all().await.into_iter().filter(|claim| is_fresh(*claim)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_on_one_file_have_one_winner() {
    let fixture = Fixture::new();
    let open = async || SqliteStore::builder().lock_wait(PATIENCE).open(fixture.path()).await.expect("a store");
    let stores = [open().await, open().await];
    for round in 0..ROUNDS {
        assert_eq!(claim_together(&stores, round).await, 1, "round {round}");
    }
}

#[test]
fn two_processes_on_one_file_have_one_winner() {
    let fixture = Fixture::new();
    let mut processes = [(); 2].map(|()| Process::start("claim", &fixture.path()));
    for process in &mut processes {
        process.says("ready").expect("a process that is ready");
    }
    processes.iter_mut().for_each(Process::go);
    for round in 0..ROUNDS {
        let fresh: Vec<_> = processes.iter_mut().map(|process| process.says("fresh").expect("a count")).collect();
        let winners: usize = fresh.iter().map(|count| count.parse::<usize>().expect("a number")).sum();
        assert_eq!(winners, 1, "round {round}: {fresh:?}");
    }
}

/// Opening creates the file, brings it into WAL mode and creates the table: all of that is a race, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_stores_open_a_new_file_at_once() {
    for _ in 0..10 {
        let fixture = Fixture::new();
        let mut opening = JoinSet::new();
        for _ in 0..8 {
            let path = fixture.path();
            opening.spawn(async move { SqliteStore::builder().lock_wait(PATIENCE).open(path).await.expect("a store") });
        }
        let stores = opening.join_all().await;
        assert_eq!(claim_together(&stores[..2], 0).await, 1);
    }
}

/// Rows 11 and 13.
#[tokio::test(flavor = "multi_thread")]
async fn killed_process_leaves_what_it_completed_and_frees_what_it_claimed() {
    let fixture = Fixture::new();
    let mut process = Process::start("work", &fixture.path());
    let mut completed = Vec::new();
    while completed.len() < 300 {
        completed.push(process.says("completed").expect("work"));
    }
    process.child.kill().expect("SIGKILL");
    while let Some(id) = process.says("completed") {
        completed.push(id);
    }

    let (store, pool) = (fixture.store().await, fixture.pool().await);
    for id in &completed {
        let seen = store.claim(&claim(&key(id))).await.expect("an answer");
        assert_eq!(seen, Claim::Completed { same_body: true }, "{id} was completed");
    }
    let running: Vec<String> = sqlx::query_scalar("SELECT key FROM webhook_events WHERE state = 'running'")
        .fetch_all(&pool)
        .await
        .expect("what it was about");
    println!("{} completed, {} running when killed", completed.len(), running.len());
    sqlx::query("UPDATE webhook_events SET lease_until = lease_until - ? WHERE state = 'running'")
        .bind(LEASE.as_millis() as i64)
        .execute(&pool)
        .await
        .expect("a lease passes");
    for text in &running {
        let key = key(text.strip_prefix("9.0:/webhooks//").expect("a key of this test"));
        assert_eq!(store.claim(&claim(&key)).await.expect("an answer"), Claim::Fresh { attempt: Some(2) });
    }
}
