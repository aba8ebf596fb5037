//! The commands that the user of the server needs the right to call, and whether it has them.

use super::client::{Client, Mode};
use super::error::Result;
use super::scripts;
use crate::EventKey;

/// Calls of the commands that every store needs, beside `EVAL` and `EVALSHA`. The first writes a string under `KEY` for
/// a few seconds, and the last deletes it.
const STORE: [&str; 3] = ["SET KEY - PX 10000", "GET KEY", "DEL KEY"];

/// The first command of an inbox: a user without this right has no inbox.
const ENQUEUE: &str = "XADD KEY * - -";

/// Calls of the other commands that an inbox needs. They change nothing but the key's time to live: the key has a
/// string, and not a sorted set or a stream.
const INBOX: &str = "EXISTS KEY, HDEL KEY -, HGET KEY -, HSET KEY - -, MGET KEY, PERSIST KEY, PEXPIRE KEY 10000, \
                     PTTL KEY, SADD KEY -, SRANDMEMBER KEY 1, SREM KEY -, TIME, XDEL KEY 1-1, XLEN KEY, \
                     XRANGE KEY - +, XREAD STREAMS KEY 0, XREVRANGE KEY + -, ZADD KEY 0 -, ZCARD KEY, \
                     ZCOUNT KEY 0 0, ZRANGE KEY 0 0, ZRANGEBYLEX KEY - +, ZRANGEBYSCORE KEY 0 0, ZREM KEY -, \
                     ZSCAN KEY 0, ZSCORE KEY -";

/// The rights that a user lacks, as rules of an ACL name them.
pub(super) struct MissingRights {
    /// Without these, no store works.
    pub(super) of_store: Vec<String>,
    /// Without these, an inbox does not work. Empty for a user who cannot have one.
    pub(super) of_inbox: Vec<String>,
}

/// Tries every command on a key that nothing else uses.
pub(super) async fn missing_rights(client: &Client, key: &EventKey) -> Result<MissingRights> {
    let of_store = denied(client, key, &STORE).await?;
    if !of_store.is_empty() {
        return Ok(MissingRights { of_store, of_inbox: Vec::new() });
    }
    let [set, _, delete] = STORE;
    let calls: Vec<_> = [set, ENQUEUE].into_iter().chain(INBOX.split(", ")).chain([delete]).collect();
    let of_inbox = denied(client, key, &calls).await?;
    let has_inbox = !of_inbox.contains(&name(ENQUEUE));
    Ok(MissingRights { of_store, of_inbox: if has_inbox { of_inbox } else { Vec::new() } })
}

async fn denied(client: &Client, key: &EventKey, calls: &[&str]) -> Result<Vec<String>> {
    let reply = client.run(Mode::Repeatable, &scripts::TRY_COMMANDS, &client.key(key), calls).await?;
    let denied: Vec<usize> = reply.read()?;
    Ok(denied.into_iter().filter_map(|number| Some(name(calls.get(number.checked_sub(1)?)?))).collect())
}

/// The right that a call needs.
fn name(call: &str) -> String {
    call.split(' ').next().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(calls: &[&str]) -> BTreeSet<String> {
        calls.iter().map(|call| name(call)).collect()
    }

    fn of_inbox() -> BTreeSet<String> {
        names(&INBOX.split(", ").chain([ENQUEUE]).collect::<Vec<_>>())
    }

    /// The rights in the module's documentation: of all stores, and of an inbox.
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

    /// Commands are called by name, or are built in a table first.
    #[test]
    fn every_command_that_a_script_calls_is_among_the_rights() {
        let mut called = BTreeSet::new();
        for code in scripts::SECTIONS {
            for before in ["call('", "= { '"] {
                let calls = code.split(before).skip(1).map(|call| call.replace(['\'', ','], ""));
                let is_command = |call: &String| call.starts_with(|letter: char| letter.is_ascii_uppercase());
                called.extend(calls.filter(is_command).map(|call| name(call.split(')').next().unwrap_or_default())));
            }
        }
        // No script waits for arrivals, or reads large requests.
        called.extend(["xread", "mget"].map(str::to_owned));
        let mut rights = of_inbox();
        rights.extend(names(&STORE));
        assert_eq!(called, rights);
    }
}
