//~ is not a scheme
//~ use a preset such as `scheme::stripe(secret)?`

use tower_webhook::store::MemoryStore;
use tower_webhook::{WebhookLayer, scheme};

pub fn layer() -> WebhookLayer {
    // Without the question mark.
    WebhookLayer::new(scheme::stripe("whsec_secret"), MemoryStore::new())
}
