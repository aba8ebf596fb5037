//~ is not a queue
//~ `MemoryStore`, `SqliteStore`, `RedisStore` and `PostgresStore` are queues; a `BreakerStore` is not

use tower_webhook::store::{BreakerStore, MemoryStore};
use tower_webhook::{ConfigError, WebhookLayer, scheme};

pub fn layer() -> Result<WebhookLayer, ConfigError> {
    Ok(WebhookLayer::inbox(scheme::timestamped("a secret")?, BreakerStore::new(MemoryStore::new())))
}
