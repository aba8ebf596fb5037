use std::collections::HashMap;

/// The warning about a server that is at its `maxmemory`.
pub(super) const FULL: &str = "the server is at its maxmemory and refuses new events, until memory is freed or \
                               maxmemory is raised; events that run can end, from Redis 7 on";

/// The findings of [`RedisStore::check`](super::RedisStore::check).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisReport {
    /// The server, or every primary of a Cluster.
    pub nodes: Vec<RedisNode>,
    /// Whether events are claimed by a script, since the server is older than Redis 7.
    pub claims_by_script: bool,
    /// The reasons why the server may forget claims, each with a remedy.
    pub warnings: Vec<String>,
}

/// The configuration and state of one server. A value that it does not tell is `None`: managed servers often hide their
/// configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisNode {
    /// Its address, on a Cluster.
    pub address: Option<String>,
    /// The version of Redis that it is compatible with.
    pub version: Option<String>,
    /// Whether it takes writes.
    pub is_primary: Option<bool>,
    /// How many replicas are connected to it.
    pub replicas: Option<u32>,
    /// How many bytes of memory it uses, of those that count towards its limit.
    pub memory_used: Option<u64>,
    /// How many bytes it may use: `maxmemory`. Zero for any number.
    pub memory_limit: Option<u64>,
    /// Which keys are dropped when memory runs out: `maxmemory-policy`.
    pub eviction: Option<String>,
    /// Whether every write goes to the append-only file.
    pub append_only: Option<bool>,
    /// How often that file is synced to disk: `appendfsync`.
    pub fsync: Option<String>,
    /// Whether syncing pauses while the file is rewritten: `no-appendfsync-on-rewrite`.
    pub fsync_pauses: Option<bool>,
    /// When snapshots are written to disk: `save`. Empty for never.
    pub snapshots: Option<String>,
}

impl RedisNode {
    /// Reads the replies to `INFO` and `CONFIG GET`, as far as they came.
    pub(super) fn read(address: Option<String>, info: &str, config: &HashMap<String, String>) -> Self {
        let info: HashMap<_, _> = info.lines().filter_map(|line| line.split_once(':')).collect();
        let told = |name: &str| info.get(name).map(|value| value.trim().to_owned());
        let number = |name: &str| told(name).and_then(|value| value.parse::<u64>().ok());
        let set = |name: &str| config.get(name).cloned();
        Self {
            address,
            version: told("redis_version"),
            is_primary: told("role").map(|role| role == "master"),
            replicas: told("connected_slaves").and_then(|count| count.parse().ok()),
            memory_used: number("used_memory")
                .map(|used| used.saturating_sub(number("mem_not_counted_for_evict").unwrap_or(0))),
            memory_limit: number("maxmemory"),
            eviction: set("maxmemory-policy").or_else(|| told("maxmemory_policy")),
            append_only: set("appendonly")
                .map(|set| set == "yes")
                .or_else(|| told("aof_enabled").map(|enabled| enabled == "1")),
            fsync: set("appendfsync"),
            fsync_pauses: set("no-appendfsync-on-rewrite").map(|set| set == "yes"),
            snapshots: set("save"),
        }
    }

    /// The warnings about this server's configuration, each with a remedy.
    pub(super) fn warnings(&self, replicas_wanted: u32) -> Vec<String> {
        let found = [
            self.role_warning(),
            self.memory_warning(),
            self.eviction_warning(),
            self.persistence_warning(),
            self.replica_warning(replicas_wanted),
        ];
        let place = self.address.as_ref().map_or_else(String::new, |address| format!("{address}: "));
        found.into_iter().flatten().map(|warning| place.clone() + &warning).collect()
    }

    fn role_warning(&self) -> Option<String> {
        (self.is_primary == Some(false))
            .then(|| "the server is a replica and refuses every claim: connect to the primary".to_owned())
    }

    /// Whether it refuses writes that add to its memory. With another policy, it makes room instead.
    pub(super) fn is_full(&self) -> bool {
        let is_above = |(used, limit): (u64, u64)| limit > 0 && used > limit;
        self.memory_used.zip(self.memory_limit).is_some_and(is_above) && self.eviction.as_deref() == Some("noeviction")
    }

    fn memory_warning(&self) -> Option<String> {
        self.is_full().then(|| FULL.to_owned())
    }

    fn eviction_warning(&self) -> Option<String> {
        match self.eviction.as_deref() {
            Some("noeviction") => None,
            Some(policy) => Some(format!(
                "maxmemory-policy is {policy}: when memory runs out, claims and records are dropped silently and \
                 events run again; set it to noeviction"
            )),
            None => Some("the server does not tell its maxmemory-policy: make sure that it is noeviction".to_owned()),
        }
    }

    fn persistence_warning(&self) -> Option<String> {
        let snapshots = self.snapshots.as_deref().is_some_and(|save| !save.is_empty());
        match (self.append_only, self.fsync.as_deref()) {
            (Some(true), Some("no")) => Some(
                "appendfsync is no: a crash of the machine forgets what it had not written to disk by itself, up to \
                 half a minute; set it to everysec or always"
                    .to_owned(),
            ),
            (Some(true), _) if self.fsync_pauses == Some(true) => Some(
                "no-appendfsync-on-rewrite is yes: a crash of the machine while the append-only file is rewritten \
                 forgets up to half a minute, whatever appendfsync is; set it to no"
                    .to_owned(),
            ),
            (Some(true), _) => None,
            (Some(false), _) if snapshots => Some(
                "appendonly is no: a restart forgets every claim and record since the last snapshot, and these \
                 events run again if they are sent again; set it to yes"
                    .to_owned(),
            ),
            (Some(false), _) => Some(
                "appendonly is no: a restart forgets every claim and record, and events run again if they are sent \
                 again; set it to yes"
                    .to_owned(),
            ),
            (None, _) => {
                Some("the server does not tell whether it keeps an append-only file: make sure of it".to_owned())
            }
        }
    }

    fn replica_warning(&self, wanted: u32) -> Option<String> {
        let connected = self.replicas.filter(|connected| *connected < wanted)?;
        Some(format!(
            "{wanted} replicas are to confirm every claim, and {connected} are connected: every delivery is refused \
             until there are as many"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\n# Memory\r\nused_memory:900\r\nmaxmemory:1000\r\n\
                        maxmemory_policy:allkeys-lru\r\n\
                        mem_not_counted_for_evict:100\r\n\
                        # Persistence\r\naof_enabled:1\r\n# Replication\r\nrole:slave\r\nconnected_slaves:2\r\n";

    #[test]
    fn what_the_configuration_hides_is_read_from_the_information() {
        let node = RedisNode::read(None, INFO, &HashMap::new());
        let expected = RedisNode {
            address: None,
            version: Some("7.0.15".to_owned()),
            is_primary: Some(false),
            replicas: Some(2),
            memory_used: Some(800),
            memory_limit: Some(1000),
            eviction: Some("allkeys-lru".to_owned()),
            append_only: Some(true),
            fsync: None,
            fsync_pauses: None,
            snapshots: None,
        };
        assert_eq!(node, expected);
        let warnings = node.warnings(3);
        assert_eq!(warnings.len(), 3);
        for (warning, word) in warnings.iter().zip(["replica", "allkeys-lru", "3 replicas"]) {
            assert!(warning.contains(word), "{warning}");
        }
    }

    #[test]
    fn a_server_that_tells_nothing_is_no_good_news() {
        let node = RedisNode::read(Some("10.0.0.1:6379".to_owned()), "", &HashMap::new());
        let warnings = node.warnings(0);
        assert_eq!(warnings.len(), 2);
        assert!(warnings.iter().all(|warning| warning.starts_with("10.0.0.1:6379: ")));
    }

    #[test]
    fn a_careful_configuration_is_not_warned_about() {
        let config =
            [("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("appendfsync", "everysec"), ("save", "")];
        let config = config.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let node = RedisNode::read(None, "role:master\r\nconnected_slaves:1", &config);
        assert_eq!(node.warnings(1), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_is_never_synced_is_warned_about() {
        let node = RedisNode {
            eviction: Some("noeviction".to_owned()),
            append_only: Some(true),
            fsync: Some("no".to_owned()),
            ..RedisNode::default()
        };
        assert!(node.warnings(0)[0].contains("appendfsync"));
        let node = RedisNode { fsync: Some("always".to_owned()), fsync_pauses: Some(true), ..node };
        assert!(node.warnings(0)[0].contains("no-appendfsync-on-rewrite"));
    }

    #[test]
    fn a_server_is_full_above_its_limit_if_it_evicts_nothing() {
        let node = |used, limit, policy: &str| RedisNode {
            memory_used: Some(used),
            memory_limit: Some(limit),
            eviction: Some(policy.to_owned()),
            ..RedisNode::default()
        };
        assert!(node(1001, 1000, "noeviction").is_full());
        assert!(node(1001, 1000, "noeviction").warnings(0)[0].contains("maxmemory"));
        for room in [node(1000, 1000, "noeviction"), node(1001, 0, "noeviction"), node(1001, 1000, "allkeys-lru")] {
            assert!(!room.is_full(), "{room:?}");
        }
    }
}
