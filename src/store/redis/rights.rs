//! The commands that the user of the server needs the right to call, and whether it has them.

use std::sync::LazyLock;

use deadpool_redis::redis::{RedisError, from_redis_value};

use super::fault::Fault;
use super::script::Script;
use super::store::{Shared, Way};
use crate::EventKey;

/// Calls of the commands that every store needs, beside `EVAL` and `EVALSHA`. The first writes a string under `KEY`, for a few
/// seconds, and the last deletes it.
const STORE: [&str; 3] = ["SET KEY - PX 10000", "GET KEY", "DEL KEY"];

/// The first call of an inbox's commands: a user without this right has no inbox.
const ACCEPT: &str = "XADD KEY * - -";

/// Calls of the other commands that an inbox needs. They change nothing but the key's time to live: where there is a string, they find
/// no sorted set and no stream.
const INBOX: [&str; 26] = [
    "EXISTS KEY",
    "HDEL KEY -",
    "HGET KEY -",
    "HSET KEY - -",
    "MGET KEY",
    "PERSIST KEY",
    "PEXPIRE KEY 10000",
    "PTTL KEY",
    "SADD KEY -",
    "SRANDMEMBER KEY 1",
    "SREM KEY -",
    "TIME",
    "XDEL KEY 1-1",
    "XLEN KEY",
    "XRANGE KEY - +",
    "XREAD STREAMS KEY 0",
    "XREVRANGE KEY + -",
    "ZADD KEY 0 -",
    "ZCARD KEY",
    "ZCOUNT KEY 0 0",
    "ZRANGE KEY 0 0",
    "ZRANGEBYLEX KEY - +",
    "ZRANGEBYSCORE KEY 0 0",
    "ZREM KEY -",
    "ZSCAN KEY 0",
    "ZSCORE KEY -",
];

/// Makes the calls, and answers with the numbers of those that the user has no right to. If the first or the second is refused,
/// only the last one is made after it: a server notes down every refusal.
static TRY: LazyLock<Script> = LazyLock::new(|| {
    Script::allowed_when_full(
        "local denied, is_over = {}, false
for number, call in ipairs(ARGV) do
  if not is_over or number == #ARGV then
    local words = {}
    for word in string.gmatch(call, '%S+') do
      words[#words + 1] = word == 'KEY' and KEYS[1] or word
    end
    local reply = redis.pcall(unpack(words))
    local why = type(reply) == 'table' and reply.err
    if why and (string.find(why, 'executing the script can', 1, true) or string.find(why, 'permission', 1, true)) then
      denied[#denied + 1] = number
      is_over = is_over or number <= 2
    end
  end
end
return denied",
    )
});

/// The rights that a user lacks, as rules of an ACL name them: `get`, `xinfo|groups`.
pub(super) struct MissingRights {
    /// Without these no store works.
    pub(super) of_store: Vec<String>,
    /// Without these an inbox does not work. Empty for a user who cannot have one.
    pub(super) of_inbox: Vec<String>,
}

impl Shared {
    /// Tries every command on a key that nothing else uses.
    pub(super) async fn missing_rights(&self, key: &EventKey) -> Result<MissingRights, Fault> {
        let of_store = self.denied(key, &STORE).await?;
        if !of_store.is_empty() {
            return Ok(MissingRights { of_store, of_inbox: Vec::new() });
        }
        let [set, _, delete] = STORE;
        let calls: Vec<_> = [set, ACCEPT].into_iter().chain(INBOX).chain([delete]).collect();
        let of_inbox = self.denied(key, &calls).await?;
        let has_inbox = !of_inbox.contains(&name(ACCEPT));
        Ok(MissingRights { of_store, of_inbox: if has_inbox { of_inbox } else { Vec::new() } })
    }

    async fn denied(&self, key: &EventKey, calls: &[&str]) -> Result<Vec<String>, Fault> {
        let arguments: Vec<_> = calls.iter().map(|call| call.as_bytes()).collect();
        let (reply, _) = self.run(Way::Shared, &TRY.call(&self.key(key), &arguments)).await?;
        let denied: Vec<usize> = from_redis_value(reply).map_err(RedisError::from)?;
        Ok(denied.into_iter().filter_map(|number| Some(name(calls.get(number.checked_sub(1)?)?))).collect())
    }
}

/// The right that a call needs.
fn name(call: &str) -> String {
    let mut words = call.split(' ').map(str::to_ascii_lowercase);
    let command = words.next().unwrap_or_default();
    match (command.as_str(), words.next()) {
        ("xgroup" | "xinfo", Some(subcommand)) => format!("{command}|{subcommand}"),
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    fn names(calls: &[&str]) -> BTreeSet<String> {
        calls.iter().map(|call| name(call)).collect()
    }

    fn of_inbox() -> BTreeSet<String> {
        names(&[&INBOX[..], &[ACCEPT]].concat())
    }

    /// The rules that the module's documentation gives to an administrator, of all stores and of an inbox.
    fn documented() -> [BTreeSet<String>; 2] {
        let rules: Vec<BTreeSet<_>> = include_str!("mod.rs")
            .split("ACL SETUSER webhooks")
            .skip(1)
            .map(|text| text.split("```").next().unwrap_or_default())
            .map(|rules| rules.split_whitespace().filter_map(|rule| Some(rule.strip_prefix('+')?.to_owned())).collect())
            .collect();
        rules.try_into().expect("two commands")
    }

    #[test]
    fn documented_rights_are_those_that_are_tried() {
        let mut of_store = names(&STORE);
        of_store.extend(["eval", "evalsha"].map(str::to_owned));
        assert_eq!(documented(), [of_store, of_inbox()]);
    }

    /// Commands are called by name, or are put together in a table first.
    #[test]
    fn every_command_that_a_script_calls_is_among_the_rights() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/redis");
        let scripts =
            fs::read_dir(folder.join("inbox/lua")).expect("a folder").map(|file| file.expect("a file").path());
        let mut called = BTreeSet::new();
        for file in scripts.chain([folder.join("script.rs")]) {
            let code = fs::read_to_string(file).expect("a text");
            for before in ["call('", "= { '"] {
                let calls = code.split(before).skip(1).map(|call| call.replace(['\'', ','], ""));
                let is_command = |call: &String| call.starts_with(|letter: char| letter.is_ascii_uppercase());
                called.extend(calls.filter(is_command).map(|call| name(call.split(')').next().unwrap_or_default())));
            }
        }
        // Arrivals are waited for, and large parcels asked for, outside of scripts.
        called.extend(["xread", "mget"].map(str::to_owned));
        let mut rights = of_inbox();
        rights.extend(names(&STORE));
        assert_eq!(called, rights);
    }
}
