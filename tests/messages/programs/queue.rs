//~ is not a queue
//~ `MemoryStore`, `SqliteStore`, `RedisStore` and `PostgresStore` are queues; a `BreakerStore` is not

use axum::Router;
use tower_webhook::Worker;
use tower_webhook::store::{BreakerStore, MemoryStore};

pub async fn work(handlers: Router) {
    Worker::new(BreakerStore::new(MemoryStore::new()), handlers).run_until_idle().await;
}
