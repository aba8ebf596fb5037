//! The scripts: sections of `lua/*.lua`, put together when a script is first used.
//!
//! Each script names one key, which decides about the node of a Cluster; the others begin with the same prefix. A
//! script consists of its own section and of those that it needs, and of no others: all code in front of its own is run
//! each time as well.

use std::sync::OnceLock;

use deadpool_redis::redis::{self, Cmd, ToRedisArgs};

use crate::store::sections;

pub(super) const SECTIONS: [&str; 4] = [
    include_str!("lua/claims.lua"),
    include_str!("lua/events.lua"),
    include_str!("lua/queue.lua"),
    include_str!("lua/operators.lua"),
];

/// An inline claim, where a command cannot make it.
pub(super) static CLAIM: Script = Script::new("put");
/// The same for a claim that replicas are to confirm.
pub(super) static CLAIM_REPLICATED: Script = Script::new("put_or_repeat");
/// The renewal or completion of an inline claim. A refused completion would be a second run later.
pub(super) static PUT: Script = Script::allowed_when_full("put");
/// The same for a completion that replicas are to confirm.
pub(super) static PUT_REPLICATED: Script = Script::allowed_when_full("put_or_repeat");
pub(super) static DELETE: Script = Script::allowed_when_full("delete");
pub(super) static TRY_COMMANDS: Script = Script::allowed_when_full("try_commands");

// A full server runs all scripts of the queue but the first: they write less than they help to delete.
pub(super) static ENQUEUE: Script = Script::new("enqueue");
pub(super) static LEASE: Script = Script::allowed_when_full("lease");
pub(super) static FIND_LEASED: Script = Script::allowed_when_full("find_leased");
pub(super) static RENEW: Script = Script::allowed_when_full("renew");
pub(super) static COMPLETE: Script = Script::allowed_when_full("complete");
pub(super) static BURY: Script = Script::allowed_when_full("bury");
pub(super) static RELEASE: Script = Script::allowed_when_full("release");
pub(super) static BROWSE: Script = Script::allowed_when_full("browse");
pub(super) static GET: Script = Script::allowed_when_full("get");
pub(super) static REQUEUE: Script = Script::allowed_when_full("requeue");
pub(super) static DISCARD: Script = Script::allowed_when_full("discard");
pub(super) static FORGET: Script = Script::allowed_when_full("forget");
pub(super) static WAITING: Script = Script::allowed_when_full("waiting");
pub(super) static COUNTS: Script = Script::allowed_when_full("counts");
pub(super) static PURGE: Script = Script::allowed_when_full("purge");
pub(super) static SWEEP: Script = Script::allowed_when_full("sweep");

/// The first line of a script that a server at its `maxmemory` runs nevertheless. Redis 7 and Valkey know it; for Redis
/// 6 it is a syntax error. Without it, a script on a full server may delete, and fails where it would write.
const ALLOWED_WHEN_FULL: &str = "#!lua flags=allow-oom\n";

/// A script, as Redis 7 and Valkey get it, and as Redis 6 does.
pub(super) struct Script {
    section: &'static str,
    is_allowed_when_full: bool,
    plain: OnceLock<Text>,
    flagged: OnceLock<Text>,
}

/// The code of a script and its SHA-1, by which the server knows it.
struct Text {
    code: String,
    hash: String,
}

/// Whether the server knows the flags of scripts, as Redis 7 and Valkey do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flags {
    Known,
    Unknown,
}

impl Script {
    /// A script that adds something: a full server refuses it.
    const fn new(section: &'static str) -> Self {
        Self { section, is_allowed_when_full: false, plain: OnceLock::new(), flagged: OnceLock::new() }
    }

    /// A script that deletes or overwrites: a full server runs it as well, from Redis 7 on.
    const fn allowed_when_full(section: &'static str) -> Self {
        Self { section, is_allowed_when_full: true, plain: OnceLock::new(), flagged: OnceLock::new() }
    }

    pub(super) const fn has_flags(&self) -> bool {
        self.is_allowed_when_full
    }

    /// The command for a server that has the script.
    pub(super) fn by_hash(&self, flags: Flags, key: &str, arguments: &[impl ToRedisArgs]) -> Cmd {
        command("EVALSHA", &self.text(flags).hash, key, arguments)
    }

    /// The command for a server that does not have the script, and has it afterwards. It is one step, unlike
    /// `SCRIPT LOAD` first: nothing can come between.
    pub(super) fn in_full(&self, flags: Flags, key: &str, arguments: &[impl ToRedisArgs]) -> Cmd {
        command("EVAL", &self.text(flags).code, key, arguments)
    }

    fn text(&self, flags: Flags) -> &Text {
        match self.is_allowed_when_full && flags == Flags::Known {
            true => self.flagged.get_or_init(|| Text::new(ALLOWED_WHEN_FULL, self.section)),
            false => self.plain.get_or_init(|| Text::new("", self.section)),
        }
    }
}

impl Text {
    fn new(first_line: &str, section: &'static str) -> Self {
        let mut code = first_line.to_owned();
        append(section, &mut code, &mut Vec::new());
        Self { hash: redis::Script::new(&code).get_hash().to_owned(), code }
    }
}

fn command(name: &str, script: &str, key: &str, arguments: &[impl ToRedisArgs]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(1).arg(key).arg(arguments);
    command
}

/// Appends a section without its comments, behind the sections that it needs. Each is appended once.
fn append(name: &'static str, code: &mut String, appended: &mut Vec<&'static str>) {
    if appended.contains(&name) {
        return;
    }
    appended.push(name);
    let section = sections::section(&SECTIONS, name);
    let needed = section.lines().next().and_then(|line| line.strip_prefix("-- needs: ")).unwrap_or_default();
    needed.split_terminator(", ").for_each(|needed| append(needed, code, appended));
    for line in sections::code(section) {
        code.push_str(line);
        code.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_has_each_section_that_it_needs_once_and_no_others() {
        let code = |name| Text::new("", name).code;
        let (release, sweep) = (code("release"), code("sweep"));
        assert_eq!(release.matches("local PREFIX").count(), 1);
        assert!(sweep.contains("local function repair(") && !release.contains("local function repair("));
        assert!(!release.contains("--"));
        assert_eq!(Text::new(ALLOWED_WHEN_FULL, "sweep").code, [ALLOWED_WHEN_FULL, &sweep].concat());
    }
}
