//! The commands of the four verbs. Each names one key, so that all of them work on a Cluster, and each answers with what is in
//! its way: nil says that it is done.

use std::sync::LazyLock;

use deadpool_redis::redis::{self, Cmd};

/// Writes where there is nothing, or the caller's own running claim.
pub(super) static PUT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local found = redis.call('GET', KEYS[1])
if not found or string.sub(found, 1, #ARGV[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return false
end
return found",
    )
});

/// As [`PUT`], and writes the caller's own settled record once more, as it is: from Redis 7.2 on `WAIT` is about what its own
/// connection wrote, and would confirm what is only found without asking any replica.
pub(super) static PUT_OR_REPEAT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local found = redis.call('GET', KEYS[1])
if not found or string.sub(found, 1, #ARGV[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return false
end
if string.sub(found, 2, #ARGV[1]) == string.sub(ARGV[1], 2) then
  redis.call('SET', KEYS[1], found, 'KEEPTTL')
end
return found",
    )
});

/// Deletes the caller's own running claim.
pub(super) static DROP: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local found = redis.call('GET', KEYS[1])
if found and string.sub(found, 1, #ARGV[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return false
end
return found",
    )
});

pub(super) struct Script {
    code: String,
    hash: String,
}

/// A script with what it is called with.
pub(super) struct Call<'a> {
    script: &'a Script,
    pub(super) key: &'a str,
    arguments: &'a [&'a [u8]],
}

impl Script {
    pub(super) fn new(code: impl Into<String>) -> Self {
        let code = code.into();
        Self { hash: redis::Script::new(&code).get_hash().to_owned(), code }
    }

    pub(super) fn call<'a>(&'a self, key: &'a str, arguments: &'a [&'a [u8]]) -> Call<'a> {
        Call { script: self, key, arguments }
    }
}

impl Call<'_> {
    /// For a server that has the script.
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// For one that does not, and then has it. One step, unlike `SCRIPT LOAD` first: nothing can come between.
    pub(super) fn in_full(&self) -> Cmd {
        self.command("EVAL", &self.script.code)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(1).arg(self.key).arg(self.arguments);
        command
    }
}

/// Writes where there is nothing. Redis 7 and Valkey know it; before, `NX` and `GET` were a syntax error together.
pub(super) fn set_if_absent(key: &str, value: &str, milliseconds: u64) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(value).arg("NX").arg("GET").arg("PX").arg(milliseconds);
    command
}
