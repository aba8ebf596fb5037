use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::Duration;

use deadpool_redis::redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use deadpool_redis::redis::{self, Cmd, FromRedisValue, RedisResult, Value, from_redis_value};
use tokio::time::timeout;

use super::line::Line;
use super::replicas::Replicas;
use super::report::FULL;
use super::store::Answer;
use super::{RedisNode, RedisReport, RedisStore};
use crate::key::RESERVED;
use crate::store::{ClaimRequest, ClaimToken, Store, StoreError};
use crate::{EventKey, telemetry};

/// How long the event that is claimed to see whether it works is kept, if it cannot be released.
const PROBE: Duration = Duration::from_secs(10);

const SETTINGS: [&str; 5] = ["maxmemory-policy", "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "save"];

/// By their addresses, which only a Cluster's are known by.
type Nodes<T> = BTreeMap<Option<String>, T>;

impl RedisStore {
    /// Claims, renews and releases an event of its own to see that the store works, and looks whether the server is configured
    /// to keep what it is told. To be called once, at start-up.
    ///
    /// A server at its `maxmemory` refuses the claim. That is a warning and no error: events that were claimed or accepted before
    /// can end there, and the workers that drain an inbox have to start.
    ///
    /// Warnings are in the report and told to `tracing`, there even if the store does not work, since they may say why.
    /// Whether they are reason enough not to start is the caller's decision:
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
    /// If the server cannot be reached, is a replica, or refuses what the store needs: a [right](super#the-rights-that-it-needs) that
    /// is missing is named. If too few replicas confirm, where any are asked for. A right that only an inbox needs is a warning, for a
    /// user who has some of them.
    pub async fn check(&self) -> Result<RedisReport, StoreError> {
        let tried = self.try_out().await;
        let mut nodes = self.nodes().await;
        if nodes.is_empty() && tried.is_ok() {
            nodes.push(RedisNode::default());
        }
        let wanted = self.shared.replicas.as_ref().map_or(0, Replicas::wanted);
        let mut warnings: Vec<_> = nodes.iter().flat_map(|node| node.warnings(wanted)).collect();
        if let Ok(tried) = &tried {
            warnings.extend(tried.warnings(&nodes));
        }
        warnings.iter().for_each(|warning| telemetry::redis_warned(warning));
        tried?;
        let claims_by_script = self.shared.claims_by_script.load(Ordering::Relaxed);
        Ok(RedisReport { nodes, claims_by_script, warnings })
    }

    /// Tries the verbs and the rights that they need, under ids that no sender can use.
    async fn try_out(&self) -> Result<Tried, StoreError> {
        for lane in &self.shared.lanes {
            lane.line().await?;
        }
        let token = ClaimToken::random();
        let key = EventKey::new("", None, &format!("{RESERVED}check:{token}"));
        let claim = ClaimRequest::new(&key, token, PROBE);
        let (is_full, confirmed) = match self.shared.claim(&claim).await {
            Ok(Answer { found: None, confirmed }) => (false, confirmed),
            Ok(Answer { found: Some(found), .. }) => {
                return Err(StoreError::corrupt(format!("an event that nobody knows of is {found:?}")));
            }
            Err(fault) if fault.is_out_of_memory() => (true, Ok(())),
            Err(fault) => return Err(fault.into()),
        };
        let missing =
            self.shared.missing_rights(&EventKey::new("", None, &format!("{RESERVED}check:{token}:rights"))).await?;
        if !missing.of_store.is_empty() {
            return Err(StoreError::unavailable(format!("the user of the server lacks {}", listed(&missing.of_store))));
        }
        if is_full {
            // A full Redis 6 refuses the renewal, too. The release tells whether it is one.
            let _ = self.release(&key, token).await?;
        }
        if !(is_full && self.shared.refuses_flags.load(Ordering::Relaxed)) {
            let _ = self.renew(&claim).await?;
            let _ = self.release(&key, token).await?;
        }
        confirmed?;
        Ok(Tried { is_full, missing_of_inbox: missing.of_inbox })
    }

    /// None, if none says anything.
    async fn nodes(&self) -> Vec<RedisNode> {
        let Ok(line) = self.shared.lanes[0].line().await else { return Vec::new() };
        let infos: Nodes<String> = self.told(&line, &redis::cmd("INFO")).await;
        if infos.is_empty() {
            return Vec::new();
        }
        let mut configs: Nodes<HashMap<String, String>> = Nodes::new();
        for setting in SETTINGS {
            // One by one: several at a time are new in Redis 7, and all of them would be the passwords, too.
            let told: Nodes<HashMap<_, _>> = self.told(&line, redis::cmd("CONFIG").arg("GET").arg(setting)).await;
            for (address, values) in told {
                configs.entry(address).or_default().extend(values);
            }
        }
        let config = |address| configs.get(address).cloned().unwrap_or_default();
        infos.iter().map(|(address, info)| RedisNode::read(address.clone(), info, &config(address))).collect()
    }

    /// What every node answers; nothing from those that do not.
    async fn told<T: FromRedisValue>(&self, line: &Line, question: &Cmd) -> Nodes<T> {
        let answer = timeout(self.shared.timeout, ask_nodes(line.clone(), question)).await;
        let told = answer.ok().and_then(Result::ok).unwrap_or_default();
        told.into_iter().filter_map(|(address, value)| Some((address, from_redis_value(value).ok()?))).collect()
    }
}

/// What was found where the store works.
struct Tried {
    is_full: bool,
    missing_of_inbox: Vec<String>,
}

impl Tried {
    /// What the nodes themselves do not tell.
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

async fn ask_nodes(line: Line, question: &Cmd) -> RedisResult<Nodes<Value>> {
    match line {
        Line::Node(mut node) => Ok(Nodes::from([(None, question.query_async(&mut node).await?)])),
        Line::Cluster(mut cluster) => {
            let every_primary = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            let told = cluster.route_command(question.clone(), every_primary).await?;
            let told: BTreeMap<String, Value> = from_redis_value(told)?;
            Ok(told.into_iter().map(|(address, value)| (Some(address), value)).collect())
        }
    }
}
