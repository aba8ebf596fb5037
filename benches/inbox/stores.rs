//! The servers, and stores on them.

use deadpool_redis::{Config, Runtime};
use sqlx::{AssertSqlSafe, PgPool};
use tower_webhook::store::{PostgresStore, RedisStore};

use crate::servers::postgres::PostgresServer;
use crate::servers::redis::RedisServer;

pub(crate) struct Stores {
    redis_server: RedisServer,
    pub(crate) redis: RedisStore,
    pub(crate) pool: PgPool,
    pub(crate) postgres: PostgresStore,
    _postgres_server: PostgresServer,
}

impl Stores {
    pub(crate) async fn start() -> Self {
        let (redis_server, postgres_server) = (RedisServer::start(), PostgresServer::start());
        let pool = Config::from_url(redis_server.url()).create_pool(Some(Runtime::Tokio1)).expect("a pool");
        let redis = RedisStore::new(pool);
        let pool = postgres_server.pool();
        let postgres = PostgresStore::new(pool.clone());
        postgres.migrate().await.expect("a table");
        Self { redis_server, redis, pool, postgres, _postgres_server: postgres_server }
    }

    /// Another table, empty.
    pub(crate) async fn table(&self, name: &str) -> PostgresStore {
        let store = PostgresStore::builder(self.pool.clone()).table(name).expect("a name").build();
        store.migrate().await.expect("a table");
        store
    }

    pub(crate) fn redis_url(&self) -> String {
        self.redis_server.url()
    }

    pub(crate) async fn empty(&self) {
        self.redis_server.command(&["FLUSHALL"]);
        self.sql("TRUNCATE webhook_events").await;
    }

    pub(crate) async fn sql(&self, sql: &str) {
        sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await.expect("a statement");
    }
}
