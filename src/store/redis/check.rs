use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use deadpool_redis::redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use deadpool_redis::redis::{self, Cmd, FromRedisValue, RedisResult, Value, from_redis_value};
use tokio::time::timeout;

use super::claims::Written;
use super::client::{Client, Mode};
use super::error::Result;
use super::pool::Connection;
use super::report::FULL;
use super::{RedisNode, RedisReport, RedisStore, scripts};
use crate::key::RESERVED;
use crate::store::{ClaimRequest, ClaimToken, Store, StoreError};
use crate::{EventKey, telemetry};

/// How long the claim of the check is kept if it cannot be released.
const PROBE: Duration = Duration::from_secs(10);

const SETTINGS: [&str; 5] = ["maxmemory-policy", "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save"];

/// The replies of nodes by their addresses, which only those of a Cluster have.
type Nodes<T> = BTreeMap<Option<String>, T>;

impl RedisStore {
    /// Claims, renews and releases an event of its own to see that the store works, and reads whether the server is
    /// configured to keep its data. To be called once, at start-up.
    ///
    /// A server at its `maxmemory` refuses the claim. That is a warning and not an error: events that were claimed or
    /// accepted before can end there, and the workers that drain an inbox have to start.
    ///
    /// Warnings are in the report, and go to `tracing` even if the store does not work, since they may say why. The
    /// caller decides whether they prevent the start:
    ///
    /// ```no_run
    /// # async fn start(store: tower_webhook::store::RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let report = store.check().await?;
    /// if !report.warnings.is_empty() {
    ///     return Err(report.warnings.join("; ").into());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, is a replica, or refuses a command that the store needs; a missing
    /// [right](super#the-rights-that-it-needs) is named. If too few replicas confirm, where any are to confirm. A
    /// missing right that only an inbox needs is a warning, for a user who has some of them.
    pub async fn check(&self) -> Result<RedisReport, StoreError> {
        let probed = self.probe().await;
        let mut nodes = self.nodes().await;
        if nodes.is_empty() && probed.is_ok() {
            nodes.push(RedisNode::default());
        }
        let wanted = self.client.replicas_wanted();
        let mut warnings: Vec<_> = nodes.iter().flat_map(|node| node.warnings(wanted)).collect();
        if let Ok(probed) = &probed {
            warnings.extend(probed.warnings(&nodes));
        }
        warnings.iter().for_each(|warning| telemetry::redis_warned(warning));
        probed?;
        Ok(RedisReport { nodes, claims_by_script: self.claims.by_script(), warnings })
    }

    /// Tries the verbs and the rights that they need, under ids that no sender can use.
    async fn probe(&self) -> Result<Probed, StoreError> {
        for connection in &self.client.connections {
            connection.connection().await?;
        }
        let token = ClaimToken::random();
        let key = EventKey::new("", None, &format!("{RESERVED}check:{token}"));
        let claim = ClaimRequest::new(&key, token, PROBE);
        let (is_full, confirmed) = match self.claims.claim(&claim).await {
            Ok(Written { existing: None, confirmed }) => (false, confirmed),
            Ok(Written { existing: Some(existing), .. }) => {
                return Err(StoreError::corrupt(format!("the event of the check is already there: {existing:?}")));
            }
            Err(error) if error.is_out_of_memory() => (true, Ok(())),
            Err(error) => return Err(error.into()),
        };
        let rights_key = EventKey::new("", None, &format!("{RESERVED}check:{token}:rights"));
        let missing = missing_rights(&self.client, &rights_key).await?;
        if !missing.of_store.is_empty() {
            return Err(StoreError::unavailable(format!("the user of the server lacks {}", listed(&missing.of_store))));
        }
        if is_full {
            // A full Redis 6 refuses the renewal, too. The release shows whether it is one.
            let _ = self.release(&key, token).await?;
        }
        if !(is_full && self.client.refuses_flags()) {
            let _ = self.renew(&claim).await?;
            let _ = self.release(&key, token).await?;
        }
        confirmed?;
        Ok(Probed { is_full, missing_of_inbox: missing.of_inbox })
    }

    /// Returns the nodes that tell about themselves.
    async fn nodes(&self) -> Vec<RedisNode> {
        let Ok(connection) = self.client.connections[0].connection().await else { return Vec::new() };
        let infos: Nodes<String> = self.ask_nodes(&connection, &redis::cmd("INFO")).await;
        if infos.is_empty() {
            return Vec::new();
        }
        let mut configs: Nodes<HashMap<String, String>> = Nodes::new();
        for setting in SETTINGS {
            // One by one: several at a time are new in Redis 7, and asking for all would return passwords as well.
            let command = redis::cmd("CONFIG").arg("GET").arg(setting).to_owned();
            let replies: Nodes<HashMap<_, _>> = self.ask_nodes(&connection, &command).await;
            for (address, values) in replies {
                configs.entry(address).or_default().extend(values);
            }
        }
        let config = |address| configs.get(address).cloned().unwrap_or_default();
        infos.iter().map(|(address, info)| RedisNode::read(address.clone(), info, &config(address))).collect()
    }

    /// Returns the replies of the nodes that answer.
    async fn ask_nodes<T: FromRedisValue>(&self, connection: &Connection, command: &Cmd) -> Nodes<T> {
        let replies = timeout(self.client.timeout, ask_nodes(connection.clone(), command)).await;
        let replies = replies.ok().and_then(Result::ok).unwrap_or_default();
        replies.into_iter().filter_map(|(address, value)| Some((address, from_redis_value(value).ok()?))).collect()
    }
}

/// The findings of a store that works.
struct Probed {
    is_full: bool,
    missing_of_inbox: Vec<String>,
}

impl Probed {
    /// The warnings that the nodes themselves do not cause.
    fn warnings(&self, nodes: &[RedisNode]) -> Vec<String> {
        let is_told = nodes.iter().any(RedisNode::is_full);
        let full = (self.is_full && !is_told).then(|| FULL.to_owned());
        let rights = (!self.missing_of_inbox.is_empty()).then(|| {
            let rights = listed(&self.missing_of_inbox);
            format!("the user of the server lacks {rights}: an inbox does not work without")
        });
        full.into_iter().chain(rights).collect()
    }
}

/// Rights as an administrator grants them.
fn listed(rights: &[String]) -> String {
    let rights: Vec<_> = rights.iter().map(|right| format!("+{right}")).collect();
    format!("the rights {}", rights.join(" "))
}

async fn ask_nodes(connection: Connection, command: &Cmd) -> RedisResult<Nodes<Value>> {
    match connection {
        Connection::Node(mut node) => Ok(Nodes::from([(None, command.query_async(&mut node).await?)])),
        Connection::Cluster(mut cluster) => {
            let every_primary = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            let replies = cluster.route_command(command.clone(), every_primary).await?;
            let replies: BTreeMap<String, Value> = from_redis_value(replies)?;
            Ok(replies.into_iter().map(|(address, value)| (Some(address), value)).collect())
        }
    }
}

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
