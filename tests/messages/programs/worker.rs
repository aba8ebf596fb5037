//~ cannot handle events
//~ an axum `Router` is such a service once it has its state: `router.with_state(state)`

use axum::Router;
use tower_webhook::Worker;
use tower_webhook::store::MemoryStore;

pub async fn work(handlers: Router<String>) {
    Worker::new(MemoryStore::new(), handlers).run_until_idle().await;
}
