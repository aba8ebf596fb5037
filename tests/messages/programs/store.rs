//~ is not a store
//~ use `store::MemoryStore::new()` or another store of the module `store`, or implement `store::Store`

use tower_webhook::{ConfigError, WebhookLayer, scheme};

pub fn layer() -> Result<WebhookLayer, ConfigError> {
    Ok(WebhookLayer::new(scheme::stripe("whsec_secret")?, "redis://localhost"))
}
