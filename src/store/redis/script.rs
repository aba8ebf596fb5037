//! The commands of the four verbs. Each names one key, so that all of them work on a Cluster, and each answers with what is in
//! its way: nil says that it is done.

use std::sync::LazyLock;

use deadpool_redis::redis::{self, Cmd};

/// Writes where there is nothing, or the caller's own running claim.
const PUT_CODE: &str = "local found = redis.call('GET', KEYS[1])
if not found or string.sub(found, 1, #ARGV[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return false
end
return found";

/// As [`PUT_CODE`], and writes the caller's own settled record once more, as it is: from Redis 7.2 on `WAIT` is about what its own
/// connection wrote, and would confirm what is only found without asking any replica.
const PUT_OR_REPEAT_CODE: &str = "local found = redis.call('GET', KEYS[1])
if not found or string.sub(found, 1, #ARGV[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return false
end
if string.sub(found, 2, #ARGV[1]) == string.sub(ARGV[1], 2) then
  redis.call('SET', KEYS[1], found, 'KEEPTTL')
end
return found";

/// A claim, where a command cannot make it. A full server refuses it.
pub(super) static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(PUT_CODE));

/// As [`CLAIM`], for a claim that replicas are to confirm.
pub(super) static CLAIM_OR_REPEAT: LazyLock<Script> = LazyLock::new(|| Script::new(PUT_OR_REPEAT_CODE));

/// A renewal or a completion. A full server takes it: a completion that it refused would be a second run later.
pub(super) static PUT: LazyLock<Script> = LazyLock::new(|| Script::allowed_when_full(PUT_CODE));

/// As [`PUT`], for a completion that replicas are to confirm.
pub(super) static PUT_OR_REPEAT: LazyLock<Script> = LazyLock::new(|| Script::allowed_when_full(PUT_OR_REPEAT_CODE));

/// Deletes the caller's own running claim.
pub(super) static DROP: LazyLock<Script> = LazyLock::new(|| {
    Script::allowed_when_full(
        "local found = redis.call('GET', KEYS[1])
if found and string.sub(found, 1, #ARGV[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return false
end
return found",
    )
});

/// The first line of a script that a server at its `maxmemory` runs nevertheless. Redis 7 and Valkey know it.
const ALLOWED_WHEN_FULL: &str = "#!lua flags=allow-oom\n";

/// A script, and how it is asked for.
///
/// Without a first line that says otherwise, a script on a full server may delete, and fails where it would write. The line is a
/// syntax error for Redis 6, which gets the script without it.
pub(super) struct Script {
    plain: Text,
    /// With its flags in the first line, unless it needs none.
    flagged: Option<Text>,
}

/// The code of a script and its SHA-1, by which the server knows it.
struct Text {
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
    /// A script that adds something: a full server refuses it.
    pub(super) fn new(code: impl Into<String>) -> Self {
        Self { plain: Text::new(code.into()), flagged: None }
    }

    /// A script that deletes, or that writes over what is there: a full server runs it, too, from Redis 7 on.
    pub(super) fn allowed_when_full(code: impl Into<String>) -> Self {
        let plain = Text::new(code.into());
        let flagged = Some(Text::new([ALLOWED_WHEN_FULL, &plain.code].concat()));
        Self { plain, flagged }
    }

    pub(super) fn call<'a>(&'a self, key: &'a str, arguments: &'a [&'a [u8]]) -> Call<'a> {
        Call { script: self, key, arguments }
    }
}

impl Text {
    fn new(code: String) -> Self {
        Self { hash: redis::Script::new(&code).get_hash().to_owned(), code }
    }
}

impl Call<'_> {
    pub(super) fn has_flags(&self) -> bool {
        self.script.flagged.is_some()
    }

    /// For a server that has the script.
    pub(super) fn by_hash(&self, flags: Flags) -> Cmd {
        self.command("EVALSHA", &self.text(flags).hash)
    }

    /// For one that does not, and then has it. One step, unlike `SCRIPT LOAD` first: nothing can come between.
    pub(super) fn in_full(&self, flags: Flags) -> Cmd {
        self.command("EVAL", &self.text(flags).code)
    }

    fn text(&self, flags: Flags) -> &Text {
        match (&self.script.flagged, flags) {
            (Some(flagged), Flags::Known) => flagged,
            _ => &self.script.plain,
        }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(1).arg(self.key).arg(self.arguments);
        command
    }
}

/// Whether the server knows the flags of scripts, as Redis 7 and Valkey do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flags {
    Known,
    Unknown,
}

/// Writes where there is nothing. Redis 7 and Valkey know it; before, `NX` and `GET` were a syntax error together.
pub(super) fn set_if_absent(key: &str, value: &str, milliseconds: u64) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(value).arg("NX").arg("GET").arg("PX").arg(milliseconds);
    command
}
