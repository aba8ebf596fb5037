//! The stores by their addresses.

use std::error::Error;

use tower_webhook::inbox::AnyInbox;
use tower_webhook::store::MemoryStore;

type Opened = Result<AnyInbox, Box<dyn Error>>;

/// `memory`, `sqlite:PATH`, `redis://…` or `postgres://…`.
pub(crate) async fn open(address: &str) -> Opened {
    match address.split_once(':') {
        None if address == "memory" => Ok(AnyInbox::new(MemoryStore::new())),
        Some(("sqlite", path)) => sqlite(path).await,
        Some(("redis" | "rediss", _)) => redis(address).await,
        Some(("postgres" | "postgresql", _)) => postgres(address).await,
        _ => {
            Err(format!("{address:?} is none of memory, sqlite:PATH, redis://HOST, postgres://USER@HOST/DATABASE")
                .into())
        }
    }
}

#[cfg(feature = "sqlite")]
async fn sqlite(path: &str) -> Opened {
    Ok(AnyInbox::new(tower_webhook::store::SqliteStore::open(path).await?))
}

#[cfg(feature = "redis")]
async fn redis(address: &str) -> Opened {
    use deadpool_redis::{Config, Runtime};
    let pool = Config::from_url(address).create_pool(Some(Runtime::Tokio1))?;
    let store = tower_webhook::store::RedisStore::new(pool);
    // What it finds is told through `tracing`, and so on the console.
    store.check().await?;
    Ok(AnyInbox::new(store))
}

#[cfg(feature = "postgres")]
async fn postgres(address: &str) -> Opened {
    let store = tower_webhook::store::PostgresStore::new(sqlx::PgPool::connect(address).await?);
    store.migrate().await?;
    Ok(AnyInbox::new(store))
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_: &str) -> Opened {
    Err("this needs `--features sqlite` before the `--`".into())
}

#[cfg(not(feature = "redis"))]
async fn redis(_: &str) -> Opened {
    Err("this needs `--features redis` before the `--`".into())
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &str) -> Opened {
    Err("this needs `--features postgres` before the `--`".into())
}
