//! Row 36 and its like: disks that are full or read-only, directories that are missing, tables that are gone.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use tower_webhook::store::{Claim, Hold, SqliteStore, Store, StoreError, StoreErrorKind};

use crate::sqlite::fixture::{Fixture, claim, done, is_fresh, key};

/// Set where the test runs as the root of a namespace of its own.
const IN_NAMESPACE: &str = "TOWER_WEBHOOK_TEST_IN_NAMESPACE";

/// A disk of half a megabyte, unmounted when dropped.
pub(crate) struct SmallDisk {
    fixture: Fixture,
}

impl SmallDisk {
    /// Only root can have one. For anybody else `test` is run once more, as the root of a namespace of its own, and `None` says that
    /// it has passed there.
    pub(crate) fn for_test(test: &str) -> Option<Self> {
        let disk = Self { fixture: Fixture::new() };
        if disk.mount(&["-t", "tmpfs", "-o", "size=512k", "tmpfs"]) {
            return Some(disk);
        }
        assert!(std::env::var_os(IN_NAMESPACE).is_none(), "this test mounts a small file system: run it as root");
        let status = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount"])
            .arg(std::env::current_exe().expect("this test's own path"))
            .args([test, "--exact"])
            .env(IN_NAMESPACE, "1")
            .status();
        let passed = status.is_ok_and(|status| status.success());
        assert!(passed, "{test} failed in a namespace of its own, or there are none here: then run it as root");
        None
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.fixture.path()
    }

    fn mount(&self, arguments: &[&str]) -> bool {
        let status = Command::new("mount").args(arguments).arg(self.fixture.directory()).status();
        status.is_ok_and(|status| status.success())
    }

    /// Takes all that is free.
    pub(crate) fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.filler()).expect("a file");
        while file.write_all(&[0; 512]).is_ok() {}
    }

    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.filler()).expect("the filler");
    }

    fn filler(&self) -> PathBuf {
        self.fixture.directory().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.fixture.directory()).status();
    }
}

/// All that an operator is told.
pub(crate) fn cause(error: &StoreError) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test(flavor = "multi_thread")]
async fn row_36_full_disk_is_unavailable_and_then_is_not() {
    let Some(disk) = SmallDisk::for_test("sqlite::disks::row_36_full_disk_is_unavailable_and_then_is_not") else {
        return;
    };
    let store = SqliteStore::open(disk.path()).await.expect("a store");
    let (completed, running) = (key("completed"), key("running"));
    let (first, mine) = (claim(&completed), claim(&running));
    for claim in [&first, &mine] {
        assert!(is_fresh(store.claim(claim).await.expect("an answer")));
    }
    assert_eq!(store.complete(&first, &done()).await.expect("an answer"), Hold::Held);

    disk.fill();
    let mut refused = 0;
    for n in 0..200 {
        match store.claim(&claim(&key(&n.to_string()))).await {
            Ok(claim) => assert!(is_fresh(claim) && refused == 0, "there was a little room left"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable);
                assert!(cause(&error).contains("full"), "{}", cause(&error));
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    let seen = store.claim(&claim(&completed)).await.expect("an answer, by reading");
    assert_eq!(seen, Claim::Completed { same_body: true });

    disk.empty();
    assert!(is_fresh(store.claim(&claim(&key("199"))).await.expect("an answer")), "what was refused was not written");
    assert_eq!(store.complete(&mine, &done()).await.expect("an answer"), Hold::Held);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_disk_is_unavailable_and_then_is_not() {
    let Some(disk) = SmallDisk::for_test("sqlite::disks::read_only_disk_is_unavailable_and_then_is_not") else {
        return;
    };
    let path = disk.path();
    drop(SqliteStore::open(&path).await.expect("a store"));
    // The last connection deletes the log when it closes, and a disk that is written cannot be made read-only.
    crate::sqlite::fixture::eventually("it is closed", async || {
        !Path::new(&format!("{}-wal", path.display())).exists()
    })
    .await;
    assert!(disk.mount(&["-o", "remount,bind,ro"]), "a read-only disk");
    let error = SqliteStore::open(&path).await.expect_err("a read-only disk");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(disk.mount(&["-o", "remount,bind,rw"]), "a disk as before");
    let store = SqliteStore::open(&path).await.expect("a store");
    assert!(is_fresh(store.claim(&claim(&key("evt_1"))).await.expect("an answer")));
}

#[tokio::test]
async fn missing_directory_is_told_with_its_path() {
    let fixture = Fixture::new();
    let path = fixture.directory().join("no such directory").join("webhooks.db");
    let error = SqliteStore::open(&path).await.expect_err("no directory");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(cause(&error).contains("no such directory"), "{}", cause(&error));
}

#[tokio::test]
async fn file_that_is_no_database_is_unavailable() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path(), "no database".repeat(1000)).expect("a file");
    let error = SqliteStore::open(fixture.path()).await.expect_err("no database");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn table_that_is_gone_is_created_again() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    assert!(is_fresh(store.claim(&claim(&key("evt_1"))).await.expect("an answer")));
    sqlx::query("DROP TABLE webhook_events").execute(&pool).await.expect("an operator's mistake");
    let error = store.claim(&claim(&key("evt_2"))).await.expect_err("no table");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(is_fresh(store.claim(&claim(&key("evt_2"))).await.expect("an answer")));
}
