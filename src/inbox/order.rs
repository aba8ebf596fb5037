use std::fmt;
use std::sync::Arc;

use crate::error::ConfigError;
use crate::head::Head;
use crate::identity::json_body::{self, Field, JsonPath};
use crate::identity::json_path;
use crate::key::EventKey;
use crate::store::queue::Order;

type Namer = dyn Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync;

/// Says which events wait for each other: those of one resource run one at a time, in the order of their arrival.
///
/// ```
/// use tower_webhook::inbox::OrderSource;
///
/// // One subscription's events in order, and none that is older than what was applied.
/// let order = OrderSource::json("data.object.id")?.sequence("data.object.version")?;
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct OrderSource {
    key: KeySource,
    sequence: Option<JsonPath>,
}

#[derive(Clone)]
enum KeySource {
    Json(JsonPath),
    Closure(Arc<Namer>),
}

impl OrderSource {
    /// The resource's id is a string or a number in the JSON body, by the keys that lead to it. Events without it wait
    /// for no other.
    ///
    /// # Errors
    /// If the path is empty, has an empty key or more than eight.
    pub fn json(path: &str) -> Result<Self, ConfigError> {
        Ok(Self { key: KeySource::Json(json_path(path)?), sequence: None })
    }

    /// The resource's id is the result of `name` for a verified delivery. With `None`, the event waits for no other.
    pub fn by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { key: KeySource::Closure(Arc::new(name)), sequence: None }
    }

    /// Skips outdated events: the integer at this path, in the JSON body, must be above that of the last event that was
    /// completed for the same resource. An event that is skipped is completed, and its handler is not called. One
    /// without the number is not skipped.
    ///
    /// # Errors
    /// If the path is empty, has an empty key or more than eight.
    pub fn sequence(mut self, path: &str) -> Result<Self, ConfigError> {
        self.sequence = Some(json_path(path)?);
        Ok(self)
    }

    /// The order of an event that was verified. Keys of two endpoints or tenants never meet.
    pub(crate) fn order(&self, event: &EventKey, head: &Head<'_>, body: &[u8]) -> Option<Order> {
        let resource = match &self.key {
            KeySource::Json(path) => scalar(body, path)?,
            KeySource::Closure(name) => name(head, body)?,
        };
        let key = EventKey::new(event.endpoint(), event.tenant(), &resource.replace('\0', "\u{fffd}"));
        let sequence = self.sequence.as_ref().and_then(|path| scalar(body, path)?.parse().ok());
        Some(Order { key: key.as_str().into(), sequence })
    }
}

/// A string or a number, as text.
fn scalar(body: &[u8], path: &JsonPath) -> Option<String> {
    let [field] = json_body::read(body, [path]).ok()?;
    match field {
        Field::Text(text) => Some(text.into_owned()),
        Field::Other(raw) if raw.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => Some(raw.to_owned()),
        Field::Other(_) | Field::Absent => None,
    }
}

impl fmt::Debug for OrderSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match &self.key {
            KeySource::Json(path) => path.as_str(),
            KeySource::Closure(_) => "closure",
        };
        let sequence = self.sequence.as_ref().map(JsonPath::as_str);
        f.debug_struct("OrderSource").field("key", &key).field("sequence", &sequence).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn order(source: &OrderSource, body: &str) -> Option<(String, Option<i64>)> {
        let (parts, ()) = http::Request::new(()).into_parts();
        let event = EventKey::new("/hook", Some("t"), "evt_1");
        let order = source.order(&event, &Head::new(&parts, SystemTime::UNIX_EPOCH), body.as_bytes())?;
        Some((order.key.into(), order.sequence))
    }

    #[test]
    fn resources_are_strings_or_numbers_of_one_endpoint_and_tenant() {
        let source = OrderSource::json("sub").expect("a path").sequence("v").expect("a path");
        let key = |id: &str| EventKey::new("/hook", Some("t"), id).as_str().to_owned();
        assert_eq!(order(&source, r#"{"sub":"s1","v":7}"#), Some((key("s1"), Some(7))));
        assert_eq!(order(&source, r#"{"sub":12,"v":"-3"}"#), Some((key("12"), Some(-3))));
        assert_eq!(order(&source, r#"{"sub":"s1","v":1.5}"#), Some((key("s1"), None)));
        for unordered in [r#"{"v":7}"#, r#"{"sub":null}"#, r#"{"sub":["s1"]}"#, "not json"] {
            assert_eq!(order(&source, unordered), None, "{unordered}");
        }
    }

    #[test]
    fn closures_name_what_no_path_leads_to() {
        let source = OrderSource::by(|_, body| Some(String::from_utf8_lossy(&body[..2]).into_owned()));
        assert_eq!(order(&source, "ab-rest").map(|(key, _)| key.ends_with("/ab")), Some(true));
    }
}
